//! Transit: adds this switch's record to a packet's INT stack (wire-formats 1.3, 1.6, 1.7).

use wire::int;
use wire::int::Flags;

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

/// Adds what `write` writes as the most recent record, if there is room for all of it in an IP packet of `mtu` bytes. Words that are
/// not written, such as those of a domain we know nothing of, are all-ones.
pub(crate) fn push(
    frame: &mut Vec<u8>,
    carried: &Carried,
    write: impl FnOnce(&mut [u8]),
    mtu: usize,
) -> Pushed {
    let record_len = usize::from(carried.hop_ml) * 4;
    if carried.remaining > 0
        && carried.headers.ip_len(frame) + record_len <= mtu
        && carried.holds(record_len)
        && carried.version == int::Version::V2
        && !carried.headers.has_option()
    {
        push_2(frame, carried, write, record_len);
        return Pushed::Added;
    }
    push_any(frame, carried, write, mtu)
}

/// The common case: INT 2.x behind L4, and room for the record. Of shim and header only length and hop count change.
#[inline]
fn push_2(frame: &mut Vec<u8>, carried: &Carried, write: impl FnOnce(&mut [u8]), record_len: usize) {
    const LENGTH: usize = 1;
    const REMAINING: usize = int::shim::LEN + 3;
    let fill = |record: &mut [u8]| {
        record.fill(0xff);
        write(record);
    };
    carried.headers.grow(frame, (carried.shim, carried.stack(), record_len), fill, |head| {
        head[LENGTH] += carried.hop_ml;
        head[REMAINING] -= 1;
    });
}

fn push_any(frame: &mut Vec<u8>, carried: &Carried, write: impl FnOnce(&mut [u8]), mtu: usize) -> Pushed {
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
        write(&mut bytes[head..head + record_len]);
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
