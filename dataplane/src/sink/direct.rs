//! Fast path of the sink, for common packets of INT-MD 2.x and SF-INT whose headers [`direct`] has read. Checksums are updated
//! by the sums of added and removed bytes (RFC 1624).
//!
//! [`direct`]: crate::packet::direct

use wire::checksum::{complement, words};
use wire::int::{Flags, Stack, header, shim};
use wire::packet::Mark;

use crate::node::{IntOutcome, Node, PacketResult};
use crate::packet::direct::{Common, Int};
use crate::packet::rewrite::{set_length, update_l4};
use crate::report::{Outbox, ReportedPacket};
use crate::sf::Form;
use crate::visit::{Verdict, Visit};

const HEADS: usize = shim::LEN + header::LEN_2;

/// Reports the packet, unless a filter suppresses the report, and removes INT. Returns `None`, with nothing changed, if this
/// packet needs the general code.
#[inline(always)]
pub(crate) fn process(
    node: &mut Node,
    frame: &mut Vec<u8>,
    common: Common,
    int: Int,
    visit: &Visit,
    out: &mut Outbox,
) -> Option<PacketResult> {
    let other_form = if int.is_single() {
        node.config.sf.form != Form::Full
    } else {
        node.config.format.metadata_on_stack
    };
    let packet = ReportedPacket::direct(frame, common, int);
    if other_form || common.headers.has_option() || !node.exporter.is_direct(&packet) {
        return None;
    }
    let suppressed =
        !node.filters.is_empty() && int.sf().is_none() && suppresses(node, frame, common, int, visit);
    if !suppressed {
        let bits = int.bitmap & node.config.available;
        if !node.exporter.flow_report_direct(frame, &packet, bits, visit, out) {
            return None;
        }
    }
    let outcome = if suppressed {
        IntOutcome::Filtered
    } else {
        IntOutcome::Reported
    };
    strip(frame, common, int)?;
    let discard = int.flags().contains(Flags::DISCARD);
    let verdict = if discard {
        Verdict::Discard
    } else {
        Verdict::Forward
    };
    Some(PacketResult {
        outcome,
        verdict,
        sf: int.sf().filter(|_| !suppressed),
    })
}

/// Returns whether the filters suppress the report of a packet.
#[inline]
fn suppresses(node: &mut Node, frame: &[u8], common: Common, int: Int, visit: &Visit) -> bool {
    let Some(flow) = common.flow(frame) else {
        return false;
    };
    let bytes = frame.get(int.shim + HEADS..int.end).unwrap_or_default();
    let layout = *node.cache.layout();
    let count = layout.records(bytes.len() / 4) as u8;
    node.suppresses_path(
        &flow,
        int.flags(),
        &Stack { bytes, layout, count },
        int.bitmap,
        visit,
    )
}

/// Removes INT, and restores the port or DSCP.
#[inline(always)]
fn strip(frame: &mut Vec<u8>, common: Common, int: Int) -> Option<()> {
    let headers = common.headers;
    let len = int.end - int.shim;
    let gone = complement(words(frame.get(int.shim..int.end)?));
    set_length(
        frame,
        headers,
        common.ip_end - headers.ip - len,
        int.original.dscp.filter(|_| int.mark == Mark::Dscp),
    );
    update_l4(
        frame,
        headers,
        Some((len as u16).wrapping_neg()),
        gone,
        int.original.port.filter(|_| int.mark == Mark::Port),
    );
    let end = frame.len();
    frame.copy_within(int.end..end, int.shim);
    frame.truncate(end - len);
    Some(())
}
