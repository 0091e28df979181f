//! Our RoCEv2 against the Linux kernel's (soft-RoCE, `rdma_rxe`, in a small virtual machine): frames of our writer at its responder,
//! valid and invalid; the translator's links at its responder; its requester at the collector's responder. The kernel's behaviour is the reference.
#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

mod ends;
mod guest;

use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use guest::Guest;
use wire::roce::{
    Aeth, AtomicEth, Head, Nak, Opcode, Packet, Path, Psn, Reth, Segments, Syndrome, Transport, Writer,
};

/// Long enough for an answer on a busy machine. To check that there is none, the tests wait much shorter.
const TIMEOUT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_millis(300);
const PMTU: u16 = 1024;

#[test]
fn the_kernels_roce_and_ours_understand_each_other() {
    let mut guest = match Guest::boot() {
        Ok(guest) => guest,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED RoCEv2 against the kernel's: {why}");
            return;
        }
    };
    for version in [4, 6] {
        unreliable_writes(&mut guest, version);
        reliable_requests(&mut guest, version);
    }
    refusals(&mut guest);
    ends::our_links_fill_the_kernels_memory(&mut guest);
    ends::the_kernel_fills_our_memory(&mut guest, Transport::Rc);
    ends::the_kernel_fills_our_memory(&mut guest, Transport::Uc);
    ends::the_kernel_is_refused(&mut guest);
}

fn path(version: u8) -> Path {
    let (ours, theirs): (IpAddr, IpAddr) = match version {
        4 => ([10, 88, 0, 1].into(), [10, 88, 0, 2].into()),
        _ => ("fd88::1".parse().unwrap(), "fd88::2".parse().unwrap()),
    };
    let mut path = Path::new(ours, theirs, 0xd123);
    (path.source_mac, path.destination_mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    path
}

/// A queue pair of the guest, connected to number 17 of ours, and a writer to it.
fn connected(guest: &mut Guest, transport: Transport, version: u8) -> (u64, Writer) {
    let kind = if transport == Transport::Rc { "rc" } else { "uc" };
    let [index, number] = guest.numbers(&format!("qp {kind}"))[..] else {
        panic!("a new queue pair")
    };
    guest.ask(&format!("connect {index} 17 0 0 {PMTU} {version}"));
    (
        index,
        Writer::new(path(version), transport, number as u32).unwrap(),
    )
}

struct Bench<'a> {
    guest: &'a mut Guest,
    writer: Writer,
    buffer: Vec<u8>,
}

impl Bench<'_> {
    fn reth(&self, at: u64, len: usize) -> Reth {
        Reth {
            address: self.guest.address + at,
            rkey: self.guest.rkey,
            len: len as u32,
        }
    }

    fn send(&mut self, make: impl FnOnce(&mut Writer, &mut [u8]) -> usize) {
        let len = make(&mut self.writer, &mut self.buffer);
        self.guest.send(&self.buffer[..len]);
    }

    fn write(&mut self, psn: u32, at: u64, data: &[u8]) {
        let (reth, head) = (
            self.reth(at, data.len()),
            Head {
                ack_request: true,
                ..Head::new(Psn::new(psn))
            },
        );
        self.send(|writer, out| writer.write_only(out, head, reth, data).unwrap());
    }

    fn memory(&mut self, at: usize, len: usize) -> Vec<u8> {
        self.guest.memory(at, len)
    }

    /// The next acknowledgement and its PSN.
    fn answer(&mut self) -> (u32, Aeth, Option<u64>) {
        let frame = self.guest.receive(TIMEOUT).expect("the kernel answers");
        let packet = Packet::parse(&frame).expect("the kernel's packets are good, its CRC too");
        assert_eq!((packet.fault, packet.bth.queue_pair), (None, 17), "{packet:?}");
        (
            packet.bth.psn.value(),
            packet.aeth.expect("an acknowledgement"),
            packet.atomic_ack,
        )
    }

    fn acknowledges(&mut self, psn: u32) {
        let (number, aeth, _) = self.answer();
        assert!(
            number == psn && matches!(aeth.syndrome, Syndrome::Ack(_)),
            "{number} {aeth:?}"
        );
    }

    fn refuses(&mut self, psn: u32, nak: Nak) {
        let (number, aeth, _) = self.answer();
        assert_eq!((number, aeth.syndrome), (psn, Syndrome::Nak(nak)));
    }

    fn stays_silent(&mut self) {
        assert_eq!(self.guest.receive(SILENCE), None);
    }
}

