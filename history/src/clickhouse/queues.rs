//! Queues over time from ClickHouse: heat maps from rollups, packets from hops, and drops. Heat maps are accumulated by the
//! same code as for the local store.

use collector::{Drop, Location};
use export::record::Stream;
use serde::Deserialize;
use store::burst::Passage;
use store::{Heat, HeatCells, HeatFilter, PassageRow, QueueFilter};
use tokio::time::Instant;

use super::{
    Remote,
    rows::{flow, queue},
    statement::present,
};
use crate::query::{Exported, QueueQuery, QueueRecords};
use crate::sql::Failure;

/// Maximum number of collectors listed.
const MAX_COLLECTORS: usize = 16;

/// A row of a heat map; `cells` are column index and maximum value.
#[derive(Deserialize, Debug)]
struct HeatLine {
    node: u32,
    interface: u32,
    queue: u32,
    values: u64,
    cells: Vec<(u64, u64)>,
    total: usize,
}

#[derive(Deserialize, Debug)]
struct DropLine {
    time: u64,
    id: u64,
    flow: String,
    ingress_if: Option<u32>,
    egress_if: Option<u32>,
    queue: u32,
    reason: Option<u64>,
}

#[derive(Deserialize, Debug)]
struct PassageLine {
    time: u64,
    flow: String,
    queue: u32,
    egress_if: Option<u32>,
    hop_latency: Option<u64>,
    queue_occupancy: Option<u64>,
    egress_ts: Option<u64>,
    path: Vec<u32>,
}

#[derive(Deserialize, Debug)]
struct CollectorLine {
    name: String,
}

/// A number of rows.
#[derive(Deserialize, Debug)]
pub(super) struct RowCount {
    pub(super) amount: u64,
}

impl Remote {
    pub(super) async fn heat_map(&self, filter: HeatFilter) -> Result<Heat, Failure> {
        let until = Instant::now() + self.limit;
        let statement = self.about(Stream::Rollups).heat(&filter);
        let lines: Vec<HeatLine> = self.rows(statement, until).await?;
        // The server counts all rows and returns the worst.
        let total = lines.first().map_or(0, |line| line.total);
        let mut cells = HeatCells::new(&filter);
        for line in lines {
            let key = Location {
                node: Some(line.node),
                interface: present(line.interface),
                queue: queue(line.queue),
            };
            let mut count = line.values;
            for (column, value) in line.cells {
                let ts = filter.from.saturating_add(column.saturating_mul(filter.column));
                // `values` counts the whole row, so only its first cell gets it.
                cells.add(key, ts, value, std::mem::take(&mut count));
            }
        }
        Ok(Heat {
            total,
            ..cells.finish()
        })
    }

    pub(super) async fn queue_records(&self, query: QueueQuery) -> Result<QueueRecords, Failure> {
        let until = Instant::now() + self.limit;
        let QueueQuery {
            queue: filter,
            events: limit,
            ..
        } = query;
        let hops = self.has(Stream::Hops, until).await?;
        let mut passages = match hops {
            true => self.passages(&filter, until).await?,
            false => Vec::new(),
        };
        let truncated = passages.len() > filter.limit;
        passages.truncate(filter.limit);
        let statement = self.about(Stream::Drops).drops_at(&filter, limit);
        let drops: Vec<DropLine> = self.rows(statement, until).await?;
        // Without single packets, the node's latency changes stand in for them.
        let changes = match passages.is_empty() {
            true => self.latest(&query.latency_changes().into(), until).await?,
            false => Vec::new(),
        };
        let statement = self
            .about(Stream::Rollups)
            .collectors_of(&filter, MAX_COLLECTORS + 1);
        let collectors: Vec<CollectorLine> = self.rows(statement, until).await?;
        let more = collectors.len() > MAX_COLLECTORS;
        let collectors = collectors
            .into_iter()
            .take(MAX_COLLECTORS)
            .map(|line| line.name)
            .collect();
        Ok(QueueRecords {
            recordings: Vec::new(),
            windows: Vec::new(),
            passages,
            truncated,
            drops: drops.into_iter().map(|line| line.drop(filter.node)).collect(),
            changes,
            exported: Some(Exported {
                collectors,
                more,
                hops,
            }),
        })
    }

    async fn passages(&self, filter: &QueueFilter, until: Instant) -> Result<Vec<PassageRow>, Failure> {
        let lines: Vec<PassageLine> = self
            .rows(self.about(Stream::Hops).passages(filter), until)
            .await?;
        Ok(lines.into_iter().map(PassageLine::row).collect())
    }

    /// Returns true if a stream's table exists; not every fleet exports all streams.
    pub(super) async fn has(&self, stream: Stream, until: Instant) -> Result<bool, Failure> {
        let tables: Vec<RowCount> = self.rows(self.about(stream).exists(), until).await?;
        Ok(tables.first().is_some_and(|tables| tables.amount > 0))
    }
}

impl DropLine {
    fn drop(self, node: u32) -> Drop {
        Drop {
            ts: self.time,
            id: self.id,
            flow: flow(&self.flow),
            tunnel: None,
            node: Some(node),
            ingress_if: self.ingress_if,
            egress_if: self.egress_if,
            queue: queue(self.queue),
            reason: self.reason.and_then(|reason| u8::try_from(reason).ok()),
        }
    }
}

impl PassageLine {
    /// Converts a passage to the store's type, with latencies in ns.
    fn row(self) -> PassageRow {
        let passage = Passage {
            ts: self.egress_ts.unwrap_or(self.time),
            flow: flow(&self.flow),
            occupancy: self.queue_occupancy,
            latency: self.hop_latency,
            weight: 1,
        };
        PassageRow {
            ts: self.time,
            passage,
            queue: queue(self.queue),
            interface: self.egress_if,
            source: String::new(),
            by_device: self.egress_ts.is_some(),
            path: self.path,
        }
    }
}
