//! A test in the language STF: entries, one packet, and what is sent.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use p4_model::{Entry, Key};
use serde_json::Value;

/// The keys of a program's tables: name and kind of each field, in order.
pub(crate) struct Tables(BTreeMap<String, Vec<(String, String)>>);

impl Tables {
    pub(crate) fn of(json: &str) -> Self {
        let program: Value = serde_json::from_str(json).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let pipelines = program["pipelines"].as_array().unwrap().iter();
        let tables = pipelines.flat_map(|pipeline| pipeline["tables"].as_array().unwrap());
        let keys = |table: &Value| {
            let keys = table["key"].as_array().unwrap().iter();
            keys.map(|key| (text(&key["name"]), text(&key["match_type"])))
                .collect()
        };
        Self(tables.map(|table| (text(&table["name"]), keys(table))).collect())
    }
}

/// What a port sends: hexadecimal digits, of which `*` is any; `None`: anything, or nothing.
#[derive(Debug, PartialEq)]
struct Expected {
    port: u16,
    digits: Option<String>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Case {
    pub(crate) entries: Vec<(String, Entry)>,
    pub(crate) defaults: Vec<(String, String, Vec<u128>)>,
    /// The clone session, and its port.
    pub(crate) session: Option<(u32, u16)>,
    pub(crate) port: u16,
    pub(crate) frame: Vec<u8>,
    expected: Vec<Expected>,
}

/// A number and its mask, and the bits of its notation: a digit `*` is any.
fn number(text: &str) -> Option<(u128, u128, u32)> {
    let (prefix, digits) = text.split_at_checked(2)?;
    let bits = match prefix {
        "0x" => 4,
        "0b" => 1,
        _ => return None,
    };
    let (mut value, mut mask) = (0, 0);
    for digit in digits.chars() {
        let (of, all) = if digit == '*' {
            (0, 0)
        } else {
            (digit.to_digit(1 << bits)?, (1 << bits) - 1)
        };
        (value, mask) = (value << bits | u128::from(of), mask << bits | all);
    }
    Some((value, mask, bits * digits.len() as u32))
}

/// A field of a key. p4testgen reads ranges as exact fields.
fn key(text: &str, kind: &str) -> Option<Key> {
    let (value, mask, width) = number(text)?;
    match kind {
        "exact" => Some(Key::Exact(value)),
        "range" => Some(Key::Range(value, value)),
        "ternary" => Some(Key::Ternary(value, mask)),
        "lpm" => Some(Key::Lpm(value, width - mask.trailing_zeros().min(width))),
        _ => None,
    }
}

/// The text between the quotes that `text` begins with, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.trim_start().strip_prefix('"')?.split_once('"')
}

/// `"action"("name":value, ...)`.
fn action(text: &str) -> Option<(String, Vec<u128>)> {
    let (name, rest) = quoted(text)?;
    let inside = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
    let values = inside.split(',').filter(|one| !one.trim().is_empty());
    let parameters: Option<Vec<u128>> = values
        .map(|one| number(one.rsplit_once(':')?.1.trim()).map(|(value, ..)| value))
        .collect();
    Some((name.to_owned(), parameters?))
}

/// `"table" [priority] "field":key ... "action"(...)`.
fn entry(text: &str, tables: &Tables) -> Option<(String, Entry)> {
    let (table, mut rest) = quoted(text)?;
    let mut priority = 0;
    if let Some((first, after)) = rest.trim_start().split_once(' ')
        && let Ok(number) = first.parse()
    {
        (priority, rest) = (number, after);
    }
    let mut fields = BTreeMap::new();
    while let Some((name, after)) = quoted(rest)
        && let Some(after) = after.strip_prefix(':')
    {
        let (value, left) = after.split_once(' ')?;
        fields.insert(name, value);
        rest = left;
    }
    // p4testgen orders them otherwise.
    let keys = tables
        .0
        .get(table)?
        .iter()
        .map(|(name, kind)| key(fields.remove(name.as_str())?, kind));
    let keys = keys.collect::<Option<Vec<Key>>>()?;
    let (action, parameters) = action(rest)?;
    fields.is_empty().then(|| {
        (
            table.to_owned(),
            Entry {
                keys,
                priority,
                action,
                parameters,
            },
        )
    })
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).ok().filter(|_| two.len() == 2)?, 16).ok())
        .collect()
}

