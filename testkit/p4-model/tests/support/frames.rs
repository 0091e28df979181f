//! Frames that tests of several programs send.

use std::net::Ipv4Addr;

/// A datagram of UDP over IPv4 without a UDP checksum, padded to the length of a frame.
pub(crate) fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0];
    let len = 28 + payload.len() as u16;
    let mut head = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 17, 0, 0];
    head[2..4].copy_from_slice(&len.to_be_bytes());
    head.extend_from_slice(&from.0.octets());
    head.extend_from_slice(&to.0.octets());
    let sum = wire::checksum::of(&head);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(&head);
    frame.extend_from_slice(&[from.1, to.1, len - 20, 0].map(u16::to_be_bytes).concat());
    frame.extend_from_slice(payload);
    let len = frame.len().max(60);
    frame.resize(len, 0);
    frame
}
