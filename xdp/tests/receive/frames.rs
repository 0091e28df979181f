//! Frames as switches send them, byte by byte.

use std::net::IpAddr;

use nic::netns::Pair;

/// The telemetry port of these tests.
pub(crate) const PORT: u16 = 32766;
/// The source port of all datagrams.
pub(crate) const SOURCE: u16 = 12345;

/// An Ethernet header to the far side with these VLAN tags, then `packet`.
pub(crate) fn ethernet(tags: &[u16], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for tpid in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend([0, 5]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

pub(crate) fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    [
        &SOURCE.to_be_bytes()[..],
        &port.to_be_bytes(),
        &len.to_be_bytes(),
        &[0, 0],
        payload,
    ]
    .concat()
}

/// An IPv4 header with this many bytes of options (a multiple of four), this fragment field and protocol.
pub(crate) fn ipv4(options: usize, fragment: u16, protocol: u8, body: &[u8]) -> Vec<u8> {
    let len = (20 + options + body.len()) as u16;
    let mut packet = vec![0x45 + (options / 4) as u8, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 1]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(addresses(4));
    // No-operation options.
    packet.extend(vec![1; options]);
    let sum: u32 = packet
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(body);
    packet
}

pub(crate) fn ipv6(next: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(addresses(16));
    packet.extend(body);
    packet
}

/// An IPv6 extension header of eight bytes.
pub(crate) fn extension(next: u8, body: &[u8]) -> Vec<u8> {
    [&[next, 0, 1, 4, 0, 0, 0, 0][..], body].concat()
}

/// A fragment header: offset in bytes, and whether more follow.
pub(crate) fn fragment(next: u8, offset: u16, more: bool, body: &[u8]) -> Vec<u8> {
    let [high, low] = (offset | u16::from(more)).to_be_bytes();
    [&[next, 0, high, low, 0, 0, 0, 1][..], body].concat()
}

/// A plain datagram to [`PORT`] in a frame of this length.
pub(crate) fn plain(bytes: usize) -> Vec<u8> {
    ethernet(&[], 0x0800, &ipv4(0, 0, 17, &udp(PORT, &vec![7; bytes - 42])))
}

/// The addresses of the near and the far side, in this order.
fn addresses(len: usize) -> Vec<u8> {
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    [Pair::NEAR, Pair::FAR]
        .into_iter()
        .flatten()
        .map(bytes)
        .filter(|bytes| bytes.len() == len)
        .flatten()
        .collect()
}