impl Case {
    /// `None`: something that this reader does not know.
    pub(crate) fn read(text: &str, tables: &Tables) -> Option<Self> {
        let mut case = Self::default();
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let (word, rest) = line.split_once(' ')?;
            let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
            match word {
                "add" => case.entries.push(entry(rest, tables)?),
                "setdefault" => {
                    let (table, rest) = quoted(rest)?;
                    let (name, parameters) = action(rest)?;
                    case.defaults.push((table.to_owned(), name, parameters));
                }
                "mirroring_add" => case.session = Some((first.parse().ok()?, second.trim().parse().ok()?)),
                "packet" => (case.port, case.frame) = (first.parse().ok()?, bytes(second.trim())?),
                "expect" => {
                    let digits = second.trim().trim_end_matches('$').to_lowercase();
                    let digits = Some(digits).filter(|digits| !digits.is_empty());
                    case.expected.push(Expected {
                        port: first.parse().ok()?,
                        digits,
                    });
                }
                _ => return None,
            }
        }
        Some(case)
    }

    /// Whether a packet is expected.
    pub(crate) fn sends(&self) -> bool {
        self.expected.iter().any(|expected| expected.digits.is_some())
    }

    /// The numbers of packets that ports send.
    pub(crate) fn counts(&self) -> BTreeMap<u16, usize> {
        let mut counts = BTreeMap::new();
        for expected in self.expected.iter().filter(|expected| expected.digits.is_some()) {
            *counts.entry(expected.port).or_default() += 1;
        }
        counts
    }

    /// What is wrong with what was sent, by port.
    pub(crate) fn judge(&self, sent: &[(u16, Vec<u8>)]) -> Result<(), String> {
        let mut left: Vec<&(u16, Vec<u8>)> = sent.iter().collect();
        for Expected { port, digits } in &self.expected {
            let Some(digits) = digits else { continue };
            let found = left
                .iter()
                .position(|(out, frame)| out == port && is_as(frame, digits));
            let at =
                found.ok_or_else(|| format!("port {port} does not send {digits}, but {}", written(sent)))?;
            left.remove(at);
        }
        // p4testgen follows the packet or its copy, and does not know what becomes of the other.
        let is_open = |port: &u16| match self.session {
            Some((_, copies)) if self.expected.is_empty() => *port != copies,
            _ => self
                .expected
                .iter()
                .any(|expected| expected.digits.is_none() && expected.port == *port),
        };
        left.retain(|(port, _)| !is_open(port));
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("sends what is not expected: {}", written(sent)))
        }
    }

    /// The commands of `simple_switch_CLI`.
    pub(crate) fn commands(&self) -> String {
        let mut text = String::new();
        let list = |values: &[u128]| {
            values
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (table, action, parameters) in &self.defaults {
            writeln!(text, "table_set_default {table} {action} {}", list(parameters)).unwrap();
        }
        if let Some((session, port)) = self.session {
            writeln!(text, "mirroring_add {session} {port}").unwrap();
        }
        for (table, entry) in &self.entries {
            let key = |key: &Key| match *key {
                Key::Exact(value) => value.to_string(),
                Key::Lpm(value, len) => format!("{value}/{len}"),
                Key::Ternary(value, mask) => format!("{value}&&&{mask}"),
                Key::Range(first, last) => format!("{first}->{last}"),
            };
            let keys: Vec<String> = entry.keys.iter().map(key).collect();
            let priority = if entry.priority == 0 {
                String::new()
            } else {
                entry.priority.to_string()
            };
            let (keys, parameters) = (keys.join(" "), list(&entry.parameters));
            writeln!(
                text,
                "table_add {table} {} {keys} => {parameters} {priority}",
                entry.action
            )
            .unwrap();
        }
        text
    }
}

