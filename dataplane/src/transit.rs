//! Transit: adds this switch's record to a packet's INT stack (wire-formats 1.3, 1.6, 1.7).

use wire::int::Flags;
use wire::{Hop, int};

use crate::packet::Carried;

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is on the stack and the Remaining Hop Count is one less.
    Added,
    /// The Remaining Hop Count was 0: nothing was added, E is set.
    HopsExceeded,
    /// The packet would not have fitted the egress MTU, or the shim's length field: nothing was added, M is set.
    MtuExceeded,
}

/// Longest record: Hop ML has five bits.
const MAX_RECORD: usize = 31 * 4;

/// Adds `hop` as the most recent record, if there is room for all of it in an IP packet of `mtu` bytes. Items that `hop` lacks,
/// and words that belong to a domain we know nothing of, are all-ones.
pub(crate) fn push(frame: &mut Vec<u8>, carried: &Carried, hop: &Hop, mtu: usize) -> Pushed {
    let record_len = usize::from(carried.hop_ml) * 4;
    let mut after = *carried;
    let pushed = if carried.remaining == 0 {
        after.flags = after.flags.with(Flags::HOPS_EXCEEDED, true);
        Pushed::HopsExceeded
    } else if carried.headers.ip_len(frame) + record_len > mtu || !carried.holds(record_len) {
        after.flags = after.flags.with(Flags::MTU_EXCEEDED, true);
        Pushed::MtuExceeded
    } else {
        after.remaining -= 1;
        after.int_words += carried.hop_ml;
        Pushed::Added
    };
    let mut bytes = [0xff; int::shim::LEN + int::header::LEN_2 + MAX_RECORD];
    let head = after.emit(&mut bytes);
    let end = if pushed == Pushed::Added {
        carried.layout.write(hop, &mut bytes[head..head + record_len]);
        head + record_len
    } else {
        head
    };
    carried.headers.splice(frame, carried.shim..carried.shim + head, &bytes[..end]);
    pushed
}

/// Lays a record before all others of a packet's stack, and counts nothing: what a sink does for a report that has its record
/// there. Answers where INT lies afterwards.
pub(crate) fn lay(frame: &mut Vec<u8>, carried: &Carried, record: &[u8]) -> Carried {
    let mut after = *carried;
    if !carried.holds(record.len()) {
        return after;
    }
    after.int_words += carried.hop_ml;
    after.end += record.len();
    let mut bytes = [0xff; int::shim::LEN + int::header::LEN_2 + MAX_RECORD];
    let head = after.emit(&mut bytes);
    let end = (head + record.len()).min(bytes.len());
    bytes[head..end].copy_from_slice(&record[..end - head]);
    carried.headers.splice(frame, carried.shim..carried.shim + head, &bytes[..end]);
    after.headers = carried.headers.again(frame);
    after
}
