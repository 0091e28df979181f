//! UDP packets over IPv4 for benchmarks of a switch in process, and the metadata of their visit to the switch.

use dataplane::switch::Visit;
use wire::{ethernet, ipv4, udp};

/// Bytes of UDP payload.
const PAYLOAD: usize = 200;

/// Returns the visit of a packet between two inner interfaces at `now` (ns). The queue alternates from packet to packet.
pub fn visit(now: u64) -> Visit {
    Visit {
        ingress_if: 1,
        egress_if: 2,
        ingress_ts: now,
        egress_ts: now + 700,
        queue_id: 1,
        queue_occupancy: 100 + (now / 1000 % 2) as u32,
        tx_utilization: 5000,
        mtu: 1500,
        ..Visit::default()
    }
}

/// Returns a packet of a flow, without INT.
pub fn plain(flow: u16) -> Vec<u8> {
    udp(
        [2, 0, 0, 0, 0, 2],
        ([10, 0, 0, 1], 10_000 + flow),
        ([10, 0, 1, 1], 80),
        PAYLOAD,
    )
}

/// Returns a UDP packet with a payload of zeros. `src` and `dst` are pairs of address and port; `mac` is the destination's.
pub fn udp(mac: [u8; 6], src: ([u8; 4], u16), dst: ([u8; 4], u16), payload: usize) -> Vec<u8> {
    let len = (udp::HEADER_LEN + payload) as u16;
    let l4 = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let mut frame = vec![0; l4 + usize::from(len)];
    ethernet::Repr {
        dst: mac,
        src: [2, 0, 0, 0, 0, 1],
        ethertype: ethernet::ethertype::IPV4,
    }
    .emit(&mut frame);
    let total_len = len + ipv4::HEADER_LEN as u16;
    ipv4::Repr {
        src: src.0,
        dst: dst.0,
        proto: 17,
        tos: 0,
        total_len,
        ident: 0,
        fragment: 0,
        ttl: 64,
        options: &[],
    }
    .emit(&mut frame[ethernet::HEADER_LEN..]);
    udp::Repr {
        src_port: src.1,
        dst_port: dst.1,
        len,
        checksum: 0,
    }
    .emit(&mut frame[l4..]);
    frame
}
