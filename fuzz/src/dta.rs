//! Fuzz bodies for `wire::dta` and `wire::roce`.

use wire::Profile;
use wire::dta::hash::{self, FlowBytes};
use wire::dta::layout::{self, BlockTrailer, SketchTrailer};
use wire::dta::{Control, Operation, PlainAppend, Report, artifact};
use wire::roce::{self, Endpoints, HeaderTemplates, Opcode, Packet, Psn};

/// A DTA datagram of either layout: values are within their limits and inside the datagram, and writing gives the same bytes, except
/// for reserved bits.
pub fn dta(payload: &[u8], _: &Profile) {
    fast_path_agrees(payload);
    if let Ok(report) = Report::parse(payload) {
        assert_eq!((report.operation.check(), report.len()), (Ok(()), payload.len()));
        let again = written(payload.len(), |out| report.emit(out));
        assert_eq!(Report::parse(&again), Ok(report));
        assert!(!artifact::is_artifact(payload));
        if let Some(key) = report.operation.key() {
            key_holds_together(key);
        }
    }
    if let Ok((report, form)) = artifact::parse(payload, 7) {
        assert!(artifact::is_artifact(payload) && payload.len() <= artifact::MAX_LEN);
        let again = written(payload.len(), |out| artifact::emit(&report, form, out));
        assert_eq!(artifact::parse(&again, 7), Ok((report, form)));
        assert!(report.base.sequence < 256 && report.operation.check().is_ok());
    }
    if let Ok(control) = Control::parse(payload) {
        let again = written(payload.len(), |out| control.emit(out));
        assert_eq!(Control::parse(&again), Ok(control));
        assert!(Report::parse(payload).is_err(), "a control message is no report");
    }
    if let Ok(nack) = artifact::Nack::parse(payload) {
        assert_eq!(artifact::Nack::parse(&nack.emit()), Ok(nack));
    }
}

/// The fast path reads exactly the Appends that are neither essential nor immediate, with the same result.
fn fast_path_agrees(payload: &[u8]) {
    let whole = match Report::parse(payload) {
        Ok(Report {
            base,
            operation:
                Operation::Append {
                    list,
                    entry_len,
                    entries,
                },
        }) if !base.essential && !base.immediate => Some(PlainAppend {
            list,
            entry_len,
            entries,
        }),
        _ => None,
    };
    assert_eq!(PlainAppend::parse(payload), whole);
}

/// The bytes that `emit` writes: exactly `len`; with a shorter buffer it fails.
fn written(len: usize, emit: impl Fn(&mut [u8]) -> Result<usize, wire::EmitError>) -> Vec<u8> {
    let mut out = vec![0xa5; len];
    assert_eq!(emit(&mut out[..len - 1]), Err(wire::EmitError::Short(len)));
    assert!(out.iter().all(|byte| *byte == 0xa5));
    assert_eq!(emit(&mut out), Ok(len));
    out
}

fn key_holds_together(key: &[u8]) {
    let all = hash::hashes(key);
    assert_eq!(
        hash::slots_n::<2>(key),
        ([all.slots[0], all.slots[1]], all.checksum)
    );
    assert_eq!(hash::collector_of(key), (all.slots[2] >> 24) as u8);
    if let Some(flow) = hash::flow_of(key) {
        let again = FlowBytes::of(&flow).expect("it has addresses");
        // IPv4 addresses mapped into IPv6 are the same 5-tuple in fewer bytes.
        assert!(again.as_slice() == key || key.len() == 37, "{key:02x?}");
    }
}

/// A RoCEv2 frame, unchanged and with a valid CRC: values are inside the frame and agree with its opcode, and parsing only the UDP
/// payload gives the same result if a socket could have sent it.
pub fn roce(frame: &[u8], _: &Profile) {
    if let Ok(packet) = Packet::parse(frame) {
        packet_holds_together(&packet, frame);
        brief_agrees(&packet, frame);
    }
    let mut sealed = frame.to_vec();
    if roce::seal(&mut sealed).is_ok() {
        match Packet::parse(&sealed) {
            Ok(packet) => {
                packet_holds_together(&packet, &sealed);
                brief_agrees(&packet, &sealed);
            }
            Err(refusal) => assert_ne!(refusal, wire::Refusal::BadIcrc),
        }
    }
    let [host, other] = [1, 2].map(|last| std::net::Ipv4Addr::new(10, 0, 0, last).into());
    let ends = Endpoints {
        source: host,
        destination: other,
        source_port: 0xc000,
    };
    if let Ok(packet) = Packet::parse_udp(frame, ends) {
        packet_holds_together(&packet, frame);
    }
}

