//! Prints DTA reports, DTA control messages and RoCEv2 packets, as text (headline, then the operation) or one JSON object.
//!
//! The UDP port selects the parser; on DTA ports, both the v1 layout and the layout of the paper's artifact are recognized.

use std::{fmt::Write as _, net::IpAddr};

use nic::capture::Layer;
use wire::dta::artifact::{self, Form, Nack};
use wire::dta::control::{Body, Cause};
use wire::dta::{Base, CONTROL_PORT, Control, Operation, REPORT_PORT, Report, hash};
use wire::frame::Datagram;
use wire::roce::{self, Opcode, Packet};
use wire::{FlowKey, Refusal};

use terminal::json::{self, Object, Text};
use terminal::units;

/// UDP ports of DTA: reports, and control messages. The ports of RoCEv2 are arguments.
pub(super) const PORTS: [u16; 2] = [REPORT_PORT, CONTROL_PORT];

/// Parsed DTA or RoCEv2 datagram.
#[derive(Debug)]
pub(super) enum Message<'a> {
    Report(Report<'a>, Option<Form>),
    Control(Control),
    Nack(Nack),
    /// RoCEv2 packet and its UDP destination port.
    Roce(Box<Packet<'a>>, u16),
}

impl Message<'_> {
    /// Returns the name by which the summary counts the message.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Report(report, _) => report.operation.opcode().name(),
            Self::Control(_) | Self::Nack(_) => "control",
            Self::Roce(..) => "roce",
        }
    }
}

/// UDP ports named on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports<'p> {
    /// Ports on which telemetry reports are expected.
    pub(super) reports: &'p [u16],
    /// Ports that carry RoCEv2.
    pub(super) roce: &'p [u16],
}

/// Parses a datagram to one of [`PORTS`] or to a RoCEv2 port; `None` for other ports, and for ports configured for telemetry
/// reports.
/// `scratch` holds a copy of the frame if its RoCEv2 port is not 4791.
pub(super) fn parse<'a>(
    ports: Ports<'_>,
    datagram: &Datagram<'a>,
    layer: Layer<'a>,
    scratch: &'a mut Vec<u8>,
) -> Option<Result<Message<'a>, Refusal>> {
    let payload = datagram.payload;
    match datagram.dst_port {
        port if ports.reports.contains(&port) => None,
        port if ports.roce.contains(&port) => {
            let parsed = packet(layer, datagram, scratch);
            Some(parsed.map(|packet| Message::Roce(Box::new(packet), port)))
        }
        REPORT_PORT if artifact::is_artifact(payload) => {
            Some(artifact::parse(payload, 0).map(|(report, form)| Message::Report(report, Some(form))))
        }
        REPORT_PORT => Some(Report::parse(payload).map(|report| Message::Report(report, None))),
        CONTROL_PORT if payload.len() == 2 => Some(Nack::parse(payload).map(Message::Nack)),
        CONTROL_PORT => Some(Control::parse(payload).map(Message::Control)),
        _ => None,
    }
}

/// Parses the RoCEv2 packet of a datagram. The ICRC covers the UDP destination port. hopwise computes it for port 4791
/// whatever the port, as an RDMA device behind a port translation does, so the port is replaced by 4791 in a copy of the
/// frame before the check.
fn packet<'a>(
    layer: Layer<'a>,
    datagram: &Datagram<'a>,
    scratch: &'a mut Vec<u8>,
) -> Result<Packet<'a>, Refusal> {
    let (Layer::Ethernet(bytes) | Layer::Network { bytes, .. }) = layer else {
        return Err(Refusal::Truncated);
    };
    let bytes = if datagram.dst_port == roce::PORT {
        bytes
    } else {
        // The destination port is bytes 2 and 3 of the 8-byte UDP header, so it begins 6 bytes before the payload.
        let port = (datagram.payload.as_ptr() as usize)
            .wrapping_sub(bytes.as_ptr() as usize)
            .wrapping_sub(6);
        scratch.clear();
        scratch.extend_from_slice(bytes);
        let port = scratch.get_mut(port..).and_then(<[u8]>::first_chunk_mut::<2>);
        *port.ok_or(Refusal::Truncated)? = roce::PORT.to_be_bytes();
        scratch
    };
    match layer {
        Layer::Ethernet(_) => Packet::parse(bytes),
        _ => Packet::parse_ip(bytes),
    }
}

