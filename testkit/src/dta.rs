//! DTA and RoCEv2 packets of the test vectors: the JSON line that a vector expects, and the bytes that the writers emit.

use crate::object::{Object, error};
use wire::FlowKey;
use wire::dta::artifact::{self, Form};
use wire::dta::control::{Body, Cause};
use wire::dta::{Base, Control, Operation, Report};
use wire::roce::{Head, Nak, Opcode, Packet, Path, Syndrome, Transport, Writer};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Describes a DTA report (version 1 or the layout of the paper's artifact) as one JSON line.
pub fn report(payload: &[u8]) -> String {
    let mut out = Object::new();
    let (report, form) = match read(payload) {
        Ok(read) => read,
        Err(refusal) => return error(refusal),
    };
    let v1 = form.is_none();
    out.text("dta", report.operation.opcode().name());
    out.text("layout", if v1 { "v1" } else { "artifact" });
    base(&mut out, &report.base, v1);
    operation(&mut out, &report.operation, v1);
    out.finish()
}

/// Parses a report; the form is `None` for version 1.
fn read(payload: &[u8]) -> Result<(Report<'_>, Option<Form>), wire::Refusal> {
    if artifact::is_artifact(payload) {
        return artifact::parse(payload, 0).map(|(report, form)| (report, Some(form)));
    }
    Report::parse(payload).map(|report| (report, None))
}

fn base(out: &mut Object, base: &Base, v1: bool) {
    out.raw("immediate", &base.immediate.to_string());
    out.raw("essential", &base.essential.to_string());
    if v1 {
        out.text("priority", base.priority.name());
    }
    if base.essential {
        out.number("seq", base.sequence);
    }
    if v1 {
        out.number("reporter", base.reporter);
    }
}

fn operation(out: &mut Object, operation: &Operation<'_>, v1: bool) {
    // The artifact's layout lacks these fields.
    let place = |out: &mut Object, name, number: u64| {
        if v1 {
            out.number(name, number);
        }
    };
    match *operation {
        Operation::KeyWrite {
            copies,
            store,
            key,
            data,
        } => {
            out.number("copies", copies);
            place(out, "store", store.into());
            out.text("key", &hex(key));
            out.text("data", &hex(data));
        }
        Operation::Append {
            list,
            entry_len,
            entries,
        } => {
            out.number("list", list);
            out.number("entry_len", entry_len);
            let entries = entries.chunks(entry_len.into());
            out.list("entries", entries.map(|entry| format!("\"{}\"", hex(entry))));
        }
        Operation::KeyIncrement {
            copies,
            store,
            delta,
            key,
        } => {
            out.number("copies", copies);
            place(out, "store", store.into());
            out.number("delta", delta);
            out.text("key", &hex(key));
        }
        Operation::Postcard {
            hop,
            path_len,
            store,
            value,
            key,
        } => {
            out.number("hop", hop);
            place(out, "path_len", path_len.into());
            place(out, "store", store.into());
            out.number("value", value);
            out.text("key", &hex(key));
        }
        Operation::SketchMerge {
            sketch,
            epoch,
            first_column,
            depth,
            width,
            op,
            columns: _,
            counters,
        } => {
            out.number("sketch", sketch);
            out.number("epoch", epoch);
            out.number("first_column", first_column);
            out.number("depth", depth);
            out.number("width", width);
            out.text("op", op.name());
            out.list(
                "columns",
                counters
                    .chunks(usize::from(depth) * usize::from(width))
                    .map(|column| {
                        let values = column.chunks(width.into());
                        let number =
                            |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
                        format!(
                            "[{}]",
                            values
                                .map(|value| number(value).to_string())
                                .collect::<Vec<_>>()
                                .join(",")
                        )
                    }),
            );
        }
    }
}

/// Describes a DTA control message as one JSON line.
pub fn control(payload: &[u8]) -> String {
    let mut out = Object::new();
    out.text("dta", "control");
    // The artifact's only control message, a NACK, is two bytes without a version.
    if payload.len() == 2 {
        return match artifact::Nack::parse(payload) {
            Ok(nack) => {
                out.text("layout", "artifact");
                out.text("type", "nack");
                out.number("last", nack.last);
                out.finish()
            }
            Err(refusal) => error(refusal),
        };
    }
    let control = match Control::parse(payload) {
        Ok(control) => control,
        Err(refusal) => return error(refusal),
    };
    out.text("layout", "v1");
    let name = match control.body {
        Body::Ack { .. } => "ack",
        Body::Nack { .. } => "nack",
        Body::SketchNack { .. } => "sketch_nack",
        Body::Congestion { .. } => "congestion",
    };
    out.text("type", name);
    out.number("seq", control.sequence);
    out.number("reporter", control.reporter);
    match control.body {
        Body::Ack { last } => out.number("last", last),
        Body::Nack { cause, last, trigger } => {
            match cause {
                Cause::Other(code) => out.number("cause", code),
                known => out.text("cause", known.name()),
            }
            out.number("last", last);
            out.number("trigger", trigger);
        }
        Body::SketchNack {
            sketch,
            epoch,
            column,
        } => {
            out.number("sketch", sketch);
            out.number("epoch", epoch);
            out.number("column", column);
        }
        Body::Congestion {
            level,
            hold_us,
            dropped,
        } => {
            out.number("level", level);
            out.number("hold_us", hold_us);
            out.number("dropped", dropped);
        }
    }
    out.finish()
}

/// Describes a RoCEv2 frame as one JSON line.
pub fn roce(frame: &[u8]) -> String {
    let packet = match Packet::parse(frame) {
        Ok(packet) => packet,
        Err(refusal) => return error(refusal),
    };
    let mut out = Object::new();
    out.text("roce", packet.bth.opcode.name());
    let ends = packet.ends;
    let ports = Some((ends.source_port, wire::roce::PORT));
    out.flow(
        "flow",
        Some(FlowKey::new(ends.source, ends.destination, ports, 17)),
    );
    if let Some(transport) = packet.bth.transport {
        out.text("transport", transport.name());
    }
    out.number("queue_pair", packet.bth.queue_pair);
    out.number("psn", packet.bth.psn.value());
    out.raw("ack_request", &packet.bth.ack_request.to_string());
    out.raw("solicited", &packet.bth.solicited.to_string());
    if let Opcode::Other(number) = packet.bth.opcode {
        out.number("opcode", number);
    }
    headers(&mut out, &packet);
    out.text("payload", &hex(packet.payload));
    if let Some(fault) = packet.fault {
        out.text("fault", fault.name());
    }
    out.finish()
}

fn headers(out: &mut Object, packet: &Packet<'_>) {
    if let Some(reth) = packet.reth {
        let mut inner = Object::new();
        inner.number("address", reth.address);
        inner.number("rkey", reth.rkey);
        inner.number("len", reth.len);
        out.raw("reth", &inner.finish());
    }
    if let Some(immediate) = packet.immediate {
        out.number("immediate", immediate);
    }
    if let Some(atomic) = packet.atomic {
        let mut inner = Object::new();
        inner.number("address", atomic.address);
        inner.number("rkey", atomic.rkey);
        inner.number("add", atomic.add);
        inner.number("compare", atomic.compare);
        out.raw("atomic", &inner.finish());
    }
    if let Some(aeth) = packet.aeth {
        out.number("syndrome", aeth.syndrome.number());
        out.number("msn", aeth.msn);
    }
    if let Some(original) = packet.atomic_ack {
        out.number("original", original);
    }
}

/// Parses a DTA report and returns the bytes that the writer emits for it.
pub fn report_again(payload: &[u8]) -> Vec<u8> {
    let (report, form) = read(payload).expect("good");
    let mut out = vec![0xa5; payload.len()];
    let len = match form {
        None => report.emit(&mut out),
        Some(form) => artifact::emit(&report, form, &mut out),
    };
    assert_eq!(len, Ok(payload.len()));
    out
}

/// Parses a DTA control message and returns the bytes that the writer emits for it.
pub fn control_again(payload: &[u8]) -> Vec<u8> {
    if payload.len() == 2 {
        return artifact::Nack::parse(payload).expect("good").emit().into();
    }
    let mut out = vec![0xa5; payload.len()];
    assert_eq!(
        Control::parse(payload).expect("good").emit(&mut out),
        Ok(payload.len())
    );
    out
}

/// Parses a RoCEv2 frame and returns the bytes that the writer emits for it. Header fields that the parsed packet does not keep
/// (VLAN, TOS, hop limit, flow label, identification) are taken from the frame.
pub fn roce_again(frame: &[u8]) -> Vec<u8> {
    let packet = Packet::parse(frame).expect("good");
    assert_eq!(packet.fault, None, "what has a fault is not written");
    let number = |at: usize, len: usize| {
        frame[at..at + len]
            .iter()
            .fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte))
    };
    let tagged = number(12, 2) == 0x8100;
    let ip = if tagged { 18 } else { 14 };
    let v4 = packet.ends.source.is_ipv4();
    let path = Path {
        source_mac: packet.source_mac,
        destination_mac: packet.destination_mac,
        vlan: tagged.then(|| number(14, 2) as u16),
        tos: if v4 {
            frame[ip + 1]
        } else {
            (number(ip, 4) >> 20) as u8
        },
        hop_limit: frame[ip + if v4 { 8 } else { 7 }],
        flow_label: if v4 { 0 } else { number(ip, 4) & 0xf_ffff },
        identification: if v4 { number(ip + 4, 2) as u16 } else { 0 },
        ..Path::new(
            packet.ends.source,
            packet.ends.destination,
            packet.ends.source_port,
        )
    };
    let transport = packet.bth.transport.unwrap_or(Transport::Rc);
    let mut writer = Writer::new(path, transport, packet.bth.queue_pair).expect("one family");
    let mut out = vec![0xa5; frame.len()];
    // Written twice: by a new writer, and with the headers that it has cached.
    assert_eq!(write(&mut writer, &mut out, &packet), frame.len());
    let first = out.clone();
    out.fill(0xa5);
    assert_eq!(
        (write(&mut writer, &mut out, &packet), &out),
        (frame.len(), &first)
    );
    out
}

