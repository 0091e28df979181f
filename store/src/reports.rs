//! Row type of the optional table of all decoded Telemetry Reports, with one row per hop (view `reports`).

use collector::event::Nanos;
use wire::report::{Flags, Report};
use wire::{FlowKey, Hop};

/// An owned copy of a decoded report. Values are as the device sent them, without unit conversion, but for the latencies.
#[derive(Clone, PartialEq, Debug)]
pub struct ReportRow {
    /// Time of receipt, ns since 1970.
    pub ts: Nanos,
    /// Source address (IPv4 mapped into IPv6).
    pub source: [u8; 16],
    /// The version of the report format: `0.5`, `1.0` or `2.0`.
    pub version: &'static str,
    /// The node id of the reporter.
    pub node: Option<u32>,
    /// The hw_id: a subsystem inside the reporter.
    pub hw_id: u8,
    /// The report's sequence number.
    pub seq: u32,
    /// The reasons for which the report was sent.
    pub flags: Flags,
    /// The RepType of a report of version 2.0.
    pub report_type: Option<u8>,
    /// The device's drop reason code.
    pub drop_reason: Option<u8>,
    /// The flow of the reported packet.
    pub flow: Option<FlowKey>,
    /// The hops in forwarding order.
    pub hops: Vec<Hop>,
    /// Time of the packet in the node of each hop, ns, as the collector reads it: reported, or computed from the timestamps.
    /// `None` if it is unknown or implausible.
    pub latencies: Vec<Option<Nanos>>,
    /// True if the hops form a path. A record of SF-INT has one hop; the other hops are in other reports.
    pub is_path: bool,
}

impl ReportRow {
    /// Copies the stored fields of `report`, received at `ts` from `source`. `latency` returns the time of the packet in the
    /// node of a hop, ns.
    pub fn new(
        report: &Report<'_>,
        ts: Nanos,
        source: [u8; 16],
        latency: impl Fn(&Hop) -> Option<Nanos>,
    ) -> Self {
        let hops: Vec<Hop> = report.hops().collect();
        Self {
            ts,
            source,
            version: report.version.name(),
            node: report.node_id,
            hw_id: report.hw_id,
            seq: report.seq,
            flags: report.flags,
            report_type: report.report_type,
            drop_reason: report.drop_reason,
            flow: report.flow,
            latencies: hops.iter().map(latency).collect(),
            hops,
            is_path: !report.is_single_record(),
        }
    }

    /// Returns the node ID of each hop, `u32::MAX` where unavailable. Empty if no hop has a node ID or the hops are not a path.
    pub(crate) fn path(&self) -> Vec<u32> {
        if !self.is_path || self.hops.iter().all(|hop| hop.node_id.is_none()) {
            return Vec::new();
        }
        self.hops
            .iter()
            .map(|hop| hop.node_id.unwrap_or(u32::MAX))
            .collect()
    }

    /// Returns the flags' names, with commas between them.
    pub(crate) fn flag_names(&self) -> String {
        let set = Flags::NAMES.iter().filter(|(flag, _)| self.flags.contains(*flag));
        set.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_of_sf_int_are_no_path() {
        let mut decoder = wire::Decoder::new(wire::Profile::default());
        let paths = ["tr20_emb", "sfint_rep", "sfint_rep_medium"].map(|name| {
            let bytes = testkit::vectors::bytes(name);
            let report = decoder.reports(&bytes).next().unwrap().unwrap();
            let row = ReportRow::new(&report, 1, [0; 16], |_| None);
            (row.hops.len(), row.path())
        });
        assert_eq!(paths, [(3, vec![1, 2, 3]), (1, vec![]), (2, vec![])]);
    }
}
