//! Converts the INT records of a fully decoded SF-INT report to the joiner's [`SfRecord`]: values in the collector's units, and
//! the timestamps as reported.

use wire::int::Sf;
use wire::{Items, Layout, Report};

use super::set::SfRecord;
use crate::config::Units;
use crate::decode::{ABSENT, NO_VALUE, NodeUnits, Reading};

impl SfRecord {
    /// Reads a record in place; all other fields are copied from `self`. The units are the node's, or else the reporter's.
    pub(super) fn read(self, layout: &Layout, record: &[u8], reporter: Units, nodes: &NodeUnits) -> Self {
        self.read_node(layout.node_id(record), layout, record, reporter, nodes)
    }

    /// Reads a record that may not contain its node id; `node` is the id.
    fn read_node(
        self,
        node: u32,
        layout: &Layout,
        record: &[u8],
        reporter: Units,
        nodes: &NodeUnits,
    ) -> Self {
        let units = nodes.of(node, reporter);
        Self {
            reading: Reading::of_record(layout, record, units),
            incomparable: !units.same_as(&reporter),
            ingress: layout.ingress_ts(record),
            egress: layout.egress_ts(record),
            wide: layout.wide_ts(),
            ..self
        }
    }

    /// Reads the sink's own record; all other fields are copied from `self`. `None` if the report does not identify its node.
    #[inline]
    pub(super) fn read_sink(
        self,
        report: &Report<'_>,
        sf: Sf,
        reporter: Units,
        nodes: &NodeUnits,
    ) -> Option<Self> {
        let record = match &report.metadata {
            // The report's header has the node id. Timestamps in the older headers are read only by the full decoder.
            Some(metadata) if report.ts.is_none() => {
                let has_node_id = metadata.layout.carried().contains(Items::NODE_ID);
                let node = if has_node_id {
                    metadata.layout.node_id(metadata.record)
                } else {
                    report.node_id.unwrap_or(ABSENT)
                };
                let mut record = self.read_node(node, &metadata.layout, metadata.record, reporter, nodes);
                record.reading.node = node;
                record
            }
            Some(_) => self.with_hop(&report.metadata_hop(), reporter, nodes),
            // No metadata, but the report proves that the sink is on the path.
            None if sf.is_of_one_packet() => {
                let node = report.node_id?;
                Self {
                    reading: Reading {
                        node,
                        ..Reading::NOTHING
                    },
                    ..self
                }
            }
            None => return None,
        };
        (record.reading.node != ABSENT).then_some(record)
    }

    /// Converts a decoded hop; all other fields are copied from `self`.
    fn with_hop(self, hop: &wire::Hop, reporter: Units, nodes: &NodeUnits) -> Self {
        let units = nodes.of(hop.node_id.unwrap_or(ABSENT), reporter);
        Self {
            reading: Reading::of(hop, units),
            incomparable: !units.same_as(&reporter),
            ingress: hop.ingress_ts.unwrap_or(NO_VALUE),
            egress: hop.egress_ts.unwrap_or(NO_VALUE),
            wide: hop.wide_ts,
            ..self
        }
    }
}