/// Appends a message as text or as a line of JSON.
pub(super) fn write(out: &mut String, ts: u64, source: IpAddr, message: &Message<'_>, json: bool) {
    if json {
        json::object(out, |o| {
            o.field("ts", ts).field("source", Text(source));
            object(o, message);
        });
        out.push('\n');
    } else {
        let _ = write!(out, "{}  from {source}  ", units::date_time(ts));
        text(out, message);
        out.push('\n');
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn object(o: &mut Object<'_>, message: &Message<'_>) {
    match message {
        Message::Report(report, form) => {
            let v1 = form.is_none();
            o.field("dta", report.operation.opcode().name());
            o.field("layout", if v1 { "v1" } else { "artifact" });
            base_fields(o, &report.base, v1);
            operation_fields(o, &report.operation, v1);
        }
        Message::Nack(nack) => {
            o.field("dta", "control")
                .field("layout", "artifact")
                .field("type", "nack");
            o.field("last", nack.last);
        }
        Message::Control(control) => control_fields(o, control),
        Message::Roce(packet, port) => packet_fields(o, packet, *port),
    }
}

fn base_fields(o: &mut Object<'_>, base: &Base, v1: bool) {
    o.field("immediate", base.immediate)
        .field("essential", base.essential);
    o.present("priority", v1.then(|| base.priority.name()));
    o.present("seq", base.essential.then_some(base.sequence))
        .present("reporter", v1.then_some(base.reporter));
}

fn operation_fields(o: &mut Object<'_>, operation: &Operation<'_>, v1: bool) {
    match *operation {
        Operation::KeyWrite {
            copies,
            store,
            key,
            data,
        } => {
            o.field("copies", copies).present("store", v1.then_some(store));
            o.field("key", hex(key)).field("data", hex(data));
        }
        Operation::Append {
            list,
            entry_len,
            entries,
        } => {
            o.field("list", list).field("entry_len", entry_len);
            o.field(
                "entries",
                entries.chunks(entry_len.into()).map(hex).collect::<Vec<_>>(),
            );
        }
        Operation::KeyIncrement {
            copies,
            store,
            delta,
            key,
        } => {
            o.field("copies", copies).present("store", v1.then_some(store));
            o.field("delta", delta).field("key", hex(key));
        }
        Operation::Postcard {
            hop,
            path_len,
            store,
            value,
            key,
        } => {
            o.field("hop", hop).present("path_len", v1.then_some(path_len));
            o.present("store", v1.then_some(store))
                .field("value", value)
                .field("key", hex(key));
        }
        Operation::SketchMerge {
            sketch,
            epoch,
            first_column,
            depth,
            width,
            op,
            ..
        } => {
            o.field("sketch", sketch)
                .field("epoch", epoch)
                .field("first_column", first_column);
            o.field("depth", depth)
                .field("width", width)
                .field("op", op.name());
            o.field("columns", columns(operation));
        }
    }
}

/// Returns the counters of a Sketch-Merge report, one list per column.
fn columns(operation: &Operation<'_>) -> Vec<Vec<u64>> {
    let Operation::SketchMerge {
        depth,
        width,
        counters,
        ..
    } = operation
    else {
        return Vec::new();
    };
    counters
        .chunks(usize::from(*depth) * usize::from(*width))
        .map(|column| column.chunks(usize::from(*width)).map(big_endian).collect())
        .collect()
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn body_name(body: &Body) -> &'static str {
    match body {
        Body::Ack { .. } => "ack",
        Body::Nack { .. } => "nack",
        Body::SketchNack { .. } => "sketch_nack",
        Body::Congestion { .. } => "congestion",
    }
}

fn control_fields(o: &mut Object<'_>, control: &Control) {
    o.field("dta", "control")
        .field("layout", "v1")
        .field("type", body_name(&control.body));
    o.field("seq", control.sequence)
        .field("reporter", control.reporter);
    match control.body {
        Body::Ack { last } => o.field("last", last),
        Body::Nack { cause, last, trigger } => {
            match cause {
                Cause::Other(code) => o.field("cause", code),
                cause => o.field("cause", cause.name()),
            };
            o.field("last", last).field("trigger", trigger)
        }
        Body::SketchNack {
            sketch,
            epoch,
            column,
        } => o
            .field("sketch", sketch)
            .field("epoch", epoch)
            .field("column", column),
        Body::Congestion {
            level,
            hold_us,
            dropped,
        } => o
            .field("level", level)
            .field("hold_us", hold_us)
            .field("dropped", dropped),
    };
}

fn packet_fields(o: &mut Object<'_>, packet: &Packet<'_>, port: u16) {
    let bth = &packet.bth;
    let ends = packet.ends;
    o.field("roce", bth.opcode.name()).object("flow", |o| {
        o.field("src", Text(ends.source))
            .field("dst", Text(ends.destination));
        o.field("sport", ends.source_port)
            .field("dport", port)
            .field("proto", 17_u8);
    });
    o.present("transport", bth.transport.map(roce::Transport::name));
    o.field("queue_pair", bth.queue_pair)
        .field("psn", bth.psn.value());
    o.field("ack_request", bth.ack_request)
        .field("solicited", bth.solicited);
    if let Opcode::Other(number) = bth.opcode {
        o.field("opcode", number);
    }
    if let Some(reth) = packet.reth {
        o.object("reth", |o| {
            o.field("address", reth.address)
                .field("rkey", reth.rkey)
                .field("len", reth.len);
        });
    }
    o.present("immediate", packet.immediate);
    if let Some(atomic) = packet.atomic {
        o.object("atomic", |o| {
            o.field("address", atomic.address).field("rkey", atomic.rkey);
            o.field("add", atomic.add).field("compare", atomic.compare);
        });
    }
    o.present("syndrome", packet.aeth.map(|aeth| aeth.syndrome.number()));
    o.present("msn", packet.aeth.map(|aeth| aeth.msn))
        .present("original", packet.atomic_ack);
    o.field("payload", hex(packet.payload))
        .present("fault", packet.fault.map(Refusal::name));
}

fn text(out: &mut String, message: &Message<'_>) {
    let _ = match message {
        Message::Report(report, form) => {
            report_text(out, report, form.is_none());
            Ok(())
        }
        Message::Nack(nack) => writeln!(out, "DTA nack  last {}  (artifact)", nack.last),
        Message::Control(control) => {
            let name = body_name(&control.body);
            let seq = control.sequence;
            let reporter = control.reporter;
            let _ = writeln!(out, "DTA {name}  to reporter {reporter}  seq {seq}");
            match control.body {
                Body::Ack { last } => writeln!(out, "  all up to {last}"),
                Body::Nack {
                    cause: Cause::Other(code),
                    last,
                    trigger,
                } => {
                    writeln!(out, "  cause {code}, last in order {last}, caused by {trigger}")
                }
                Body::Nack { cause, last, trigger } => {
                    writeln!(
                        out,
                        "  {}, last in order {last}, caused by {trigger}",
                        cause.name()
                    )
                }
                Body::SketchNack {
                    sketch,
                    epoch,
                    column,
                } => {
                    writeln!(out, "  sketch {sketch}, epoch {epoch}: column {column} is due")
                }
                Body::Congestion {
                    level,
                    hold_us,
                    dropped,
                } => {
                    writeln!(out, "  level {level} for {hold_us} us, {dropped} reports dropped")
                }
            }
        }
        Message::Roce(packet, _) => {
            packet_text(out, packet);
            Ok(())
        }
    };
}

fn report_text(out: &mut String, report: &Report<'_>, v1: bool) {
    let base = &report.base;
    let _ = write!(out, "DTA {}", report.operation.opcode().name());
    if v1 {
        let _ = write!(
            out,
            "  reporter {}  priority {}",
            base.reporter,
            base.priority.name()
        );
    } else {
        out.push_str("  (artifact)");
    }
    if base.essential {
        let _ = write!(out, "  essential, seq {}", base.sequence);
    }
    out.push_str(if base.immediate { "  immediate\n" } else { "\n" });
    let _ = match report.operation {
        Operation::KeyWrite {
            copies, store, data, ..
        } => {
            writeln!(out, "  store {store}  copies {copies}  data {}", hex(data))
        }
        Operation::Append {
            list,
            entry_len,
            entries,
        } => {
            let entries: Vec<_> = entries.chunks(entry_len.into()).map(hex).collect();
            writeln!(out, "  list {list}  entries {}", entries.join(" "))
        }
        Operation::KeyIncrement {
            copies, store, delta, ..
        } => {
            writeln!(out, "  store {store}  copies {copies}  add {delta}")
        }
        Operation::Postcard {
            hop,
            path_len,
            store,
            value,
            ..
        } => {
            let total = if path_len == 0 {
                String::new()
            } else {
                format!(" of {path_len}")
            };
            writeln!(out, "  store {store}  hop {hop}{total}  value {value}")
        }
        Operation::SketchMerge {
            sketch,
            epoch,
            first_column,
            columns: count,
            op,
            ..
        } => {
            let columns = units::counted(count.into(), "column");
            let _ = writeln!(
                out,
                "  sketch {sketch}  epoch {epoch}  {columns} from {first_column} on  {}",
                op.name()
            );
            let values = columns_text(&report.operation);
            writeln!(out, "  {values}")
        }
    };
    if let Some(key) = report.operation.key() {
        let flow = hash::flow_of(key).map_or_else(String::new, |flow: FlowKey| format!("  {flow}"));
        let _ = writeln!(out, "  key {}{flow}", hex(key));
    }
}

fn columns_text(operation: &Operation<'_>) -> String {
    columns(operation)
        .into_iter()
        .map(|column| column.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join(" | ")
}

fn packet_text(out: &mut String, packet: &Packet<'_>) {
    let bth = &packet.bth;
    let transport = bth.transport.map_or("", roce::Transport::name);
    let _ = write!(
        out,
        "to {}  RoCEv2 {transport} {}",
        packet.ends.destination,
        bth.opcode.name()
    );
    if let Opcode::Other(number) = bth.opcode {
        let _ = write!(out, " {number:#04x}");
    }
    let _ = write!(out, "  queue pair {:#x}  psn {}", bth.queue_pair, bth.psn.value());
    out.push_str(if bth.ack_request { "  acknowledge\n" } else { "\n" });
    if let Some(reth) = packet.reth {
        let _ = writeln!(
            out,
            "  address {:#x}  rkey {:#x}  {}",
            reth.address,
            reth.rkey,
            units::counted(reth.len.into(), "byte")
        );
    }
    if let Some(atomic) = packet.atomic {
        let _ = writeln!(
            out,
            "  address {:#x}  rkey {:#x}  add {}",
            atomic.address, atomic.rkey, atomic.add
        );
    }
    if let Some(immediate) = packet.immediate {
        let _ = writeln!(out, "  immediate {immediate:#010x}");
    }
    if let Some(aeth) = packet.aeth {
        let _ = writeln!(out, "  {:?}  msn {}", aeth.syndrome, aeth.msn);
    }
    if let Some(original) = packet.atomic_ack {
        let _ = writeln!(out, "  was {original}");
    }
    if !packet.payload.is_empty() {
        let _ = writeln!(out, "  payload {}", hex(packet.payload));
    }
    if let Some(fault) = packet.fault {
        let _ = writeln!(out, "  fault: {fault}");
    }
}
