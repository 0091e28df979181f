//! Random flows with SF-INT or without, and which of their packets the program leaves alone although the switch in Rust reads them.

use testkit::rng::Rng;
use wire::packet::Encapsulation;

use crate::packets::packet;

const MARK: u8 = 0x17;
const INT: u8 = 0x3e;

/// Where the IP header is, and whether it is of IPv6.
fn ip(frame: &[u8]) -> Option<(usize, bool)> {
    let mut at = 12;
    for _ in 0..5 {
        match frame.get(at..at + 2)? {
            [0x08, 0x00] => return Some((at + 2, false)),
            [0x86, 0xdd] => return Some((at + 2, true)),
            [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00] => at += 4,
            _ => return None,
        }
    }
    None
}

/// The options of a hop-by-hop header: other ones, padding first, malformed ones, none but padding.
const OPTIONS: [&[u8]; 7] = [
    &[5, 2, 0, 0, 1, 0],
    &[0x1e, 4, 1, 2, 3, 4],
    &[0x1e, 1, 9, 0, 0, 0],
    &[5, 2, 0, 0, 0x1e, 8, 1, 2, 3, 4, 5, 6, 7, 8],
    &[1, 0, 5, 2, 0, 0],
    &[5, 9, 0, 0, 0, 0],
    &[
        0x1e, 0, 0x7e, 0, 0x9e, 0, 0xbe, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 0, 0, 0, 0,
    ],
];

fn insert_options(rng: &mut Rng, frame: &mut Vec<u8>, ip: usize) {
    let options = OPTIONS[rng.below(OPTIONS.len())];
    let head = [frame[ip + 6], (options.len() / 8) as u8];
    frame.splice(ip + 40..ip + 40, [&head[..], options].concat());
    let len = u16::from_be_bytes([frame[ip + 4], frame[ip + 5]]) + 2 + options.len() as u16;
    frame[ip + 4..ip + 6].copy_from_slice(&len.to_be_bytes());
    frame[ip + 6] = 0;
}

/// A packet of a flow that uses one of two registers of the first thousand.
pub(crate) fn flow(rng: &mut Rng) -> Vec<u8> {
    let wants_v6 = rng.below(2) == 0;
    let (mut frame, ip) = loop {
        let frame = packet(rng);
        if let Some((ip, v6)) = ip(&frame).filter(|(_, v6)| *v6 == wants_v6) {
            // Live long enough for the path.
            let hops = ip + if v6 { 7 } else { 8 };
            if frame[hops] > 8 {
                break (frame, ip);
            }
        }
    };
    let mut l4 = ip + if wants_v6 { 40 } else { 20 };
    if wants_v6 && rng.below(2) == 0 {
        let before = frame.len();
        insert_options(rng, &mut frame, ip);
        l4 += frame.len() - before;
    }
    for port in 1024..=u16::MAX {
        frame[l4..l4 + 2].copy_from_slice(&port.to_be_bytes());
        let contents = wire::packet::contents(&frame, &wire::Profile::default());
        let flow = contents.ok().and_then(|contents| contents.flow);
        if flow.is_none_or(|flow| flow.flow_id() & 1023 < 2) {
            break;
        }
    }
    frame
}

/// Changes fields of SF-INT, as another node may leave them.
fn forge(rng: &mut Rng, head: &mut [u8]) {
    const STATE: u8 = 0x60;
    match rng.below(9) {
        0..5 => head[1] = head[1] & !STATE | [0, 1, 1, 1, 2, 3][rng.below(6)] << 5,
        // Records of one word: a stack with several of them.
        5 => (head[2], head[4], head[5]) = (1, 0x80, 0),
        6 => head[1] ^= 0x80,
        7 => head[3] = rng.below(2) as u8,
        _ => head[0] ^= [2, 4, 8][rng.below(3)],
    }
}

/// Changes fields of INT, or some bytes of headers, or any.
pub(crate) fn distort(rng: &mut Rng, frame: &mut Vec<u8>) {
    let contents = wire::packet::contents(frame, &wire::Profile::default());
    let location = contents
        .ok()
        .and_then(|contents| contents.location)
        .filter(|_| rng.below(4) != 0);
    if let Some(location) = location {
        return forge(rng, &mut frame[location.header..location.stack]);
    }
    if rng.below(3) == 0 {
        return rng.corrupt(frame);
    }
    let Some((ip, v6)) = ip(frame) else { return };
    let start = ip + if v6 { 40 } else { 28 };
    for _ in 0..=rng.below(2) {
        let at = start + rng.below(28);
        if let Some(byte) = frame.get_mut(at) {
            *byte = match rng.below(3) {
                0 => *byte ^ 1 << rng.below(8),
                1 => byte.wrapping_add(1),
                _ => rng.roll() as u8,
            };
        }
    }
}