fn write(writer: &mut Writer, out: &mut [u8], packet: &Packet<'_>) -> usize {
    let bth = &packet.bth;
    let payload = packet.payload;
    let head = Head {
        psn: bth.psn,
        ack_request: bth.ack_request,
        solicited: bth.solicited,
    };
    let reth = packet.reth.unwrap_or_default();
    let immediate = packet.immediate.unwrap_or_default();
    let written = match (bth.opcode, packet.aeth) {
        (Opcode::SendOnly, _) => writer.send(out, head, payload),
        (Opcode::WriteFirst, _) => writer.write_first(out, head, reth, payload),
        (Opcode::WriteMiddle, _) => writer.write_middle(out, head, payload),
        (Opcode::WriteLast, _) => writer.write_last(out, head, payload),
        (Opcode::WriteLastImmediate, _) => writer.write_last_immediate(out, head, immediate, payload),
        (Opcode::WriteOnly, _) => writer.write_only(out, head, reth, payload),
        (Opcode::WriteOnlyImmediate, _) => writer.write_only_immediate(out, head, reth, immediate, payload),
        (Opcode::FetchAdd, _) => writer.fetch_add(out, head, packet.atomic.expect("there is one")),
        (Opcode::Cnp, _) => writer.cnp(out),
        (Opcode::AtomicAcknowledge, Some(aeth)) => {
            writer.atomic_ack(out, bth.psn, aeth.msn, packet.atomic_ack.expect("there is one"))
        }
        (Opcode::Acknowledge, Some(aeth)) => match aeth.syndrome {
            Syndrome::Ack(31) => writer.ack(out, bth.psn, aeth.msn),
            Syndrome::Rnr(timer) => writer.rnr(out, bth.psn, timer, aeth.msn),
            Syndrome::Nak(nak @ (Nak::SequenceError | Nak::RemoteAccess)) => {
                writer.nak(out, bth.psn, nak, aeth.msn)
            }
            _ => writer.acknowledge(out, bth.psn, aeth),
        },
        (other, _) => panic!("{other:?} is not written"),
    };
    written.expect("room for as much as was read")
}
