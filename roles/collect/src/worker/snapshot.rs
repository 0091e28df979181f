//! State that a worker publishes periodically, so that readers need not wait for it: its counters at every tick, and the contents
//! of its smaller tables at least once a second.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use collector::{Collector, Losses, SeriesView, SourceView, Stats, StreamView, stats::Tables};

use runtime::lock::lock;

/// The state that a worker published last.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Counters of the worker's collector.
    pub stats: Stats,
    /// Occupancy of the tables.
    pub tables: Tables,
    /// Losses of streams, evicted ones included.
    pub losses: Losses,
    /// Contents of the tables.
    pub entries: Arc<Entries>,
}

/// Entries of tables, up to a maximum of each.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// Numbered streams of reports.
    pub streams: Vec<StreamView>,
    /// Source addresses of reports.
    pub sources: Vec<SourceView>,
    /// Hop latencies of nodes.
    pub nodes: Vec<SeriesView>,
    /// Occupancies of the queues.
    pub queues: Vec<SeriesView>,
    /// Utilizations of the links.
    pub links: Vec<SeriesView>,
}

impl Entries {
    fn from_collector(collector: &Collector) -> Self {
        Self {
            streams: collector.streams().take(MAX_SOURCES).collect(),
            sources: collector.sources().take(MAX_SOURCES).collect(),
            nodes: collector.nodes().take(MAX_SERIES).collect(),
            queues: collector.queues().take(MAX_SERIES).collect(),
            links: collector.links().take(MAX_SERIES).collect(),
        }
    }

    fn count(&self) -> usize {
        self.streams.len() + self.sources.len() + self.nodes.len() + self.queues.len() + self.links.len()
    }
}

/// The publishing side, of the worker.
#[derive(Debug)]
pub(super) struct Publisher {
    published: Arc<Mutex<Snapshot>>,
    entries: Arc<Entries>,
    /// Time of the last copy of the entries.
    copied: Instant,
    losses: Losses,
}

impl Publisher {
    pub(super) fn new(collector: &Collector) -> Self {
        let entries = Arc::new(Entries::from_collector(collector));
        let stats = collector.stats();
        let tables = collector.tables();
        let losses = losses(collector);
        let first = Snapshot {
            stats,
            tables,
            losses,
            entries: Arc::clone(&entries),
        };
        Self {
            published: Arc::new(Mutex::new(first)),
            entries,
            copied: Instant::now(),
            losses,
        }
    }

    pub(super) fn published(&self) -> Arc<Mutex<Snapshot>> {
        Arc::clone(&self.published)
    }

    /// Publishes `stats`, and the tables.
    pub(super) fn publish(&mut self, collector: &Collector, stats: Stats) {
        // A few entries are copied at every tick; many at intervals, because the copy delays datagrams.
        if self.entries.count() <= FEW || self.copied.elapsed() >= PUBLISH_INTERVAL {
            self.entries = Arc::new(Entries::from_collector(collector));
            self.losses = losses(collector);
            self.copied = Instant::now();
        }
        let tables = collector.tables();
        let losses = self.losses;
        let new = Snapshot {
            stats,
            tables,
            losses,
            entries: Arc::clone(&self.entries),
        };
        // The value is replaced as a whole, so it is valid even after a panic of another thread.
        *lock(&self.published) = new;
    }
}

fn losses(collector: &Collector) -> Losses {
    let mut losses: Losses = collector.streams().map(|stream| stream.losses()).sum();
    losses += collector.evicted_losses();
    losses
}

/// Entries that are copied at every tick.
const FEW: usize = 128;
/// Maximum age of a copy of many entries.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);
/// Streams, and sources, published per worker.
const MAX_SOURCES: usize = 4_096;
/// Nodes, queues and links published per worker.
const MAX_SERIES: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_there_without_asking_the_worker() {
        let mut collector = Collector::new(collector::Config::default());
        let mut publisher = Publisher::new(&collector);
        let published = publisher.published();
        let payload = testkit::vectors::bytes("tr20_emb");
        let datagram = collector::Datagram {
            payload: &payload,
            source: [1; 16],
            src_port: 1,
            listener: 0,
            received: 1,
        };
        collector.handle(&[datagram], &mut collector::Batch::with_capacity(64));
        publisher.publish(&collector, collector.stats());
        let snapshot = lock(&published).clone();
        assert_eq!((snapshot.stats.reports, snapshot.tables.flows.used), (1, 1));
        assert_eq!(
            (snapshot.entries.sources.len(), snapshot.entries.streams.len()),
            (1, 1)
        );
    }
}