/// The fast path for a frame of a known form agrees with the parser; with a bit changed, it does not match or agrees too.
fn brief_agrees(packet: &Packet<'_>, frame: &[u8]) {
    let mut known = HeaderTemplates::new();
    known.learn(frame, packet);
    let brief = known.read(frame);
    let fields = |packet: &Packet<'_>| (packet.bth.psn, packet.bth.ack_request, packet.reth);
    if let Some(brief) = brief {
        assert_eq!((brief.psn, brief.ack_request, Some(brief.reth)), fields(packet));
        assert_eq!((brief.payload, packet.fault), (packet.payload, None));
    }
    for bit in 0..frame.len().min(64) * 8 {
        let mut changed = frame.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Some(brief) = known.read(&changed) {
            let packet = Packet::parse(&changed).expect("what is read in brief is good");
            assert_eq!((brief.psn, brief.ack_request, Some(brief.reth)), fields(&packet));
        }
    }
}

fn packet_holds_together(packet: &Packet<'_>, frame: &[u8]) {
    let range = frame.as_ptr_range();
    let payload = packet.payload.as_ptr_range();
    assert!(packet.payload.is_empty() || range.start <= payload.start && payload.end <= range.end);
    let opcode = packet.bth.opcode;
    assert_eq!(packet.reth.is_some(), opcode.has_reth());
    assert_eq!(packet.immediate.is_some(), opcode.has_immediate());
    assert_eq!(packet.atomic.is_some(), opcode == Opcode::FetchAdd);
    assert_eq!(
        packet.aeth.is_some(),
        matches!(opcode, Opcode::Acknowledge | Opcode::AtomicAcknowledge)
    );
    assert_eq!(packet.atomic_ack.is_some(), opcode == Opcode::AtomicAcknowledge);
    assert_eq!(Psn::new(packet.bth.psn.value()), packet.bth.psn);
    if packet.fault.is_none() {
        assert!(packet.payload.len() <= roce::MAX_PAYLOAD && !matches!(opcode, Opcode::Other(_)));
        let whole = packet.reth.map(|reth| reth.len as usize);
        match opcode {
            Opcode::WriteOnly | Opcode::WriteOnlyImmediate => assert_eq!(Some(packet.payload.len()), whole),
            Opcode::WriteFirst => assert!(whole > Some(packet.payload.len())),
            _ => assert_eq!(whole, None),
        }
    }
}

/// Collector memory with arbitrary content: blocks, slots and trailers are read without a panic, and data written over them reads
/// back the same.
pub fn memory(bytes: &[u8], _: &Profile) {
    if let Ok(trailer) = BlockTrailer::check(bytes) {
        assert!(trailer.sequence != 0 && trailer.data_len() + layout::BLOCK_TRAILER_LEN <= bytes.len());
    }
    let mut block = bytes.to_vec();
    let room = bytes.len().saturating_sub(layout::BLOCK_TRAILER_LEN);
    let trailer = BlockTrailer {
        sequence: 9,
        count: (room / 3).min(255) as u16,
        entry_len: 3,
    };
    assert_eq!(trailer.seal(&mut block), bytes.len() >= layout::BLOCK_TRAILER_LEN);
    if bytes.len() >= layout::BLOCK_TRAILER_LEN {
        assert_eq!(BlockTrailer::check(&block), Ok(trailer));
    }
    if let Some((checksum, data)) = layout::slot_parts(bytes) {
        let mut slot = vec![0xa5; bytes.len()];
        let data_len = data.len().min(1024);
        let len = layout::put_slot(&mut slot, checksum, &data[..data_len], data_len as u16);
        assert_eq!(len, Some(data_len + layout::CHECKSUM_LEN));
        assert_eq!(
            slot[..data_len + layout::CHECKSUM_LEN],
            bytes[..data_len + layout::CHECKSUM_LEN]
        );
    }
    for hop in 0..=u8::MAX {
        assert_ne!(layout::postcard(bytes, hop), Some(layout::NO_HOP));
    }
    if let Some(trailer) = bytes.first_chunk() {
        let read = SketchTrailer::parse(trailer);
        assert_eq!(SketchTrailer::parse(&read.emit()), read);
    }
    for width in [4, 8] {
        let mut turned = bytes.to_vec();
        layout::swap_counter_bytes(&mut turned, width);
        layout::swap_counter_bytes(&mut turned, width);
        assert_eq!(turned, bytes);
    }
}
