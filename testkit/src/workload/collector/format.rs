//! Encodes the reports of a benchmark case in each combination of Telemetry Report and INT version.

use wire::int::header::{Md2, Md05, Md10, Mx2};
use wire::int::shim::{Next, Shim1, Shim2, Tail};
use wire::report::v20::{Group, GroupBuilder, Inner, MainRepr, Repr};
use wire::report::{v05, v10, v20};
use wire::{Dialect, Flags, Hop, Layout};

use super::{Case, OUTER, Packet};

/// Versions of the telemetry report and of INT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Report 1.0 around INT 1.0, as INTCollector's generator writes them.
    Report10,
    /// Report 2.0 around an IPv4 packet with INT-MD 2.1.
    Report20Md21,
    /// Report 2.0 around an IPv4 packet with INT 1.0.
    Report20Md10,
    /// Report 0.5 around INT 0.5.
    Report05,
    /// INT-MX 2.1: each node reports its own metadata in a report 2.0, around the packet with its instructions.
    Mx21,
    /// Postcards: each node reports queue and timestamps in a report 2.0, around the headers of the packet.
    Postcard,
}

// Sizes of INT headers in bytes; the metadata header has 8 in versions 0.5 and 1.0, and 12 in 2.x.
const SHIM: usize = 4;
const HEADER_1: usize = 8;
const HEADER_2: usize = 12;
const TAIL: usize = 4;
/// Bytes of IPv4 and UDP, which precede INT in a report 2.0.
const IP_UDP: usize = 28;
/// Bytes of group header, report header and main contents without metadata.
const REPORT_20: usize = 8 + 4 + 8;
/// Payload bytes of the packet in a postcard.
const PAYLOAD: usize = 8;

impl Format {
    /// Describes the format in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Report10 => "Telemetry Report 1.0, INT 1.0",
            Self::Report20Md21 => "Telemetry Report 2.0, INT-MD 2.1",
            Self::Report20Md10 => "Telemetry Report 2.0, INT 1.0",
            Self::Report05 => "Telemetry Report 0.5, INT 0.5",
            Self::Mx21 => "Telemetry Report 2.0, INT-MX 2.1: one report per node",
            Self::Postcard => "Telemetry Report 2.0, postcards: one report per node",
        }
    }

    /// Returns the dialect that decodes the format.
    pub(super) fn dialect(self) -> Dialect {
        if self == Self::Report10 {
            Dialect::IntCollectorGen
        } else {
            Dialect::Strict
        }
    }

    /// Tells whether each node sends its own reports.
    fn is_by_node(self) -> bool {
        matches!(self, Self::Mx21 | Self::Postcard)
    }

    /// Returns the offset of the four bytes in the UDP payload that hold the sequence number (and otherwise constant bits).
    pub(super) fn sequence_number(self) -> usize {
        match self {
            Self::Report10 => 8,
            Self::Report05 => 4,
            _ => 0,
        }
    }
}

impl Case {
    /// Returns the number of frames per packet.
    pub(super) fn frames_per_packet(&self) -> u8 {
        if self.format.is_by_node() { self.hops } else { 1 }
    }

    /// Returns the layout of one hop's record.
    fn layout(&self) -> Layout {
        let words = self.bitmap.count_ones() as u8;
        match self.format {
            Format::Report10 => Layout::int_10(self.bitmap, words, Dialect::IntCollectorGen),
            Format::Report20Md10 => Layout::int_10(
                self.bitmap,
                wire::int::layout::words_10(self.bitmap),
                Dialect::Strict,
            ),
            Format::Report20Md21 => {
                Layout::int_2(self.bitmap, wire::int::layout::words_2(self.bitmap), false)
            }
            Format::Report05 => Ok(Layout::int_05(self.bitmap)),
            Format::Mx21 | Format::Postcard => Ok(Layout::report_20(self.metadata_bits())),
        }
        .unwrap_or(Layout::EMPTY)
    }

