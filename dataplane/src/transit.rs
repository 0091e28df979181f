//! INT transit node: adds the switch's record to the INT stack of a packet (wire-formats 1.3, 1.6, 1.7).

mod direct;

use wire::FlowKey;
use wire::int::header::Header;
use wire::int::{self, Sf};

use crate::export;
use crate::node::{IntOutcome, Node, PacketResult};
use crate::packet::CarriedInt;
use crate::packet::direct::{Common, Int};
use crate::report::Outbox;
use crate::sf::{self, Arrival, SwapResult};
use crate::visit::Visit;

/// Maximum length of a record, bytes: Hop ML has five bits.
const MAX_RECORD: usize = 31 * 4;

/// Processes a packet with INT that stays in the domain, and returns its outcome.
pub(crate) fn process(
    node: &mut Node,
    frame: &mut Vec<u8>,
    flow: Option<&FlowKey>,
    carried: &CarriedInt,
    visit: &Visit,
    out: &mut Outbox,
) -> PacketResult {
    if let Some(sf) = carried.sf.filter(|sf| !sf.urgent) {
        return match flow {
            Some(flow) => swap(node, frame, flow, carried, sf, visit),
            None => PacketResult::forward(IntOutcome::Refused),
        };
    }
    if carried.mode == int::Mode::Mx {
        return PacketResult::forward(export::mx(node, frame, flow, carried, visit, out));
    }
    let pushed = push(frame, carried, usize::from(visit.mtu), |record| {
        node.write_record(carried, visit, record)
    });
    let outcome = match pushed {
        PushResult::Added => IntOutcome::Recorded,
        PushResult::HopsExceeded => IntOutcome::HopsExceeded,
        PushResult::MtuExceeded => IntOutcome::MtuExceeded,
    };
    PacketResult {
        sf: carried.sf,
        ..PacketResult::forward(outcome)
    }
}

/// Processes a common packet like [`process`]. Returns `None`, with nothing changed, if the packet needs [`process`].
#[inline(always)]
pub(crate) fn process_direct(
    node: &mut Node,
    frame: &mut Vec<u8>,
    common: Common,
    int: Int,
    visit: &Visit,
) -> Option<PacketResult> {
    if int.is_single() {
        direct::swap(node, frame, common, int, visit)
    } else {
        direct::push(node, frame, common, int, visit)
    }
}

/// Swaps the record of an SF-INT packet with the register, by the nine rules. The packet keeps its size.
fn swap(
    node: &mut Node,
    frame: &mut [u8],
    flow: &FlowKey,
    carried: &CarriedInt,
    sf: Sf,
    visit: &Visit,
) -> PacketResult {
    let Node {
        registers,
        stats,
        id,
        config,
        ..
    } = node;
    let header = carried.header();
    let (outcome, sf) = carried.headers.change(frame, header..carried.end, |int| {
        let (header_bytes, record) = int.split_at_mut(carried.stack() - header);
        if carried.remaining == 0 {
            stats.sf_rules[0] += 1;
            if let Ok(mut header) = Header::new_checked(header_bytes) {
                header.set_hops_exceeded();
            }
            return (IntOutcome::HopsExceeded, sf);
        }
        let arrival = Arrival {
            tag: sf::tag(flow),
            sf,
            bitmap: carried.bitmap,
            record,
            now: visit.egress_ts,
        };
        let SwapResult { rule, sf: new_sf, .. } = registers.swap(arrival, |record| {
            visit.write_record(*id, carried.bitmap, config.available, record)
        });
        stats.sf_rules[usize::from(rule.number) % 10] += 1;
        let is_local = rule.forward.0 == sf::Forward::Local;
        if let Ok(mut header) = Header::new_checked(header_bytes) {
            header.set_sf(new_sf);
            header.set_remaining(carried.remaining - u8::from(is_local));
        }
        (
            if is_local {
                IntOutcome::Recorded
            } else {
                IntOutcome::Swapped
            },
            new_sf,
        )
    });
    PacketResult {
        sf: Some(sf),
        ..PacketResult::forward(outcome)
    }
}

