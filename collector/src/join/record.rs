//! Records of a report that the full decoder reads, as input of the joiner.

use wire::int::Sf;
use wire::{Items, Layout, Report};

use super::set::Record;
use crate::config::Units;
use crate::decode::{ABSENT, NO_VALUE, NodeUnits, Reading};

impl Record {
    /// Reads a record in place, with the other fields of this one. The units are those of its node, or the reporter's.
    pub(super) fn read(self, layout: &Layout, record: &[u8], reporter: Units, nodes: &NodeUnits) -> Self {
        self.read_of(layout.node_id(record), layout, record, reporter, nodes)
    }

    /// The same for the record of a node that the record may not name.
    fn read_of(self, node: u32, layout: &Layout, record: &[u8], reporter: Units, nodes: &NodeUnits) -> Self {
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

    /// Reads the sink's own record, with the other fields of this one.
    #[inline]
    pub(super) fn own(self, report: &Report<'_>, sf: Sf, reporter: Units, nodes: &NodeUnits) -> Option<Self> {
        let record = match &report.metadata {
            // The report's header contains the node id; only the full decoder reads timestamps of older headers.
            Some(own) if report.ts.is_none() => {
                let named = own.layout.carried().contains(Items::NODE_ID);
                let node = if named {
                    own.layout.node_id(own.record)
                } else {
                    report.node_id.unwrap_or(ABSENT)
                };
                let mut record = self.read_of(node, &own.layout, own.record, reporter, nodes);
                record.reading.node = node;
                record
            }
            Some(_) => self.with(&report.metadata_hop(), reporter, nodes),
            // At least the sink's position on the path is known.
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

    /// The record of a hop, with the other fields of this one.
    fn with(self, hop: &wire::Hop, reporter: Units, nodes: &NodeUnits) -> Self {
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