/// Whether a frame has these digits. p4testgen does not know `truncate`: a frame that ends with its IPv4 packet may be followed by more.
fn is_as(frame: &[u8], digits: &str) -> bool {
    let total_len = frame
        .get(16..18)
        .map_or(0, |len| usize::from(len[0]) << 8 | usize::from(len[1]));
    let is_cut = frame.len() * 2 < digits.len() && frame.len() == 14 + total_len;
    let digits = if is_cut {
        &digits[..frame.len() * 2]
    } else {
        digits
    };
    let same = |(wanted, digit): (char, char)| wanted == '*' || wanted == digit;
    frame.len() * 2 == digits.len() && digits.chars().zip(hex(frame).chars()).all(same)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn written(sent: &[(u16, Vec<u8>)]) -> String {
    let frames: Vec<String> = sent
        .iter()
        .map(|(port, frame)| format!("{port} {}", hex(frame)))
        .collect();
    if frames.is_empty() {
        "nothing".to_owned()
    } else {
        frames.join(", ")
    }
}

#[test]
fn a_test_is_read_and_judged() {
    let json = r#"{"pipelines":[{"tables":[
        {"name":"I.route","key":[{"name":"dst","match_type":"lpm"}]},
        {"name":"E.watch","key":[{"name":"src","match_type":"ternary"},{"name":"dport","match_type":"range"},{"name":"at","match_type":"exact"}]}]}]}"#;
    let text = "# p4testgen seed: 1\n\nsetdefault \"E.node\" \"E.set\"(\"node\":0x1f,\"rest\":0x0)\n\
        add \"I.route\" \"dst\":0b00001010************************ \"I.next\"(\"port\":0x002)\n\
        add \"E.watch\" 7 \"at\":0x1 \"dport\":0x0050 \"src\":0b1*0 \"NoAction\"()\n\
        mirroring_add 500 3\npacket 1 00FF\nexpect 3\nexpect 2 0*F0$\n";
    let entry = |keys: &[Key], priority, action: &str, parameters: &[u128]| Entry {
        keys: keys.to_vec(),
        priority,
        action: action.to_owned(),
        parameters: parameters.to_vec(),
    };
    let watch = [Key::Ternary(0b100, 0b101), Key::Range(0x50, 0x50), Key::Exact(1)];
    let case = Case::read(text, &Tables::of(json)).unwrap();
    assert_eq!(
        case,
        Case {
            entries: vec![
                (
                    "I.route".to_owned(),
                    entry(&[Key::Lpm(10 << 24, 8)], 0, "I.next", &[2])
                ),
                ("E.watch".to_owned(), entry(&watch, 7, "NoAction", &[])),
            ],
            defaults: vec![("E.node".to_owned(), "E.set".to_owned(), vec![0x1f, 0])],
            session: Some((500, 3)),
            port: 1,
            frame: vec![0, 0xff],
            expected: vec![
                Expected {
                    port: 3,
                    digits: None
                },
                Expected {
                    port: 2,
                    digits: Some("0*f0".to_owned())
                },
            ],
        }
    );
    let sent = |frames: &[(u16, &[u8])]| {
        case.judge(
            &frames
                .iter()
                .map(|(port, frame)| (*port, frame.to_vec()))
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(sent(&[(3, &[1]), (2, &[0x0a, 0xf0])]), Ok(()));
    assert_eq!(
        sent(&[(2, &[0x1a, 0xf0])]),
        Err("port 2 does not send 0*f0, but 2 1af0".to_owned())
    );
    assert_eq!(
        sent(&[(2, &[0, 0xf0]), (4, &[])]),
        Err("sends what is not expected: 2 00f0, 4 ".to_owned())
    );
    assert_eq!(Case::read("wait 1", &Tables::of(json)), None);
}
