//! Fast path of the transit node, for common packets of INT-MD 2.x and SF-INT whose headers [`direct`] has read. Checksums are
//! updated by the sums of added and removed bytes (RFC 1624).
//!
//! [`direct`]: crate::packet::direct

use wire::checksum::complement;
use wire::int::header::{self, Header};
use wire::int::{Sf, shim};

use crate::node::{IntOutcome, Node, PacketResult};
use crate::packet::direct::{Common, Int};
use crate::packet::rewrite::{open_gap, set_length, update_l4};
use crate::sf::{self, Arrival, SwapResult};
use crate::visit::Visit;

const HEADERS_LEN: usize = shim::LEN + header::LEN_2;

/// Adds this node's record before the others of an INT-MD packet or an urgent SF-INT packet. `None` means the general code is
/// needed.
#[inline(always)]
pub(super) fn push(
    node: &Node,
    frame: &mut Vec<u8>,
    common: Common,
    int: Int,
    visit: &Visit,
) -> Option<PacketResult> {
    let len = usize::from(int.hop_ml) * 4;
    let headers = common.headers;
    let has_room = int.remaining > 0
        && common.ip_end - headers.ip + len <= usize::from(visit.mtu)
        && usize::from(int.words) + usize::from(int.hop_ml) <= 0xff;
    if !has_room || headers.has_option() {
        return None;
    }
    let stack_start = int.shim + HEADERS_LEN;
    open_gap(frame, stack_start, len);
    let (head, rest) = frame.split_at_mut_checked(stack_start)?;
    let sum = visit.write_record(node.id, int.bitmap, node.config.available, rest.get_mut(..len)?);
    let int_headers = head.last_chunk_mut::<HEADERS_LEN>()?;
    int_headers[1] = int.words.wrapping_add(int.hop_ml);
    int_headers[shim::LEN + 3] = int.remaining.wrapping_sub(1);
    let grown = sum + u64::from(int.hop_ml) + complement(1);
    set_length(head, headers, common.ip_end - headers.ip + len, None);
    update_l4(head, headers, Some(len as u16), grown, None);
    Some(PacketResult {
        sf: int.sf(),
        ..PacketResult::forward(IntOutcome::Recorded)
    })
}

/// Returns the word sum of the SF-INT header fields that a swap changes: state and packet ID.
fn header_sum(sf: Sf) -> u64 {
    const STATE: u32 = 5; // Offset of the state bits in the first 16 bits.
    (u64::from(sf.state as u8) << STATE) + u64::from(sf.packet_id)
}

/// Swaps the arriving record of an SF-INT packet with the one in the register. `None` means the general code is needed.
#[inline(always)]
pub(super) fn swap(
    node: &mut Node,
    frame: &mut [u8],
    common: Common,
    int: Int,
    visit: &Visit,
) -> Option<PacketResult> {
    let Node {
        registers,
        stats,
        id,
        config,
        ..
    } = node;
    let sf = int.sf().filter(|_| int.remaining > 0)?;
    let tag = common.flow_id(frame)?;
    let (head, rest) = frame.split_at_mut_checked(int.shim + HEADERS_LEN)?;
    let record = rest.get_mut(..usize::from(int.hop_ml) * 4)?;
    let arrival = Arrival {
        tag,
        sf,
        bitmap: int.bitmap,
        record,
        now: visit.egress_ts,
    };
    let SwapResult {
        rule,
        sf: new_sf,
        sums,
    } = registers.swap(arrival, |record| {
        visit.write_record(*id, int.bitmap, config.available, record)
    });
    stats.sf_rules[usize::from(rule.number) % 10] += 1;
    let is_local = rule.forward.0 == sf::Forward::Local;
    let int_headers = head.last_chunk_mut::<{ header::LEN_2 }>()?;
    if let Ok(mut head) = Header::new_checked(&mut int_headers[..]) {
        head.set_sf(new_sf);
        head.set_remaining(int.remaining - u8::from(is_local));
    }
    if !common.headers.has_option() {
        let changed = header_sum(new_sf)
            + sums.departed
            + complement(header_sum(sf) + sums.arrived + u64::from(is_local));
        update_l4(head, common.headers, None, changed, None);
    }
    let outcome = if is_local {
        IntOutcome::Recorded
    } else {
        IntOutcome::Swapped
    };
    Some(PacketResult {
        sf: Some(new_sf),
        ..PacketResult::forward(outcome)
    })
}