/// Options of a hop-by-hop header, by type and length, and whether they fill it.
fn options(header: &[u8]) -> (Vec<(u8, usize)>, bool) {
    let (mut at, mut found) = (2, Vec::new());
    while at < header.len() {
        let len = match header[at..] {
            [0, ..] => 1,
            [_, len, ..] => 2 + usize::from(len),
            _ => return (found, false),
        };
        if at + len > header.len() {
            return (found, false);
        }
        found.push((header[at], len));
        at += len;
    }
    (found, true)
}

/// Whether a hop-by-hop header is one that the program reads otherwise: INT that is not its first option, more options than it parses,
/// IOAM, or other headers behind it.
fn has_unusual_options(packet: &[u8]) -> bool {
    let Some([next, units, ..]) = packet.get(40..) else {
        return true;
    };
    let len = 8 + usize::from(*units) * 8;
    let payload = match u16::from_be_bytes([packet[4], packet[5]]) {
        // Then the rest of the frame is read.
        0 => packet.len() - 40,
        payload => usize::from(payload),
    };
    let Some(header) = packet.get(40..40 + len).filter(|_| len <= payload) else {
        return true;
    };
    let (found, is_whole) = options(header);
    let is_int = found.first().is_some_and(|(kind, _)| *kind == INT);
    let padding = match found.get(1) {
        Some((0 | 1, _)) if is_int => 1,
        _ => 0,
    };
    let others = &found[usize::from(is_int) + padding..];
    let many_zeros =
        is_int && found.get(1).is_some_and(|one| one.0 == 0) && others.first().is_some_and(|one| one.0 == 0);
    let announces_int = header.get(2) == Some(&INT);
    let is_other_int = is_int && header.get(4).is_some_and(|shim| matches!(shim >> 4, 1 | 3));
    is_other_int
        || others.len() + usize::from(!is_whole) > 4
        || many_zeros
        || others
            .iter()
            .any(|(kind, _)| matches!(kind, 0x31 | 0x11) || (*kind == INT && !is_int))
        || !is_whole && !announces_int && header.contains(&INT)
        || !matches!(next, 6 | 17 | 58 | 59 | 100..=130)
        || packet[0] << 2 & 0x3c | packet[1] >> 6 == MARK
}

/// Whether the mark announces INT of another kind than SF-INT, or what is not for this program.
fn has_other_int(frame: &[u8], (ip, v6): (usize, bool)) -> bool {
    let packet = &frame[ip..];
    let (dscp, proto, head) = if v6 {
        (packet[0] << 2 & 0x3c | packet[1] >> 6, packet[6], 40)
    } else {
        (packet[1] >> 2, packet[9], usize::from(packet[0] & 15) * 4)
    };
    let body = head + if proto == 17 { 8 } else { 20 };
    let announced = packet.get(body).is_some_and(|first| matches!(first >> 4, 0..=3));
    dscp == MARK && matches!(proto, 6 | 17) && announced
}

/// What the program leaves alone and the switch in Rust reads: other INT, tunnels, and unusual IPv6 options.
pub(crate) fn is_beyond(frame: &[u8]) -> bool {
    let Some((at, v6)) = ip(frame) else { return false };
    if frame.len() < at + 40 {
        return false;
    }
    if v6 && frame[at + 6] == 0 && has_unusual_options(&frame[at..]) {
        return true;
    }
    let is_chain = v6 && matches!(frame[at + 6], 43 | 44 | 51 | 60 | 135 | 139 | 140);
    if is_chain || has_other_int(frame, (at, v6)) {
        return true;
    }
    let Ok(contents) = wire::packet::contents(frame, &wire::Profile::default()) else {
        return crate::packets::is_refused_elsewhere(frame) && frame[at + if v6 { 6 } else { 9 }] != 0;
    };
    let elsewhere = contents.location.is_some_and(|location| {
        !matches!(
            location.encapsulation,
            Encapsulation::Udp | Encapsulation::Tcp | Encapsulation::HopByHop
        )
    });
    contents.tunnel.is_some() || elsewhere || contents.int.is_some_and(|int| int.sf.is_none())
}