fn unreliable_writes(guest: &mut Guest, version: u8) {
    let (index, writer) = connected(guest, Transport::Uc, version);
    guest.ask("fill 0 8192 0");
    guest.ask(&format!("receive {index} 4"));
    let mut bench = Bench {
        guest,
        writer,
        buffer: vec![0; 9000],
    };
    bench.write(0, 0, &[0x11; 8]);
    // A bad CRC: dropped.
    let reth = bench.reth(8, 8);
    bench.send(|writer, out| {
        let len = writer
            .write_only(out, Head::new(Psn::new(1)), reth, &[0x22; 8])
            .unwrap();
        out[len - 1] ^= 1;
        len
    });
    // PSNs may jump ahead; a length that needs padding.
    bench.write(1000, 16, &[0x33; 8]);
    bench.write(1001, 24, b"abcde");
    // Writes outside the region or with a wrong key are not executed, and the connection continues.
    bench.write(1002, bench.guest.length, &[0x44; 8]);
    let wrong = Reth {
        rkey: bench.guest.rkey ^ 0x100,
        ..bench.reth(32, 8)
    };
    bench.send(|writer, out| {
        writer
            .write_only(out, Head::new(Psn::new(1003)), wrong, &[0x55; 8])
            .unwrap()
    });
    // In several packets.
    let long: Vec<u8> = (0..2500).map(|at| (at % 251) as u8).collect();
    let reth = bench.reth(4096, long.len());
    for (at, segment) in Segments::new(long.len(), PMTU).enumerate() {
        let head = Head::new(Psn::new(1004 + at as u32));
        let part = &long[segment.at..segment.at + segment.len];
        bench.send(|writer, out| {
            let made = match segment.opcode {
                Opcode::WriteFirst => writer.write_first(out, head, reth, part),
                Opcode::WriteMiddle => writer.write_middle(out, head, part),
                _ => writer.write_last_immediate(out, head, 0xbeef, part),
            };
            made.unwrap()
        });
    }
    let reth = bench.reth(40, 4);
    bench.send(|writer, out| {
        writer
            .write_only_immediate(out, Head::new(Psn::new(1007)), reth, 0xcafe, &[0x66; 4])
            .unwrap()
    });
    bench.send(|writer, out| writer.send(out, Head::new(Psn::new(1008)), b"hello").unwrap());
    let expected = {
        let mut expected = vec![0; 48];
        expected[..8].fill(0x11);
        expected[16..24].fill(0x33);
        expected[24..29].copy_from_slice(b"abcde");
        expected[40..44].fill(0x66);
        expected
    };
    let received = wait_for(&mut bench, 3);
    assert_eq!(bench.memory(0, 48), expected, "over IPv{version}");
    assert_eq!(bench.memory(4096, long.len()), long, "over IPv{version}");
    let queue_pair = bench.writer.queue_pair();
    // Opcode 129 is "received by write with immediate", 128 "received".
    let expected = [(129, 0xbeef, 2500), (129, 0xcafe, 4), (128, 0, 5)];
    let expected: Vec<_> = expected
        .iter()
        .map(|(op, imm, len)| format!("{queue_pair}:0:{op}:{imm:x}:{len}"))
        .collect();
    assert_eq!(received, expected);
}

/// Waits until the guest has received this many messages, and returns them.
fn wait_for(bench: &mut Bench<'_>, count: usize) -> Vec<String> {
    let mut received = Vec::new();
    for _ in 0..1000 {
        let answer = bench.guest.ask("poll");
        received.extend(
            answer
                .split(' ')
                .filter(|word| !word.is_empty())
                .map(str::to_owned),
        );
        if received.len() >= count {
            break;
        }
    }
    received
}