    /// Returns the metadata bits (RepMdBits) of reports by single nodes. The node ID is in the group header instead.
    fn metadata_bits(&self) -> u16 {
        self.bitmap & 0x7f00
    }

    pub(super) fn frame_len(&self) -> usize {
        let stack = usize::from(self.hops) * self.layout().len();
        OUTER
            + match self.format {
                Format::Report10 => v10::LEN + OUTER + SHIM + HEADER_1 + stack,
                Format::Report05 => v05::LEN + OUTER + SHIM + HEADER_1 + stack + TAIL,
                Format::Report20Md21 => REPORT_20 + IP_UDP + SHIM + HEADER_2 + stack,
                Format::Report20Md10 => REPORT_20 + IP_UDP + SHIM + HEADER_1 + stack,
                Format::Mx21 => REPORT_20 + self.layout().len() + IP_UDP + SHIM + HEADER_2,
                Format::Postcard => REPORT_20 + self.layout().len() + IP_UDP + PAYLOAD,
            }
    }

    /// Writes frame `number` of a packet that collected `hops`: the only frame (0), or the report of hop `number`.
    pub(super) fn write(&self, frame: &mut [u8], flow: u32, seq: u32, hops: &[Hop], number: usize) {
        let (head, rest) = frame.split_at_mut(OUTER);
        Packet::REPORT.write(head, rest.len());
        // Four flows per source address.
        let [a, b, c, d] = (0x0a00_0000 + flow / 4).to_be_bytes();
        let inner = Packet {
            src: [a, b, c, d],
            dst: [10, 255, 0, 1],
            src_port: 1024 + (flow % 4) as u16,
            dst_port: 80,
            dscp: if self.format == Format::Postcard {
                0
            } else {
                wire::Profile::DSCP
            },
            // The collector joins the reports of single nodes by the IP identification.
            id: if self.format.is_by_node() {
                (1 + seq % 0xffff) as u16
            } else {
                0
            },
            ttl: 64 - number as u8,
        };
        let sink = hops.last().and_then(|hop| hop.node_id).unwrap_or(0);
        match self.format {
            Format::Report10 => self.write_10(rest, sink, seq, inner, hops),
            Format::Report05 => self.write_05(rest, seq, inner, hops),
            Format::Report20Md21 | Format::Report20Md10 => self.write_20(sink, seq, inner, hops, rest),
            Format::Mx21 | Format::Postcard => self.write_by_node(seq, number, inner, &hops[number], rest),
        }
    }

    /// Writes a report 1.0 around INT 1.0.
    fn write_10(&self, rest: &mut [u8], sink: u32, seq: u32, inner: Packet, hops: &[Hop]) {
        let header = v10::Repr {
            next: v10::NextProtocol::Ethernet,
            bits: 0,
            flags: Flags::FLOW,
            hw_id: 1,
            switch_id: sink,
            seq,
            ingress_ts: seq.wrapping_mul(100),
            metadata: Hop::default(),
            drop_reason: None,
        };
        let at = header.emit(Dialect::IntCollectorGen, rest);
        let (head, rest) = rest[at..].split_at_mut(OUTER);
        inner.write(head, rest.len());
        self.write_md_10(rest, hops);
    }

    /// Writes shim, header and stack of INT 1.0.
    fn write_md_10(&self, rest: &mut [u8], hops: &[Hop]) {
        let words = self.layout().words();
        Shim1 {
            kind: 1,
            length: (3 + hops.len() * usize::from(words)) as u8,
            last: 0,
        }
        .emit(rest);
        Md10 {
            hop_ml: words,
            remaining: 8,
            bitmap: self.bitmap,
            ..Md10::default()
        }
        .emit(&mut rest[SHIM..]);
        self.write_stack(&mut rest[SHIM + HEADER_1..], hops);
    }

