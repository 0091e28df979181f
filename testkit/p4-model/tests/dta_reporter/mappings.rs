//! Random mappings, and the entries of the program that are the same.

use dataplane::dta::{Action, Condition, Field, Mapping, SendOptions, Trigger};
use detect::{Match, PortRange};
use p4_model::{Entry, Key};
use testkit::rng::Rng;
use wire::dta::Priority;

use crate::pair::entry;
use crate::setup::Setup;

/// Words of data in a report at most.
const WORDS: usize = 8;
/// The number of a node.
const NODE: u128 = 3;

pub(crate) const TRIGGERS: [Trigger; 5] = [
    Trigger::Path,
    Trigger::Hop,
    Trigger::Drop,
    Trigger::Queue,
    Trigger::CongestedPacket,
];

/// The field with a number that an entry of the program's table may name.
#[derive(Clone, Copy)]
struct Number {
    text: &'static str,
    code: u128,
    /// A dropped packet has it, too.
    of_drop: bool,
}

const fn number(text: &'static str, code: u128, of_drop: bool) -> Number {
    Number { text, code, of_drop }
}

/// Numbers for conditions, deltas and values.
const NUMBERS: [Number; 13] = [
    number("switch", 2, true),
    number("node", NODE, true),
    number("ingress_if", 5, true),
    number("egress_if", 6, true),
    number("hop_latency", 7, false),
    number("queue_id", 8, false),
    number("queue_occupancy", 9, false),
    number("hop", 14, true),
    number("path_len", 15, true),
    number("flow_latency", 16, false),
    number("packet_bytes", 19, true),
    number("hop_limit", 20, true),
    number("ingress_ts", 21, true),
];

/// Data, and the words of the program.
const DATA: [(&str, &[u128], bool); 21] = [
    ("switch", &[2], true),
    ("node", &[NODE], true),
    ("ingress_if egress_if", &[4], true),
    ("hop_latency", &[7], false),
    ("queue_id:u32", &[8], false),
    ("queue_occupancy", &[9], false),
    ("src", &[10], true),
    ("dst", &[11], true),
    ("sport dport", &[12], true),
    ("proto:u32", &[13], true),
    ("hop:u32", &[14], true),
    ("path_len:u32", &[15], true),
    ("flow_latency", &[16], false),
    ("reason:u32", &[17], true),
    ("congested:u32", &[18], true),
    ("packet_bytes", &[19], true),
    ("hop_limit:u32", &[20], true),
    ("ingress_ts", &[23, 24], true),
    ("egress_ts", &[25, 26], false),
    ("node[5]", &[0x103, 0x203, 0x303, 0x403, 0x503], true),
    ("queue_occupancy[3]", &[0x109, 0x209, 0x309], false),
];

const KEYS: [(&str, u128); 6] = [
    ("", 1),
    ("switch", 2),
    ("node", NODE),
    ("src", 4),
    ("dst", 5),
    ("flow", 6),
];

/// A mapping as both have it.
pub(crate) struct Both {
    pub(crate) mapping: Mapping,
    pub(crate) setup: Vec<Setup>,
    /// Its lists.
    pub(crate) lists: std::ops::Range<u32>,
}

fn fields(text: &str) -> Vec<Field> {
    text.split(' ').map(|text| text.parse().unwrap()).collect()
}

fn one_number(rng: &mut Rng, on: Trigger) -> Number {
    let all: Vec<&Number> = NUMBERS
        .iter()
        .filter(|one| one.of_drop || on != Trigger::Drop)
        .collect();
    *all[rng.below(all.len())]
}

/// A condition, and field, bounds and negation of the program.
fn condition(rng: &mut Rng, on: Trigger) -> (Vec<Condition>, [u128; 4]) {
    if rng.below(3) != 0 {
        return (Vec::new(), [0; 4]);
    }
    let Number { text, code, .. } = one_number(rng, on);
    let value = [0, 1, 2, 3, 64, 100, 1500, 2_000_000, 1_000_000_000_000][rng.below(9)];
    let most = u128::from(u64::MAX);
    let (operator, range) = match rng.below(6) {
        0 => ("==", [value, value, 0]),
        1 => ("!=", [value, value, 1]),
        2 if value == 0 => ("<", [1, 0, 0]),
        2 => ("<", [0, value - 1, 0]),
        3 => ("<=", [0, value, 0]),
        4 => (">", [value + 1, most, 0]),
        _ => (">=", [value, most, 0]),
    };
    let condition = format!("{text} {operator} {value}").parse().unwrap();
    (vec![condition], [code, range[0], range[1], range[2]])
}

/// Data of at most eight words.
fn data(rng: &mut Rng, on: Trigger, constant: u32) -> (Vec<Field>, Vec<u128>) {
    let (mut parts, mut words) = (Vec::new(), Vec::new());
    for _ in 0..1 + rng.below(5) {
        let (text, codes, of_drop) = DATA[rng.below(DATA.len())];
        if words.len() + codes.len() <= WORDS && (of_drop || on != Trigger::Drop) {
            parts.extend(fields(text));
            words.extend_from_slice(codes);
        }
    }
    if words.is_empty() {
        parts.push(format!("{constant}:u32").parse().unwrap());
        words.push(1);
    }
    words.resize(WORDS, 0);
    (parts, words)
}

