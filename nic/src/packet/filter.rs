//! The classic BPF program that selects telemetry datagrams before the kernel copies their frames.
//!
//! It is coarse where an exact test would be long: an IPv6 packet with two extension headers passes whatever follows them, and
//! all UDP passes if there are more ports than it can list. The reader of the ring checks the port again.

use libc::sock_filter;
use wire::ethernet::ethertype::TAGS;

/// VLAN tags skipped in a frame. The kernel or the NIC may have removed one more, the outermost.
const MAX_TAGS: u32 = 3;
/// Maximum number of ports listed, because a conditional jump spans at most 255 instructions.
const MAX_PORTS: usize = 32;
/// Number of accepted bytes of a frame: all of it.
const ALL: u32 = 0x4_0000;

/// Offset at which a load returns the frame's packet type (`SKF_AD_OFF + SKF_AD_PKTTYPE` of linux/filter.h).
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();
/// Packet type of frames that this machine sends.
const OUTGOING: u32 = libc::PACKET_OUTGOING as u32;

// Opcodes of classic BPF (linux/bpf_common.h): A is the accumulator, X the index register.
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_HALF_BEHIND_X: u16 = 0x48;
/// X = 4 * (byte & 15): the length of an IPv4 header.
const X_HEADER_LENGTH: u16 = 0xb1;
const SHIFT_LEFT: u16 = 0x64;
const X_FROM_A: u16 = 0x07;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const UDP: u32 = 17;
const FRAGMENT: u32 = 44;
/// Extension headers that may precede UDP and have a length in units of eight bytes: hop-by-hop options, routing, destination
/// options. Rarer ones are not supported.
const EXTENSIONS: [u32; 3] = [0, 43, 60];

/// A program that accepts nothing: a socket with it occupies its port, and its queue stays empty.
pub(super) const NOTHING: [sock_filter; 1] = [sock_filter {
    code: RETURN,
    jt: 0,
    jf: 0,
    k: 0,
}];

/// Returns a program that accepts received Ethernet frames that may contain a datagram to one of `ports`. Those that this machine
/// sends are rejected: they are no reports to it, and on a loopback interface each arrives as a received frame as well.
pub(super) fn telemetry(ports: &[u16]) -> Vec<sock_filter> {
    let named = if ports.len() <= MAX_PORTS { ports } else { &[] };
    let mut program = Program::default();
    program.push(LOAD_BYTE, PACKET_TYPE);
    program.test(IF_EQUAL, OUTGOING, Label::Next, Label::Level(0));
    program.push(RETURN, 0);
    for tags in 0..=MAX_TAGS {
        program.level(tags);
        program.ipv4(tags);
        program.ipv6(tags);
    }
    program.bind(Label::Ports);
    for &port in named {
        program.test(IF_EQUAL, u32::from(port), Label::Accept, Label::Next);
    }
    let others = if ports.len() == named.len() {
        Label::Reject
    } else {
        Label::Accept
    };
    program.test(IF_ANY_BIT, u32::MAX, others, Label::Reject);
    program.bind(Label::Accept);
    program.push(RETURN, ALL);
    program.bind(Label::Reject);
    program.push(RETURN, 0);
    program.resolve()
}

/// A jump target. Those with a number exist once per number of preceding tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Label {
    Next,
    Level(u32),
    Ipv4(u32),
    Ipv6(u32),
    Extension(u32),
    Fragment(u32),
    /// Test of the destination port, which is in A.
    Ports,
    Accept,
    Reject,
}

/// A program whose jump targets are not resolved yet.
#[derive(Default)]
struct Program {
    /// Opcode, operand `k`, and jump targets if a test is true or false.
    instructions: Vec<(u16, u32, Label, Label)>,
    /// Labels, and the index of the instruction that each marks.
    labels: Vec<(Label, usize)>,
}

impl Program {
    fn bind(&mut self, label: Label) {
        self.labels.push((label, self.instructions.len()));
    }

    fn push(&mut self, code: u16, k: u32) {
        self.test(code, k, Label::Next, Label::Next);
    }

    fn test(&mut self, code: u16, k: u32, yes: Label, no: Label) {
        self.instructions.push((code, k, yes, no));
    }

