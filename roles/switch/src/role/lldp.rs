//! LLDP (IEEE 802.1AB) agent of the switch: sends announcements on its ports, and records the neighbour at each port, from
//! which the manager learns links.
//!
//! LLDPDUs are never forwarded, bypass the delays of emulated links, and pass even while the switch waits for its manager.

use wire::{
    Refusal, ethernet,
    lldp::{ETHERTYPE, Id, Lldpdu, NEAREST_BRIDGE, chassis, port},
};

use crate::settings::{PortSettings, SwitchSettings};
use view::switch::NeighbourView;

const SECOND: u64 = 1_000_000_000;
/// Interval of announcements (`msgTxInterval`), ns.
const INTERVAL: u64 = 30 * SECOND;
/// Interval of the first announcements, and after a new neighbour (`msgFastTx`), ns.
const FAST_INTERVAL: u64 = SECOND;
/// Minimum interval between published changes of a port's neighbour, ns.
const CHANGE_INTERVAL: u64 = SECOND;
/// Number of announcements at the fast interval (`txFastInit`).
const TX_FAST_INIT: u8 = 4;
/// Validity of announcements, s: `msgTxInterval` times `msgTxHold` (4), plus one.
const TTL: u16 = 121;
/// Longest announced name, bytes.
const MAX_NAME: usize = wire::lldp::MAX_TEXT_LEN;
/// Size of the longest announcement, bytes: Ethernet header, two identifiers, two texts, TTL and end.
const MAX_FRAME: usize = 1100;
/// Shortest Ethernet frame without its checksum, bytes.
const MIN_FRAME: usize = 60;

/// The LLDP agent of a switch.
#[derive(Debug)]
pub(super) struct Lldp {
    node: u32,
    system: String,
    ports: Vec<Port>,
    /// Number of published changes of neighbours since the start.
    changes: u64,
    /// Time of the next call of [`Lldp::poll`] that has work, ns.
    next: u64,
}

#[derive(Debug, Default)]
struct Port {
    /// Time of the next announcement, ns.
    next_tx: u64,
    /// Time of the last announcement, ns.
    last_tx: Option<u64>,
    /// Earliest time at which the next change may be published, ns. The rate is limited because the neighbour controls it.
    next_change: u64,
    /// Whether a change has not been published yet.
    has_change: bool,
    /// Number of announcements still to send at the fast interval (`txFast`).
    tx_fast: u8,
    neighbour: Option<Neighbour>,
    /// Time until which a second system's announcement is valid, ns, so that the link is ambiguous. 0: there is none.
    second_expiry: u64,
}

impl Port {
    /// Returns the number of changes to publish now: 1, at most once per [`CHANGE_INTERVAL`], or 0.
    fn publish_change(&mut self, now: u64) -> u64 {
        if !self.has_change || now < self.next_change {
            return 0;
        }
        (self.has_change, self.next_change) = (false, now + CHANGE_INTERVAL);
        1
    }
}

/// A neighbour, and the expiry of its announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Neighbour {
    /// The neighbour's chassis ID and port ID, as received.
    key: Vec<u8>,
    view: NeighbourView,
    /// Time at which the announcement expires (`rxTTL`), ns.
    expiry: u64,
}

/// Returns whether a frame is LLDP for the nearest bridge, which must not be forwarded.
pub(super) fn is_lldp(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&ETHERTYPE.to_be_bytes()) && frame[..6] == NEAREST_BRIDGE
}

impl Lldp {
    /// Creates the agent, or returns `None` if LLDP is disabled.
    pub(super) fn new(settings: &SwitchSettings) -> Option<Self> {
        let node = settings.node;
        settings.lldp.then(|| Self {
            node,
            system: settings.name.clone().unwrap_or_else(|| format!("node-{node}")),
            ports: settings
                .ports
                .iter()
                .map(|_| Port {
                    tx_fast: TX_FAST_INIT,
                    ..Port::default()
                })
                .collect(),
            changes: 0,
            next: 0,
        })
    }

