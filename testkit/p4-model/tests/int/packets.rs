//! Random packets, and what a router makes of them.

use testkit::rng::Rng;

/// A packet without INT.
pub(crate) fn packet(rng: &mut Rng) -> Vec<u8> {
    let udp = rng.below(2) == 0;
    let payload = [0, 1, 3, 7, 8, 9, 40, 200, rng.below(40)][rng.below(9)];
    let l4 = if udp { 8 } else { 20 };
    let body: Vec<u8> = (0..payload).map(|_| rng.roll() as u8).collect();
    let dscp = [0, 10, 0x17, 63][if rng.below(10) == 0 {
        2
    } else {
        [0, 1, 3][rng.below(3)]
    }] << 2;
    let (src_port, dst_port) = (rng.roll() as u16, rng.roll() as u16);
    let mut segment = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
    if udp {
        segment.extend_from_slice(&((l4 + payload) as u16).to_be_bytes());
        segment.extend_from_slice(&[0, 0]);
    } else {
        segment.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    }
    segment.extend_from_slice(&body);
    let proto = if udp { 17 } else { 6 };
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
    for _ in 0..if rng.below(5) == 0 { 1 + rng.below(4) } else { 0 } {
        frame.extend_from_slice(&[0x81, 0, 0, rng.roll() as u8]);
    }
    let ttl = [64, 2, 1, 255][rng.below(8).min(3)];
    let total = segment.len();
    let addresses: Vec<u8>;
    if rng.below(3) == 0 {
        frame.extend_from_slice(&[0x86, 0xdd, 0x60 | dscp >> 4, dscp << 4, 0, 0]);
        frame.extend_from_slice(&(total as u16).to_be_bytes());
        frame.extend_from_slice(&[proto, ttl]);
        addresses = (0..32).map(|_| rng.roll() as u8).collect();
    } else {
        let mut head = vec![0x45, dscp, 0, 0, 0, 7, 0x40, 0, ttl, proto, 0, 0];
        head[2..4].copy_from_slice(&(20 + total as u16).to_be_bytes());
        addresses = (0..8).map(|_| rng.roll() as u8).collect();
        let sum = wire::checksum::of(&[&head[..], &addresses].concat());
        head[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend_from_slice(&[8, 0]);
        frame.extend_from_slice(&head);
    }
    let sum = match rng.below(4) {
        0 => [0, 0],
        1 => [0xff, 0xff],
        _ if udp => wire::checksum::udp(&addresses, &segment).to_be_bytes(),
        _ => wire::checksum::transport(&addresses, proto, &segment).to_be_bytes(),
    };
    let at = if udp { 6 } else { 16 };
    segment[at..at + 2].copy_from_slice(&sum);
    frame.extend_from_slice(&addresses);
    frame.extend_from_slice(&segment);
    // Ethernet pads short frames.
    let padding = if rng.below(2) == 0 {
        60_usize.saturating_sub(frame.len())
    } else {
        0
    };
    frame.resize(frame.len() + padding, 0);
    frame
}

/// A packet with INT as a host may forge it: sometimes with the mark as the DSCP that a sink restores, before a payload or before INT
/// again.
pub(crate) fn forge(rng: &mut Rng, frame: &mut Vec<u8>) {
    let Ok(contents) = wire::packet::contents(frame, &wire::Profile::default()) else {
        return;
    };
    let is_udp = contents.flow.is_some_and(|flow| flow.proto() == 17);
    let Some(location) = contents.location.filter(|_| rng.below(3) == 0) else {
        return;
    };
    if rng.below(2) == 0 {
        let int = frame[location.start..location.end].to_vec();
        let len = int.len() as u16;
        frame.splice(location.start..location.start, int);
        let longer = |at: usize, frame: &mut [u8]| {
            let bytes = u16::from_be_bytes([frame[at], frame[at + 1]]).wrapping_add(len);
            frame[at..at + 2].copy_from_slice(&bytes.to_be_bytes());
        };
        let v6 = frame[location.ip] >> 4 == 6;
        longer(location.ip + if v6 { 4 } else { 2 }, frame);
        if is_udp {
            longer(location.l4 + 4, frame);
        }
        if !v6 {
            let header = &mut frame[location.ip..location.l4];
            header[10..12].fill(0);
            let sum = wire::checksum::of(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
    if let Some(dscp) = frame.get_mut(location.start + 3) {
        *dscp = 0x17 << 2;
    }
}

/// What a router does with a packet.
#[derive(Debug)]
pub(crate) enum Routed {
    /// It sends it on, with another hop limit and other addresses.
    To(Vec<u8>),
    /// It drops it, and reports that with this reason.
    Dropped(u8),
    /// It drops a malformed packet.
    Lost,
}

/// The offset of the IP header, and whether that is of IPv6, if it and its packet are whole.
fn ip(frame: &[u8]) -> Option<(usize, bool)> {
    let mut at = 14;
    let mut kind = frame.get(12..14)?;
    for _ in 0..4 {
        if [[0x81, 0], [0x88, 0xa8], [0x91, 0]].iter().any(|tag| kind == tag) {
            kind = frame.get(at + 2..at + 4)?;
            at += 4;
        }
    }
    let ip = frame.get(at..)?;
    match (kind, ip.first().map(|first| first >> 4)) {
        ([0x08, 0x00], Some(4)) => {
            let len = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
            let head = usize::from(ip[0] & 15) * 4;
            let whole = head >= 20 && len >= head && len <= ip.len();
            // BMv2 compares checksums, for which all-ones, the other form of zero, is wrong.
            let correct = whole && ip[10..12] != [0xff; 2] && wire::checksum::of(&ip[..head]) == 0;
            correct.then_some((at, false))
        }
        ([0x86, 0xdd], Some(6)) => {
            let len = usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?])) + 40;
            (len <= ip.len()).then_some((at, true))
        }
        _ => None,
    }
}

/// Sets the length of an IPv6 packet to 0, as segmentation offload leaves it. False: it is of IPv4.
pub(crate) fn without_length(frame: &mut [u8]) -> bool {
    let Some((at, true)) = ip(frame) else { return false };
    frame[at + 4..at + 6].fill(0);
    true
}

/// Whether a packet has a whole header of UDP or TCP. The program reports no queue and no drop of others; the switch in Rust does, with
/// their first 64 bytes.
pub(crate) fn has_l4(frame: &[u8]) -> bool {
    let Some((at, v6)) = ip(frame) else { return true };
    let packet = &frame[at..];
    let (proto, head, end) = if v6 {
        (
            packet[6],
            40,
            usize::from(u16::from_be_bytes([packet[4], packet[5]])) + 40,
        )
    } else {
        let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
        let end = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        (
            if fragment { 0 } else { packet[9] },
            usize::from(packet[0] & 15) * 4,
            end,
        )
    };
    let l4 = packet.get(head..end).unwrap_or_default();
    match proto {
        17 => wire::udp::Packet::new_checked(l4).is_ok(),
        6 => l4.len() >= 20 && wire::tcp::Packet::new_checked(l4).is_ok(),
        _ => false,
    }
}

/// What a router does that has a route only to addresses whose first bit is 0, or to all.
pub(crate) fn routed(frame: &[u8], routes_half: bool) -> Routed {
    let Some((at, v6)) = ip(frame) else {
        return Routed::Lost;
    };
    let mut frame = frame.to_vec();
    let ip = &mut frame[at..];
    let (hops, dst) = if v6 { (7, 24) } else { (8, 16) };
    if ip[hops] < 2 {
        return Routed::Dropped(26);
    }
    if routes_half && ip[dst] & 0x80 != 0 {
        return Routed::Dropped(29);
    }
    ip[hops] -= 1;
    if !v6 {
        let sum = u32::from(u16::from_be_bytes([ip[10], ip[11]])) + 0x100;
        let sum = (sum as u16).wrapping_add((sum >> 16) as u16);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 2, 2, 2, 0, 0, 0, 1, 1]);
    Routed::To(frame)
}