    /// Writes a report 0.5 around INT 0.5.
    fn write_05(&self, rest: &mut [u8], seq: u32, inner: Packet, hops: &[Hop]) {
        let header = v05::Repr {
            flags: Flags::FLOW,
            hw_id: 1,
            seq,
            ingress_ts: seq.wrapping_mul(100),
            kind: v05::Kind::Plain,
        };
        let at = header.emit(Dialect::Strict, rest);
        let (head, rest) = rest[at..].split_at_mut(OUTER);
        inner.write(head, rest.len());
        let count = hops.len() as u8;
        let length = (rest.len() / 4) as u8;
        Shim1 {
            kind: 1,
            length,
            last: 0,
        }
        .emit(rest);
        Md05 {
            max_hops: count,
            total_hops: count,
            bitmap: self.bitmap,
            ..Md05::default()
        }
        .emit(&mut rest[SHIM..]);
        let (stack, tail) = rest[SHIM + HEADER_1..].split_at_mut(hops.len() * self.layout().len());
        self.write_stack(stack, hops);
        Tail {
            proto: 17,
            port: inner.dst_port,
            dscp: 0,
        }
        .emit(tail);
    }

    /// Writes a report 2.0 around a packet with a stack. A report 2.0 has no inner Ethernet header (14 bytes).
    fn write_20(&self, sink: u32, seq: u32, inner: Packet, hops: &[Hop], out: &mut [u8]) {
        let mut packet = vec![0; 14 + out.len() - REPORT_20];
        let (head, rest) = packet.split_at_mut(OUTER);
        inner.write(head, rest.len());
        if self.format == Format::Report20Md10 {
            self.write_md_10(rest, hops);
        } else {
            let words = self.layout().words();
            let length = ((rest.len() - SHIM) / 4) as u8;
            Shim2 {
                kind: Shim2::MD,
                length,
                next: Next::Dscp(0),
            }
            .emit(rest);
            Md2 {
                hop_ml: words,
                remaining: 8,
                bitmap: self.bitmap,
                ..Md2::default()
            }
            .emit(&mut rest[SHIM..]);
            self.write_stack(&mut rest[SHIM + HEADER_2..], hops);
        }
        write_group(out, sink, seq, MainRepr::default(), &packet[14..]);
    }

    /// Writes the report 2.0 of one node.
    fn write_by_node(&self, seq: u32, number: usize, inner: Packet, hop: &Hop, out: &mut [u8]) {
        let mut packet = vec![0; 14 + out.len() - REPORT_20 - self.layout().len()];
        let (head, rest) = packet.split_at_mut(OUTER);
        inner.write(head, rest.len());
        if self.format == Format::Mx21 {
            Shim2 {
                kind: Shim2::MX,
                length: 3,
                next: Next::Dscp(0),
            }
            .emit(rest);
            Mx2 {
                bitmap: self.bitmap,
                ..Mx2::default()
            }
            .emit(&mut rest[SHIM..]);
        }
        let edge = match number {
            0 => v20::POSTCARD_ENTERED,
            number if number + 1 == usize::from(self.hops) => v20::POSTCARD_LEFT,
            _ => 0,
        };
        let main = MainRepr {
            bits: self.metadata_bits(),
            ds_id: v20::POSTCARD_DOMAIN,
            ds_status: edge,
            metadata: *hop,
            ..MainRepr::default()
        };
        write_group(out, hop.node_id.unwrap_or(0), seq, main, &packet[14..]);
    }

    /// Writes the INT stack, on which the last hop comes first.
    fn write_stack(&self, stack: &mut [u8], hops: &[Hop]) {
        let layout = self.layout();
        for (record, hop) in stack.chunks_exact_mut(layout.len()).zip(hops.iter().rev()) {
            layout.write(hop, record);
        }
    }
}

/// Writes a report 2.0 as the only one of its group.
fn write_group(out: &mut [u8], node_id: u32, seq: u32, main: MainRepr<'_>, packet: &[u8]) {
    let group = Group {
        hw_id: 1,
        seq: seq & 0x003f_ffff,
        node_id,
    };
    if let Some(mut builder) = GroupBuilder::new(out, group) {
        let fits = builder.push(&Repr::new(Flags::FLOW, main, Inner::Ipv4(packet)));
        debug_assert!(fits, "a frame has room for its report");
    }
}