/// Result of adding a record to a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushResult {
    /// The record is on the stack, and the Remaining Hop Count was decremented.
    Added,
    /// The Remaining Hop Count was 0: nothing was added, and E was set.
    HopsExceeded,
    /// The packet would exceed the egress MTU or the shim's length field: nothing was added, and M was set.
    MtuExceeded,
}

/// Adds the record that `write` writes as the most recent one, if it fits an IP packet of `mtu` bytes. Words that `write`
/// leaves out, such as those of an unknown domain, are all-ones.
pub(crate) fn push(
    frame: &mut Vec<u8>,
    carried: &CarriedInt,
    mtu: usize,
    write: impl FnOnce(&mut [u8]),
) -> PushResult {
    let record_len = usize::from(carried.record_words()) * 4;
    if carried.remaining > 0
        && carried.headers.ip_len(frame) + record_len <= mtu
        && carried.has_space(record_len)
        && carried.version == int::Version::V2
        && !carried.headers.has_option()
    {
        push_v2(frame, carried, write, record_len);
        return PushResult::Added;
    }
    push_any(frame, carried, write, mtu)
}

/// Adds a record in the common case: INT 2.x after L4, with space for it. Only length and hop count change in shim and header.
#[inline]
fn push_v2(frame: &mut Vec<u8>, carried: &CarriedInt, write: impl FnOnce(&mut [u8]), record_len: usize) {
    // Offsets from the shim: the shim's length, and the Remaining Hop Count.
    const LENGTH: usize = 1;
    const REMAINING: usize = int::shim::LEN + 3;
    carried.headers.grow(
        frame,
        carried.shim,
        carried.stack(),
        record_len,
        |record| {
            record.fill(0xff);
            write(record);
        },
        |headers| {
            headers[LENGTH] += carried.hop_ml;
            headers[REMAINING] -= 1;
        },
    );
}

fn push_any(
    frame: &mut Vec<u8>,
    carried: &CarriedInt,
    write: impl FnOnce(&mut [u8]),
    mtu: usize,
) -> PushResult {
    let record_len = usize::from(carried.record_words()) * 4;
    // Reserved bits stay as they are: GÉANT uses them for a sequence number.
    let old = carried.shim..carried.stack();
    let headers_len = old.len();
    let mut bytes = [0xff; int::shim::LEN + int::header::LEN_2 + MAX_RECORD];
    bytes[..headers_len].copy_from_slice(&frame[old.clone()]);
    let Ok(mut header) = Header::new_checked(&mut bytes[int::shim::LEN..headers_len]) else {
        return PushResult::MtuExceeded;
    };
    let pushed = if carried.remaining == 0 {
        header.set_hops_exceeded();
        PushResult::HopsExceeded
    } else if carried.headers.ip_len(frame) + record_len > mtu || !carried.has_space(record_len) {
        header.set_mtu_exceeded();
        PushResult::MtuExceeded
    } else {
        header.set_remaining(carried.remaining - 1);
        bytes[carried.length_field()] += carried.record_words();
        write(&mut bytes[headers_len..headers_len + record_len]);
        PushResult::Added
    };
    let end = if pushed == PushResult::Added {
        headers_len + record_len
    } else {
        headers_len
    };
    carried.headers.splice(frame, old, &bytes[..end]);
    pushed
}

/// Adds a record before all others of a packet's stack without counting a hop, for the report of a sink whose record is on the
/// stack. Returns INT at its new position.
pub(crate) fn prepend(frame: &mut Vec<u8>, carried: &CarriedInt, record: &[u8]) -> CarriedInt {
    let mut updated = *carried;
    if !carried.has_space(record.len()) {
        return updated;
    }
    updated.int_words += carried.record_words();
    updated.end += record.len();
    let mut bytes = [0xff; int::shim::LEN + int::header::LEN_2 + MAX_RECORD];
    let headers_len = updated.emit(&mut bytes);
    let end = (headers_len + record.len()).min(bytes.len());
    bytes[headers_len..end].copy_from_slice(&record[..end - headers_len]);
    carried
        .headers
        .splice(frame, carried.shim..carried.shim + headers_len, &bytes[..end]);
    updated.headers = carried.headers.reread(frame);
    updated
}