/// Flows, and the keys of the program that select them: family, addresses, protocol and ports.
fn flows(rng: &mut Rng, v4_only: bool) -> (Match, Vec<Key>) {
    let any = Key::Ternary(0, 0);
    let mut flows = Match::default();
    let mut family = any;
    let (mut src, mut proto) = (any, any);
    let ports = Key::Range(0, 0xffff);
    let mut dst_ports = ports;
    if v4_only || rng.below(5) == 0 {
        // Prefixes of IPv4 match no flow of IPv6.
        let len = [0, 1, 2][rng.below(3)];
        flows.src = Some(format!("0.0.0.0/{len}").parse().unwrap());
        src = Key::Ternary(0, u128::from(u32::MAX.checked_shl(32 - len).unwrap_or(0)));
        family = Key::Ternary(2, 3);
    }
    if rng.below(4) == 0 {
        flows.proto = Some(17);
        proto = Key::Ternary(17, 0xff);
    }
    if rng.below(6) == 0 {
        flows.dst_port = PortRange::new(0, 0x7fff).unwrap();
        dst_ports = Key::Range(0, 0x7fff);
    }
    if flows != Match::default() && family == any {
        family = Key::Ternary(2, 2);
    }
    (flows, vec![family, src, any, proto, ports, dst_ports])
}

/// An operation, and what the program has for it: action, parameters, words of data, key.
struct Operation {
    action: Action,
    name: &'static str,
    parameters: Vec<u128>,
    words: Vec<u128>,
    key: u128,
    lists: std::ops::Range<u32>,
}

fn operation(rng: &mut Rng, on: Trigger, constant: u32) -> Operation {
    let (text, mut code) = KEYS[rng.below(KEYS.len())];
    let key = if text.is_empty() {
        fields(&format!("{constant}:u32"))
    } else {
        fields(text)
    };
    let (store, copies) = (rng.roll() as u16, 1 + rng.below(4) as u8);
    let Number {
        text, code: number, ..
    } = one_number(rng, on);
    let (text, number) = match rng.below(4) {
        0 => (format!("{constant}:u32"), 1),
        _ => (text.to_owned(), number),
    };
    let (mut lists, mut words) = (0..0, vec![0; WORDS]);
    let id = u128::from(store);
    let (action, name, parameters) = match rng.below(4) {
        0 => {
            let data;
            (data, words) = self::data(rng, on, constant);
            let parameters = vec![id, copies.into(), code];
            (
                Action::KeyWrite {
                    store,
                    copies,
                    key,
                    data,
                },
                "key_write",
                parameters,
            )
        }
        1 => {
            let entry;
            (entry, words) = data(rng, on, constant);
            let (list, number) = ([5, 1000, 0xffff_ff00][rng.below(3)], [1, 1, 3, 200][rng.below(4)]);
            let spread = if number > 1 { key } else { Vec::new() };
            code = if number > 1 { code } else { 0 };
            lists = list..list + u32::from(number);
            let parameters = vec![list.into(), number.into(), code];
            (
                Action::Append {
                    list,
                    lists: number,
                    spread,
                    entry,
                    entries: 1,
                    hold: 0,
                },
                "append",
                parameters,
            )
        }
        2 => {
            let delta = text.parse().unwrap();
            let parameters = vec![id, copies.into(), code, number];
            (
                Action::KeyIncrement {
                    store,
                    copies,
                    key,
                    delta,
                },
                "key_increment",
                parameters,
            )
        }
        _ => {
            let value = text.parse().unwrap();
            (
                Action::Postcard { store, key, value },
                "postcard",
                vec![id, code, number],
            )
        }
    };
    Operation {
        action,
        name,
        parameters,
        words,
        key: code,
        lists,
    }
}

/// The mapping with this number. The program knows no times of other nodes.
pub(crate) fn random(rng: &mut Rng, index: usize) -> Both {
    loop {
        let both = any(rng, index);
        let Mapping {
            on, each_hop, action, ..
        } = &both.mapping;
        let is_each = *each_hop || *on == Trigger::Path && matches!(action, Action::Postcard { .. });
        if !is_each || !format!("{:?}", both.mapping).contains("gressTs") {
            return both;
        }
    }
}

fn any(rng: &mut Rng, index: usize) -> Both {
    let on = TRIGGERS[[0, 0, 0, 1, 1, 2, 3, 4][rng.below(8)]];
    let (number, constant) = (index as u128, rng.roll() as u32);
    let Operation {
        action,
        name,
        parameters,
        words,
        key,
        lists,
    } = operation(rng, on, constant);
    let (flows, flow_keys) = flows(rng, key == 6);
    let (when, bounds) = condition(rng, on);
    let each_hop = on == Trigger::Path && rng.below(3) == 0;
    let every = [1, 1, 1, 2, 3][rng.below(5)];
    let priority = [Priority::Low, Priority::Medium, Priority::High][rng.below(3)];
    let (essential, immediate) = (rng.below(3) == 0, rng.below(4) == 0);
    let options = SendOptions {
        priority,
        essential,
        immediate,
    };
    let mapping = Mapping {
        name: String::new(),
        on,
        table: None,
        flows,
        when,
        every,
        each_hop,
        options,
        action,
    };
    let event = TRIGGERS.iter().position(|trigger| *trigger == on).unwrap() as u128 + 1;
    let keys = [vec![Key::Exact(event), Key::Range(0, number)], flow_keys].concat();
    let parameters = [vec![number], parameters].concat();
    let entry_of_flows = Entry {
        keys,
        priority: 1000 - index as i32,
        action: name.to_owned(),
        parameters,
    };
    let sent = [
        priority as u128,
        essential.into(),
        immediate.into(),
        every.into(),
        each_hop.into(),
    ];
    let sent = [&sent[..], &bounds, &[constant.into()]].concat();
    let setup = vec![
        Setup::Entry("mapping", entry_of_flows),
        entry("options", vec![Key::Exact(number)], "send_options", sent),
        entry("data", vec![Key::Exact(number)], "data_fields", words),
    ];
    Both {
        mapping,
        setup,
        lists,
    }
}