    /// Returns the time of the next due work, ns.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of published changes of neighbours since the start.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Expires neighbours, and passes due announcements to `send` with the index of the port. A port that is down or for which
    /// `is_operational` returns false has no neighbour and sends nothing.
    pub(super) fn poll(
        &mut self,
        now: u64,
        settings: &[PortSettings],
        is_operational: &dyn Fn(usize) -> bool,
        send: &mut dyn FnMut(usize, &[u8]),
    ) {
        if now < self.next {
            return;
        }
        let mut frame = [0; MAX_FRAME];
        self.next = now + FAST_INTERVAL;
        for (index, settings) in settings.iter().enumerate().take(self.ports.len()) {
            let is_up = settings.up && is_operational(index);
            let port = &mut self.ports[index];
            if port.second_expiry != 0 && (port.second_expiry <= now || !is_up) {
                port.second_expiry = 0;
                port.has_change = true;
            }
            let neighbour = port.neighbour.as_ref();
            if neighbour.is_some_and(|neighbour| neighbour.expiry <= now || !is_up) {
                port.neighbour = None;
                port.has_change = true;
            }
            self.changes += port.publish_change(now);
            if !is_up {
                // Announce the port as soon as it is back.
                (port.next_tx, port.tx_fast) = (now, TX_FAST_INIT);
            } else if port.next_tx <= now {
                let interval = if port.tx_fast > 0 { FAST_INTERVAL } else { INTERVAL };
                port.tx_fast = port.tx_fast.saturating_sub(1);
                (port.next_tx, port.last_tx) = (now + interval, Some(now));
                send(index, self.announcement(settings, TTL, &mut frame));
            }
        }
    }

    /// Announces the shutdown of all ports (a TTL of 0).
    pub(super) fn close(&self, settings: &[PortSettings], send: &mut dyn FnMut(usize, &[u8])) {
        let mut frame = [0; MAX_FRAME];
        for (index, settings) in settings.iter().enumerate().filter(|(_, settings)| settings.up) {
            send(index, self.announcement(settings, 0, &mut frame));
        }
    }

    /// Writes the LLDP frame of a port into `frame`, and returns it. A `ttl` of 0 s withdraws the port.
    fn announcement<'a>(&self, settings: &PortSettings, ttl: u16, frame: &'a mut [u8]) -> &'a [u8] {
        let interface = &settings.interface.as_bytes()[..settings.interface.len().min(MAX_NAME)];
        let system = &self.system.as_bytes()[..self.system.len().min(MAX_NAME)];
        let description = format!("port {}", settings.number);
        let lldpdu = Lldpdu {
            chassis: Id {
                subtype: chassis::MAC,
                bytes: &dataplane::router::Port::mac_for(self.node, 0),
            },
            port: Id {
                subtype: port::INTERFACE_NAME,
                bytes: interface,
            },
            ttl,
            port_description: (ttl > 0).then_some(description.as_bytes()),
            system_name: (ttl > 0).then_some(system),
        };
        ethernet::Repr {
            dst: NEAREST_BRIDGE,
            src: dataplane::router::Port::mac_for(self.node, settings.number),
            ethertype: ETHERTYPE,
        }
        .emit(frame);
        // Emitting fails only for an empty interface name, which the configuration refuses.
        let len = lldpdu.emit(&mut frame[ethernet::HEADER_LEN..]).unwrap_or(0);
        let len = (ethernet::HEADER_LEN + len).max(MIN_FRAME);
        &frame[..len]
    }

    /// Processes an announcement received at a port.
    ///
    /// # Errors
    /// The LLDPDU is malformed.
    pub(super) fn receive(&mut self, now: u64, index: usize, frame: &[u8]) -> Result<(), Refusal> {
        let lldpdu = Lldpdu::parse(frame.get(ethernet::HEADER_LEN..).unwrap_or_default())?;
        let Some(port) = self.ports.get_mut(index) else {
            return Ok(());
        };
        let key = [
            &[lldpdu.chassis.subtype],
            lldpdu.chassis.bytes,
            &[lldpdu.port.subtype],
            lldpdu.port.bytes,
        ]
        .concat();
        let is_same = port.neighbour.as_ref().is_none_or(|known| known.key == key);
        let expiry = now + u64::from(lldpdu.ttl) * SECOND;
        if lldpdu.ttl == 0 {
            port.has_change |= is_same && port.neighbour.take().is_some();
        } else if !is_same {
            // Keep the first neighbour until it expires. A further one only makes the link ambiguous.
            port.has_change |= port.second_expiry == 0;
            port.second_expiry = port.second_expiry.max(expiry);
        } else {
            let new = Neighbour {
                key,
                view: view(&lldpdu),
                expiry,
            };
            port.has_change |= port.neighbour.as_ref().map(|known| &known.view) != Some(&new.view);
            if port.neighbour.is_none() {
                // Announce this port to a new neighbour soon, instead of after the regular interval.
                let earliest = port.last_tx.map_or(now, |last| now.max(last + FAST_INTERVAL));
                (port.tx_fast, port.next_tx) = (TX_FAST_INIT, earliest.min(port.next_tx));
                self.next = self.next.min(port.next_tx);
            }
            port.neighbour = Some(new);
        }
        self.changes += port.publish_change(now);
        Ok(())
    }

    /// Returns the neighbour at the port with this index.
    pub(super) fn neighbour(&self, index: usize) -> Option<NeighbourView> {
        let port = self.ports.get(index)?;
        let view = port.neighbour.as_ref()?.view.clone();
        Some(NeighbourView {
            several: port.second_expiry != 0,
            ..view
        })
    }
}

