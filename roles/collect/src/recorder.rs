//! Decodes every report into a row of the store's table of reports (`[store] reports = true`). It decodes datagrams a second
//! time, separately from the collector, so that the default configuration has no overhead. The flight recorder uses it, too.

use std::sync::Arc;

use collector::{Access, Datagram};
use store::ReportRow;
use wire::{Decoder, report::Report};

use crate::{datagram::HopProfiles, pipeline::QueueSender};

/// Decodes datagrams into rows.
#[derive(Debug)]
pub struct ReportRecorder {
    profiles: HopProfiles,
    access: Arc<Access>,
    rows: Vec<ReportRow>,
}

impl ReportRecorder {
    /// Creates a recorder that decodes sources by these profiles, and only reports from allowed senders.
    pub fn new(profiles: HopProfiles, access: Arc<Access>) -> Self {
        Self {
            profiles,
            access,
            rows: Vec::new(),
        }
    }

    /// Records the reports of datagrams, and queues them in batches. Ignores malformed and refused ones.
    pub fn record(&mut self, datagrams: &[Datagram<'_>], outlet: &QueueSender) {
        let mut rows = std::mem::take(&mut self.rows);
        for datagram in datagrams {
            self.each(datagram, |report| rows.push(self.row(datagram, report)));
        }
        self.rows = rows;
        if self.rows.len() >= ROWS {
            self.send(outlet);
        }
    }

    /// Passes the reports of a datagram to `process`, if its sender may report.
    pub fn each(&self, datagram: &Datagram<'_>, mut process: impl FnMut(&Report<'_>)) {
        let profile = &self.profiles.of_source(&datagram.source).wire;
        let access = self.access.check(datagram.listener, &datagram.source, || {
            wire::peek(datagram.payload, profile).map(|peek| peek.node_id)
        });
        if access.is_err() {
            return;
        }
        let mut decoder = Decoder::new(*profile);
        decoder
            .reports(datagram.payload)
            .flatten()
            .for_each(|report| process(&report));
    }

    /// Returns the row of a report.
    pub fn row(&self, datagram: &Datagram<'_>, report: &Report<'_>) -> ReportRow {
        let of_source = self.profiles.of_source(&datagram.source);
        ReportRow::new(report, datagram.received, datagram.source, |hop| {
            collector::hop_latency(hop, self.profiles.of_node(of_source, hop.node_id))
        })
    }

    /// Queues a partial batch.
    pub fn send(&mut self, outlet: &QueueSender) {
        if !self.rows.is_empty() {
            outlet.send_reports(std::mem::take(&mut self.rows));
        }
    }
}

/// Number of collected reports at which a batch is queued.
const ROWS: usize = 1024;
