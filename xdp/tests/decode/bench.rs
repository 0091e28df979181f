//! Cost of the decoder in the kernel: nanoseconds of one core per frame, by `BPF_PROG_TEST_RUN`.
//! `cargo bench -p hopwise-xdp`; takes about a second, needs the right to load BPF programs.
#![allow(clippy::unwrap_used, missing_docs, reason = "an interactive program")]

mod normal;
mod support;

use normal::Parsed;
use support::{Kernel, frame_of};
use wire::Profile;
use xdp::Units;

const HOPS: usize = 6;

/// Six records of `words` words.
fn stack(words: usize) -> Vec<u8> {
    (0..HOPS * words)
        .flat_map(|word| (word as u32 * 3 + 1).to_be_bytes())
        .collect()
}

/// Ethernet, IPv4, UDP, INT 1.0 marked by DSCP.
fn packet_10(bitmap: u16, words: u8) -> Vec<u8> {
    let stack = stack(words.into());
    let int = [&[0x10, 0, words, 8][..], &bitmap.to_be_bytes(), &[0, 0], &stack].concat();
    let shim = [1, 0, (int.len() / 4 + 1) as u8, 0];
    let total = (28 + shim.len() + int.len()) as u16;
    let [high, low] = total.to_be_bytes();
    let mut packet = vec![2; 12];
    packet.extend([
        8, 0, 0x45, 0x5c, high, low, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    packet.extend([0x9c, 0x40, 0x23, 0x28]);
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    [packet, shim.to_vec(), int].concat()
}

/// IPv6, UDP, INT-MD 2.x marked by DSCP.
fn packet_2(bitmap: u16, words: u8) -> Vec<u8> {
    let stack = stack(words.into());
    let int = [&[0x20, 0, words, 8][..], &bitmap.to_be_bytes(), &[0; 6], &stack].concat();
    let shim = [0x10, (int.len() / 4) as u8, 0, 0];
    let len = (8 + shim.len() + int.len()) as u16;
    let mut packet = vec![0x65, 0xc0, 0, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([17, 64]);
    packet.extend([0x20; 32]);
    packet.extend([0x9c, 0x40, 0x23, 0x28]);
    packet.extend(len.to_be_bytes());
    packet.extend([0, 0]);
    [packet, shim.to_vec(), int].concat()
}

fn report_10(packet: &[u8]) -> Vec<u8> {
    [
        &[0x14, 0, 0, 0x41, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 3, 0xe8][..],
        packet,
    ]
    .concat()
}

/// Reports of type 1 with queue and timestamps of the reporter's own; IPv6 inside.
fn report_20(packet: &[u8], count: usize) -> Vec<u8> {
    let mut body = vec![0x1c, 0, 0, 0, 0, 0, 0, 0];
    body.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 12]);
    body.extend(packet);
    body.resize(body.len().next_multiple_of(4), 0);
    let report = [&[0x15, (body.len() / 4) as u8, 5, 0x20][..], &body].concat();
    [&[0x20, 0, 0, 7, 0, 0, 0, 3][..], &report.repeat(count)].concat()
}

/// A datagram in VLAN and IPv6.
fn vlan_v6(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x81, 0, 0, 5, 0x86, 0xdd, 0x60, 0, 0, 0]);
    let len = (8 + payload.len()) as u16;
    frame.extend(len.to_be_bytes());
    frame.extend([17, 64]);
    frame.extend([0x20; 32]);
    frame.extend([0x40, 0, 0x7f, 0xfe]);
    frame.extend(len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn main() {
    const REPEAT: u32 = 200_000;
    const ROUNDS: usize = 5;
    let Some(mut kernel) = Kernel::new("bench") else {
        return;
    };
    kernel.read_as(&Profile::default(), &Units::default());
    let mut other_port = frame_of(&[0; 64]);
    other_port[36..38].copy_from_slice(&[0, 53]);
    let mut tcp = frame_of(&[0; 1400]);
    tcp[23] = 6;
    let cases = [
        ("TCP, 1.4 KB, passed", tcp),
        ("UDP to another port, passed", other_port),
        ("report 1.0, no INT", frame_of(&report_10(&packet_10(0, 0)[..42]))),
        (
            "report 1.0, 6 hops of a node id",
            frame_of(&report_10(&packet_10(0x8000, 1))),
        ),
        (
            "report 1.0, 6 hops of 8 items",
            frame_of(&report_10(&packet_10(0xff00, 9))),
        ),
        (
            "report 2.0, own and 6 hops of 5 items, IPv6",
            frame_of(&report_20(&packet_2(0xf100, 5), 1)),
        ),
        (
            "the same in VLAN and IPv6",
            vlan_v6(&report_20(&packet_2(0xf100, 5), 1)),
        ),
        (
            "four of them in a datagram",
            vlan_v6(&report_20(&packet_2(0xf100, 5), 4)),
        ),
        (
            "report 2.0, own and 6 hops of 8 items (wide)",
            vlan_v6(&report_20(&packet_2(0xff00, 11), 1)),
        ),
    ];
    for (what, frame) in cases {
        let outcome = kernel.decode(&frame);
        assert!(
            outcome
                .parsed
                .iter()
                .all(|parsed| matches!(parsed, Parsed::Report(_))),
            "{what}: {outcome:?}"
        );
        let best = (0..ROUNDS).map(|_| kernel.time(&frame, REPEAT)).min().unwrap();
        println!(
            "{best:>6} ns  {what} ({} bytes, {} reports)",
            frame.len(),
            outcome.count
        );
    }
}
