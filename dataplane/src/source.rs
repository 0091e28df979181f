//! INT source: inserts INT into a watched packet (wire-formats 1.1, 1.2). The stack is empty at first; the source then pushes
//! its own record like any other node.

use wire::FlowKey;
use wire::int::header::{Md2, Md10, Mx2};
use wire::int::sf::State;
use wire::int::shim::{Next, Shim1, Shim2};
use wire::int::{Sf, header, layout, shim};

use crate::config::Mark;
use crate::node::{IntOutcome, Node, PacketResult};
use crate::packet::{Headers, ParsedPacket, UDP};
use crate::sf::{self, MAX_RECORD};
use crate::visit::Visit;
use crate::watchlist::{Mode, Watch};

/// Result of the source for one packet.
pub(crate) enum SourceResult {
    /// The packet carries INT, and this switch processes it like any other node.
    Continue(ParsedPacket),
    /// The packet is completely processed.
    Finished(PacketResult),
}

/// Inserts INT into a watched packet that carries none.
pub(crate) fn process(
    node: &mut Node,
    frame: &mut Vec<u8>,
    flow: &FlowKey,
    headers: &Headers,
    watch: &Watch,
    visit: &Visit,
) -> SourceResult {
    if watch.mode == Mode::Sf {
        return process_sf(node, frame, flow, headers, watch, visit);
    }
    let mark = node.config.mark;
    let by_option = mark.hop_by_hop && headers.v6 && watch.mode != Mode::Md10;
    // INT after L4 is not inserted behind IPv6 options.
    if headers.has_option() && !by_option {
        return SourceResult::Finished(PacketResult::forward(IntOutcome::Plain));
    }
    let mtu = usize::from(visit.mtu);
    let inserted = if by_option {
        insert_option(frame, headers, watch, mtu)
    } else {
        insert(frame, headers, watch, mark, mtu)
    };
    if let Err(outcome) = inserted {
        return SourceResult::Finished(PacketResult::forward(outcome));
    }
    let packet = node.parse(frame);
    match node.parse_fully(frame, packet) {
        Ok(parsed) if parsed.carried.is_some() => SourceResult::Continue(parsed),
        _ => SourceResult::Finished(PacketResult::forward(IntOutcome::Refused)),
    }
}

/// Inserts SF-INT. Every packet starts with the record of the source.
fn process_sf(
    node: &mut Node,
    frame: &mut Vec<u8>,
    flow: &FlowKey,
    headers: &Headers,
    watch: &Watch,
    visit: &Visit,
) -> SourceResult {
    let mut record = [0; MAX_RECORD];
    let len = usize::from(layout::words_2(watch.bitmap)) * 4;
    let record = &mut record[..len];
    visit.write_record(node.id, watch.bitmap, node.config.available, record);
    let number = node
        .registers
        .assign_packet_id(sf::tag(flow), visit.queue_occupancy);
    let sf = Sf {
        urgent: number.urgent,
        state: State::Medium,
        packet_id: number.packet_id,
    };
    let mtu = usize::from(visit.mtu);
    if let Err(outcome) = insert_sf(frame, headers, watch, node.config.mark, sf, record, mtu) {
        return SourceResult::Finished(PacketResult::forward(outcome));
    }
    node.stats.urgent += u64::from(number.urgent);
    if !visit.to_edge {
        return SourceResult::Finished(PacketResult {
            sf: Some(sf),
            ..PacketResult::forward(IntOutcome::Recorded)
        });
    }
    // This switch is both source and sink.
    let packet = node.parse(frame);
    match node.parse_fully(frame, packet) {
        Ok(parsed) if parsed.carried.is_some() => SourceResult::Continue(ParsedPacket {
            flow: Some(*flow),
            ..parsed
        }),
        _ => SourceResult::Finished(PacketResult::forward(IntOutcome::Refused)),
    }
}

/// Result of an insertion. On an error the packet is unchanged: the added bytes would exceed the egress MTU, or a sink could
/// not restore the packet.
type InsertResult = Result<(), IntOutcome>;

/// Inserts shim and metadata header as `watch` demands, unless the packet would exceed `mtu` bytes.
fn insert(frame: &mut Vec<u8>, headers: &Headers, watch: &Watch, mark: Mark, mtu: usize) -> InsertResult {
    let mut bytes = [0; shim::LEN + header::LEN_2];
    let port = mark.port.filter(|_| watch.mode != Mode::Md10);
    let original_field = original_field(frame, headers, port);
    let len = write_headers(watch, original_field, headers.dscp, &mut bytes);
    insert_marked(frame, headers, mark, port, original_field, &bytes[..len], mtu)
}

/// Inserts INT into the IPv6 hop-by-hop header.
fn insert_option(frame: &mut Vec<u8>, headers: &Headers, watch: &Watch, mtu: usize) -> InsertResult {
    let mut bytes = [0; shim::LEN + header::LEN_2];
    let len = write_headers(watch, Next::Nothing, 0, &mut bytes);
    insert_as_option(frame, headers, &bytes[..len], mtu)
}