    /// Branches on the EtherType after `tags` tags.
    fn level(&mut self, tags: u32) {
        self.bind(Label::Level(tags));
        self.push(LOAD_HALF, 12 + 4 * tags);
        self.test(IF_EQUAL, IPV4, Label::Ipv4(tags), Label::Next);
        self.test(IF_EQUAL, IPV6, Label::Ipv6(tags), Label::Next);
        let deeper = if tags < MAX_TAGS {
            Label::Level(tags + 1)
        } else {
            Label::Reject
        };
        let [.., last] = TAGS;
        for tpid in TAGS {
            self.test(
                IF_EQUAL,
                u32::from(tpid),
                deeper,
                if tpid == last { Label::Reject } else { Label::Next },
            );
        }
    }

    fn ipv4(&mut self, tags: u32) {
        let at = 14 + 4 * tags;
        self.bind(Label::Ipv4(tags));
        self.push(LOAD_BYTE, at + 9);
        self.test(IF_EQUAL, UDP, Label::Next, Label::Reject);
        self.push(LOAD_HALF, at + 6);
        // A fragment after the first has no port.
        self.test(IF_ANY_BIT, 0x1fff, Label::Reject, Label::Next);
        self.push(X_HEADER_LENGTH, at);
        self.push(LOAD_HALF_BEHIND_X, at + 2);
        self.test(IF_ANY_BIT, u32::MAX, Label::Ports, Label::Reject);
    }

    fn ipv6(&mut self, tags: u32) {
        let at = 14 + 4 * tags;
        self.bind(Label::Ipv6(tags));
        self.push(LOAD_BYTE, at + 6);
        for next in EXTENSIONS {
            self.test(IF_EQUAL, next, Label::Extension(tags), Label::Next);
        }
        self.test(IF_EQUAL, FRAGMENT, Label::Fragment(tags), Label::Next);
        self.test(IF_EQUAL, UDP, Label::Next, Label::Reject);
        self.push(LOAD_HALF, at + 40 + 2);
        self.test(IF_ANY_BIT, u32::MAX, Label::Ports, Label::Reject);
        self.bind(Label::Extension(tags));
        self.push(LOAD_BYTE, at + 40 + 1);
        self.push(SHIFT_LEFT, 3);
        self.push(X_FROM_A, 0);
        self.push(LOAD_BYTE, at + 40);
        for next in EXTENSIONS {
            self.test(IF_EQUAL, next, Label::Accept, Label::Next);
        }
        self.test(IF_EQUAL, UDP, Label::Next, Label::Reject);
        self.push(LOAD_HALF_BEHIND_X, at + 40 + 8 + 2);
        self.test(IF_ANY_BIT, u32::MAX, Label::Ports, Label::Reject);
        // A fragment after the first has no port. The first is accepted, so that it is counted.
        self.bind(Label::Fragment(tags));
        self.push(LOAD_HALF, at + 40 + 2);
        self.test(IF_ANY_BIT, 0xfff8, Label::Reject, Label::Next);
        self.push(LOAD_BYTE, at + 40);
        self.test(IF_EQUAL, UDP, Label::Next, Label::Reject);
        self.push(LOAD_HALF, at + 40 + 8 + 2);
        self.test(IF_ANY_BIT, u32::MAX, Label::Ports, Label::Reject);
    }

    fn resolve(self) -> Vec<sock_filter> {
        let instructions = self.instructions.iter().enumerate();
        instructions
            .map(|(at, &(code, k, yes, no))| sock_filter {
                code,
                k,
                jt: self.distance(at, yes),
                jf: self.distance(at, no),
            })
            .collect()
    }

    /// Returns the number of instructions between the one at `from` and the label; 0 for [`Label::Next`].
    fn distance(&self, from: usize, label: Label) -> u8 {
        let target = self.labels.iter().find(|(known, _)| *known == label);
        // No jump goes back, or farther than 255 instructions; a test checks the longest program.
        target.map_or(0, |(_, at)| {
            u8::try_from(at.saturating_sub(from + 1)).unwrap_or(u8::MAX)
        })
    }
}