/// What the program leaves alone and the switch in Rust reads: SF-INT, records with words of a domain, INT 1.0 with
/// ONOS' and GÉANT's lengths, destination headers, tunnels, IPv6 options, and
/// malformed TCP.
pub(crate) fn is_beyond(frame: &[u8]) -> bool {
    use wire::int::{Mode, Version, layout};
    use wire::packet::{Encapsulation, Location, Mark};
    let profile = wire::Profile::default();
    let Ok(contents) = wire::packet::contents(frame, &profile) else {
        return is_refused_elsewhere(frame);
    };
    let Some(int) = contents.int.filter(|_| contents.tunnel.is_none()) else {
        return contents.destination || contents.tunnel.is_some();
    };
    let elsewhere = |location: &Location| {
        !matches!(location.encapsulation, Encapsulation::Udp | Encapsulation::Tcp)
            || location.mark != Mark::Dscp
    };
    let is_behind_options = ip(frame).is_some_and(|(at, v6)| v6 && !matches!(frame[at + 6], 6 | 17));
    if is_behind_options || contents.location.is_some_and(|location| elsewhere(&location)) {
        return true;
    }
    match (int.version, int.mode) {
        (Version::V10, Mode::Md) => {
            let header = contents.location.map_or(0, |location| location.header);
            frame.get(header).is_none_or(|first| first >> 4 == 0)
                || int.hop_ml != layout::words_10(int.bitmap)
        }
        (Version::V2, Mode::Mx) => false,
        (Version::V2, Mode::Md) => int.sf.is_some() || int.hop_ml != layout::words_2(int.bitmap),
        _ => true,
    }
}

/// Whether what the switch in Rust refuses lies behind another header than UDP or TCP, or in a tunnel.
pub(crate) fn is_refused_elsewhere(frame: &[u8]) -> bool {
    let Some((at, v6)) = ip(frame) else { return false };
    let (proto, head) = if v6 {
        (6, 40)
    } else {
        (9, usize::from(frame[at] & 15) * 4)
    };
    let port = frame.get(at + head + 2..at + head + 4).unwrap_or_default();
    let is_tunnel = [4789_u16, 4790, 6081]
        .iter()
        .any(|tunnel| tunnel.to_be_bytes() == *port);
    !matches!(frame[at + proto], 6 | 17) || frame[at + proto] == 17 && is_tunnel
}