/// Inserts `bytes` as an option of the IPv6 hop-by-hop header.
fn insert_as_option(frame: &mut Vec<u8>, headers: &Headers, bytes: &[u8], mtu: usize) -> InsertResult {
    let option_len = headers
        .option_len(frame, bytes.len())
        .ok_or(IntOutcome::NotRestorable)?;
    if headers.ip_len(frame) + option_len > mtu {
        return Err(IntOutcome::MtuExceeded);
    }
    headers.insert_option(frame, bytes);
    Ok(())
}

/// Inserts SF-INT with the source's own record, unless the packet would exceed `mtu` bytes: over IPv6 into the hop-by-hop
/// header, otherwise after L4. The packet keeps this size until the sink, unless it is urgent.
fn insert_sf(
    frame: &mut Vec<u8>,
    headers: &Headers,
    watch: &Watch,
    mark: Mark,
    sf: Sf,
    record: &[u8],
    mtu: usize,
) -> InsertResult {
    const HEADERS_LEN: usize = shim::LEN + header::LEN_2;
    let mut bytes = [0; HEADERS_LEN + MAX_RECORD];
    let len = HEADERS_LEN + record.len();
    let port = mark.port.filter(|_| !headers.v6);
    let original_field = if headers.v6 {
        Next::Nothing
    } else {
        original_field(frame, headers, port)
    };
    let hop_ml = (record.len() / 4) as u8;
    Shim2 {
        kind: Shim2::SF,
        length: (len / 4) as u8 - 1,
        next: original_field,
    }
    .emit(&mut bytes);
    Md2::stateful(hop_ml, watch.hops.saturating_sub(1), watch.bitmap, sf).emit(&mut bytes[shim::LEN..]);
    bytes[HEADERS_LEN..len].copy_from_slice(record);
    if !headers.v6 {
        return insert_marked(frame, headers, mark, port, original_field, &bytes[..len], mtu);
    }
    insert_as_option(frame, headers, &bytes[..len], mtu)
}

/// Returns the original field value that the shim stores.
fn original_field(frame: &[u8], headers: &Headers, port: Option<u16>) -> Next {
    match (port, headers.proto) {
        (None, _) => Next::Dscp(headers.dscp),
        (Some(_), UDP) => Next::Port(headers.dst_port(frame)),
        (Some(_), proto) => Next::Protocol(proto),
    }
}

/// Inserts `bytes` after L4, and marks the packet by DSCP or port.
fn insert_marked(
    frame: &mut Vec<u8>,
    headers: &Headers,
    mark: Mark,
    port: Option<u16>,
    original_field: Next,
    bytes: &[u8],
    mtu: usize,
) -> InsertResult {
    let udp_len = if matches!(original_field, Next::Protocol(_)) {
        wire::udp::HEADER_LEN
    } else {
        0
    };
    if headers.ip_len(frame) + bytes.len() + udp_len > mtu {
        return Err(IntOutcome::MtuExceeded);
    }
    if !headers.checksums_can_be_restored(frame, udp_len != 0) {
        return Err(IntOutcome::NotRestorable);
    }
    match (port, original_field) {
        (Some(port), Next::Protocol(_)) => headers.insert_udp(frame, port, bytes),
        (Some(port), _) => {
            headers.splice(frame, headers.body()..headers.body(), bytes);
            headers.set_dst_port(frame, port);
        }
        (None, _) => {
            headers.splice(frame, headers.body()..headers.body(), bytes);
            headers.set_dscp(frame, mark.dscp);
        }
    }
    Ok(())
}

/// Writes shim and metadata header, and returns their length.
fn write_headers(watch: &Watch, original_field: Next, dscp: u8, out: &mut [u8]) -> usize {
    let bitmap = watch.bitmap;
    let (shim, header) = out.split_at_mut(shim::LEN);
    let kind = match watch.mode {
        Mode::Md10 => {
            let length = ((shim::LEN + header::LEN_1) / 4) as u8;
            Shim1 {
                kind: 1,
                length,
                last: dscp << 2,
            }
            .emit(shim);
            let hop_ml = layout::words_10(bitmap);
            Md10 {
                hop_ml,
                remaining: watch.hops,
                bitmap,
                ..Md10::default()
            }
            .emit(header);
            return shim::LEN + header::LEN_1;
        }
        Mode::Md21 => {
            let hop_ml = layout::words_2(bitmap);
            Md2 {
                hop_ml,
                remaining: watch.hops,
                bitmap,
                ..Md2::default()
            }
            .emit(header);
            Shim2::MD
        }
        Mode::Mx21 | Mode::Postcard | Mode::Sf => {
            Mx2 {
                bitmap,
                ..Mx2::default()
            }
            .emit(header);
            Shim2::MX
        }
    };
    let length = (header::LEN_2 / 4) as u8;
    Shim2 {
        kind,
        length,
        next: original_field,
    }
    .emit(shim);
    shim::LEN + header::LEN_2
}