fn reliable_requests(guest: &mut Guest, version: u8) {
    let (index, writer) = connected(guest, Transport::Rc, version);
    guest.ask("fill 0 8192 0");
    let mut bench = Bench {
        guest,
        writer,
        buffer: vec![0; 9000],
    };
    bench.write(0, 0, &[0x11; 8]);
    bench.acknowledges(0);
    let atomic = AtomicEth {
        address: bench.guest.address + 256,
        rkey: bench.guest.rkey,
        add: 5,
        compare: 0,
    };
    for (psn, original) in [(1, 0), (2, 5)] {
        bench.send(|writer, out| writer.fetch_add(out, Head::new(Psn::new(psn)), atomic).unwrap());
        let (number, aeth, before) = bench.answer();
        assert_eq!((number, before), (psn, Some(original)));
        assert_eq!((aeth.syndrome, aeth.msn), (Syndrome::Ack(31), psn + 1));
    }
    // An atomic operation that is sent twice is executed once and answered twice.
    bench.send(|writer, out| writer.fetch_add(out, Head::new(Psn::new(2)), atomic).unwrap());
    assert_eq!(bench.answer().2, Some(5));
    // A gap: one NAK with the missing PSN; then it continues. A duplicate is acknowledged and not executed.
    bench.write(9, 8, &[0x22; 8]);
    bench.refuses(3, Nak::SequenceError);
    bench.write(3, 16, &[0x33; 8]);
    bench.acknowledges(3);
    bench.write(3, 24, &[0x44; 8]);
    bench.acknowledges(3);
    // The receive queue is empty.
    let reth = bench.reth(32, 4);
    let head = Head {
        ack_request: true,
        ..Head::new(Psn::new(4))
    };
    bench.send(|writer, out| {
        writer
            .write_only_immediate(out, head, reth, 7, &[0x55; 4])
            .unwrap()
    });
    let (number, aeth, _) = bench.answer();
    assert!(
        number == 4 && matches!(aeth.syndrome, Syndrome::Rnr(12)),
        "{number} {aeth:?}"
    );
    bench.guest.ask(&format!("receive {index} 1"));
    bench.send(|writer, out| {
        writer
            .write_only_immediate(out, head, reth, 7, &[0x55; 4])
            .unwrap()
    });
    bench.acknowledges(4);
    assert_eq!(
        wait_for(&mut bench, 1),
        [format!("{}:0:129:7:4", bench.writer.queue_pair())]
    );
    let expected = {
        let mut expected = vec![0; 40];
        expected[..8].fill(0x11);
        expected[16..24].fill(0x33);
        expected[32..36].fill(0x55);
        expected
    };
    assert_eq!(bench.memory(0, 40), expected, "over IPv{version}");
    assert_eq!(bench.memory(256, 8), 10_u64.to_le_bytes(), "over IPv{version}");
}

/// Requests that break a reliable connection, each on a connection of its own.
fn refusals(guest: &mut Guest) {
    guest.ask("fill 0 4096 0");
    type Corrupt = fn(&mut Reth, u64);
    let cases: [(&str, Corrupt); 3] = [
        ("a wrong rkey", |reth, _| reth.rkey ^= 0x100),
        ("behind the end", |reth, end| reth.address = end),
        ("over the end", |reth, end| reth.address = end - 4),
    ];
    for (what, corrupt) in cases {
        let (index, writer) = connected(guest, Transport::Rc, 4);
        let mut bench = Bench {
            guest,
            writer,
            buffer: vec![0; 9000],
        };
        let mut reth = bench.reth(0, 8);
        corrupt(&mut reth, bench.guest.address + bench.guest.length);
        let head = Head {
            ack_request: true,
            ..Head::new(Psn::new(0))
        };
        bench.send(|writer, out| writer.write_only(out, head, reth, &[0x77; 8]).unwrap());
        bench.refuses(0, Nak::RemoteAccess);
        // 6: the error state. Further requests are not answered.
        assert_eq!(bench.guest.numbers(&format!("state {index}"))[0], 6, "{what}");
        bench.write(1, 0, &[0x77; 8]);
        bench.stays_silent();
    }
    let (_, writer) = connected(guest, Transport::Rc, 4);
    let mut bench = Bench {
        guest,
        writer,
        buffer: vec![0; 9000],
    };
    let atomic = AtomicEth {
        address: bench.guest.address + 3,
        rkey: bench.guest.rkey,
        add: 1,
        compare: 0,
    };
    bench.send(|writer, out| writer.fetch_add(out, Head::new(Psn::new(0)), atomic).unwrap());
    bench.refuses(0, Nak::InvalidRequest);
    assert_eq!(bench.memory(0, 16), [0; 16]);
}