fn view(lldpdu: &Lldpdu<'_>) -> NeighbourView {
    let chassis = id_text(lldpdu.chassis, chassis::MAC);
    NeighbourView {
        system: lldpdu
            .system_name
            .filter(|text| !text.is_empty())
            .map_or_else(|| chassis.clone(), text),
        port: id_text(lldpdu.port, port::MAC),
        chassis,
        description: lldpdu.port_description.filter(|text| !text.is_empty()).map(text),
        ttl: lldpdu.ttl,
        several: false,
    }
}

/// Formats an identifier as a MAC address, a name, or hexadecimal digits.
fn id_text(id: Id<'_>, mac: u8) -> String {
    let is_name = id
        .bytes
        .iter()
        .all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if is_name && id.subtype != mac {
        return text(id.bytes);
    }
    id.bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(":")
}

/// Decodes text from the network, replacing control characters.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(name: &str, node: u32) -> (Lldp, Vec<PortSettings>) {
        let port = |number: u16| PortSettings {
            number,
            interface: format!("{name}p{number}"),
            ..PortSettings::default()
        };
        let ports = vec![port(1), port(2)];
        let settings = SwitchSettings {
            node,
            name: Some(name.to_owned()),
            ports: ports.clone(),
            ..SwitchSettings::default()
        };
        (Lldp::new(&settings).unwrap(), ports)
    }

    /// What it sends until `end`: seconds, port and frame.
    fn sent(
        lldp: &mut Lldp,
        ports: &[PortSettings],
        times: std::ops::Range<u64>,
    ) -> Vec<(u64, usize, Vec<u8>)> {
        let mut frames = Vec::new();
        for second in times {
            lldp.poll(second * SECOND, ports, &|_| true, &mut |index, frame| {
                frames.push((second, index, frame.to_vec()));
            });
        }
        frames
    }

    #[test]
    fn announcements_are_fast_at_first() {
        let (mut lldp, ports) = switch("s1", 11);
        let frames = sent(&mut lldp, &ports, 0..100);
        let times: Vec<u64> = frames
            .iter()
            .filter(|(_, index, _)| *index == 0)
            .map(|(second, _, _)| *second)
            .collect();
        assert_eq!(times, [0, 1, 2, 3, 4, 34, 64, 94]);
        let frame = &frames[0].2;
        assert!(is_lldp(frame) && frame.len() == MIN_FRAME);
        assert_eq!(frame[6..12], dataplane::router::Port::mac_for(11, 1));
        let seen = view(&Lldpdu::parse(&frame[14..]).unwrap());
        let expected = NeighbourView {
            system: "s1".to_owned(),
            port: "s1p1".to_owned(),
            chassis: "02:68:00:00:0b:00".to_owned(),
            description: Some("port 1".to_owned()),
            ttl: 121,
            several: false,
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_neighbour_lives_as_long_as_it_says() {
        let ((mut one, ports), (mut other, others)) = (switch("s1", 11), switch("s2", 12));
        sent(&mut one, &ports, 0..50);
        let frame = sent(&mut other, &others, 0..1).remove(0).2;
        one.receive(50 * SECOND, 1, &frame).unwrap();
        let seen = one.neighbour(1).unwrap();
        assert_eq!(
            (seen.system.as_str(), seen.port.as_str(), one.changes()),
            ("s2", "s2p1", 1)
        );
        // It learns of its neighbour without delay.
        let at_once = sent(&mut one, &ports, 50..51);
        assert!(at_once.iter().any(|(_, index, _)| *index == 1), "{at_once:?}");
        one.receive(60 * SECOND, 1, &frame).unwrap();
        assert_eq!(one.changes(), 1, "the same again is no change");
        sent(&mut one, &ports, 60..181);
        assert!(one.neighbour(1).is_some());
        sent(&mut one, &ports, 181..183);
        assert_eq!((one.neighbour(1), one.changes()), (None, 2));
    }

    #[test]
    fn a_port_that_goes_away_says_so() {
        let ((mut one, ports), (mut other, others)) = (switch("s1", 11), switch("s2", 12));
        let (frame, mut last) = (sent(&mut other, &others, 0..1).remove(0).2, Vec::new());
        one.receive(0, 0, &frame).unwrap();
        assert_eq!(one.neighbour(0).unwrap().system, "s2");
        other.close(&others, &mut |_, frame| last.push(frame.to_vec()));
        one.receive(SECOND, 0, &last[0]).unwrap();
        assert_eq!((one.neighbour(0), one.changes()), (None, 2));
        // So does a port whose interface fails.
        one.receive(2 * SECOND, 0, &frame).unwrap();
        one.poll(10 * SECOND, &ports, &|_| false, &mut |index, _| {
            panic!("port {index} sends")
        });
        assert_eq!(one.neighbour(0), None);
    }

    #[test]
    fn a_neighbour_that_comes_and_goes_is_told_once_a_second() {
        let ((mut one, ports), (mut other, others)) = (switch("s1", 11), switch("s2", 12));
        let (here, mut gone) = (sent(&mut other, &others, 0..1).remove(0).2, Vec::new());
        other.close(&others, &mut |_, frame| gone.push(frame.to_vec()));
        sent(&mut one, &ports, 0..10);
        let (mut announced, begin) = (0, 10 * SECOND);
        for step in 0..1000 {
            let now = begin + step * SECOND / 100;
            one.receive(now, 0, if step % 2 == 0 { &here } else { &gone[0] })
                .unwrap();
            one.poll(now, &ports, &|_| true, &mut |index, _| {
                announced += u64::from(index == 0)
            });
        }
        assert!(
            (8..=10).contains(&one.changes()) && announced <= 10,
            "{} {announced}",
            one.changes()
        );
        // The last state is told in the end.
        let before = one.changes();
        one.receive(begin + 11 * SECOND, 0, &here).unwrap();
        one.receive(begin + 11 * SECOND + 1, 0, &gone[0]).unwrap();
        sent(&mut one, &ports, 21..24);
        assert_eq!((one.neighbour(0), one.changes()), (None, before + 2));
    }

    #[test]
    fn a_second_system_makes_the_neighbour_doubtful() {
        let (mut one, ports) = switch("s1", 11);
        let frame = |name, node| {
            let (mut lldp, ports) = switch(name, node);
            sent(&mut lldp, &ports, 0..1).remove(0).2
        };
        one.receive(0, 0, &frame("s2", 12)).unwrap();
        one.receive(SECOND, 0, &frame("s3", 13)).unwrap();
        let seen = one.neighbour(0).unwrap();
        assert_eq!(
            (seen.system.as_str(), seen.several, one.changes()),
            ("s2", true, 2)
        );
        // The first one is silent: it expires, then the other one.
        sent(&mut one, &ports, 121..122);
        assert_eq!(one.neighbour(0), None);
        sent(&mut one, &ports, 123..124);
        one.receive(124 * SECOND, 0, &frame("s3", 13)).unwrap();
        assert_eq!(
            one.neighbour(0).map(|seen| (seen.system, seen.several)),
            Some(("s3".to_owned(), false))
        );
    }

    #[test]
    fn what_is_malformed_is_refused_and_texts_are_harmless() {
        let (mut one, _) = switch("s1", 11);
        let frame = sent(&mut switch("s2", 12).0, &switch("s2", 12).1, 0..1)
            .remove(0)
            .2;
        assert_eq!(one.receive(0, 0, &frame[..30]), Err(Refusal::Truncated));
        assert_eq!((one.neighbour(0), one.changes()), (None, 0));
        let lldpdu = Lldpdu {
            chassis: Id {
                subtype: chassis::LOCAL,
                bytes: b"\x00\xff",
            },
            port: Id {
                subtype: port::LOCAL,
                bytes: b"7",
            },
            ttl: 1,
            port_description: Some(b""),
            system_name: Some(b"a\x1b[2J\xff"),
        };
        let seen = view(&lldpdu);
        assert_eq!((seen.chassis.as_str(), seen.port.as_str()), ("00:ff", "7"));
        assert_eq!(
            (seen.system.as_str(), seen.description),
            ("a\u{fffd}[2J\u{fffd}", None)
        );
    }
}
