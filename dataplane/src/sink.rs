//! Sink: takes INT out and gives the packet back as it was before the source (wire-formats 1.2, "sink repair").

use wire::packet::Mark;

use crate::packet::{Carried, OPTION_HEAD};

/// Removes INT from a packet and restores what the source changed: lengths, checksums, port, DSCP, protocol.
pub(crate) fn strip(frame: &mut Vec<u8>, carried: &Carried) {
    let headers = &carried.headers;
    if headers.has_option() {
        return headers.take_option(frame, carried.shim - OPTION_HEAD);
    }
    match (carried.mark, carried.original.proto) {
        // NPT 2: the UDP header was put in with INT, and goes with it.
        (Mark::Port, Some(proto)) => headers.unwrap(frame, carried.end, proto),
        (Mark::Port, None) => {
            headers.splice(frame, carried.shim..carried.end, &[]);
            if let Some(port) = carried.original.port {
                headers.set_dport(frame, port);
            }
        }
        _ => {
            headers.splice(frame, carried.shim..carried.end, &[]);
            if let Some(dscp) = carried.original.dscp {
                headers.set_dscp(frame, dscp);
            }
        }
    }
}
