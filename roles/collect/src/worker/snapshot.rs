//! State that a worker publishes periodically, so that readers need not wait for it: counters at every tick, and the entries
//! of its smaller tables at least twice a second.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use collector::{Collector, Losses, SeriesView, SourceView, Stats, StreamView, stats::Tables};

use runtime::lock::lock;

/// Maximum number of entries that are copied at every tick.
const FEW: usize = 128;
/// Interval of copies if there are many entries.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum numbers of streams and of sources published per worker.
const MAX_SOURCES: usize = 4_096;
/// Maximum numbers of nodes, of queues and of links published per worker.
const MAX_SERIES: usize = 4_096;

/// The state that a worker published last.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Counters of the worker's collector.
    pub stats: Stats,
    /// Occupancy of the tables.
    pub tables: Tables,
    /// Losses of all streams, including evicted ones.
    pub losses: Losses,
    /// Entries of the tables.
    pub entries: Arc<Entries>,
}

/// Table entries, up to a maximum for each table.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// Streams with sequence numbers.
    pub streams: Vec<StreamView>,
    /// Source addresses of reports.
    pub sources: Vec<SourceView>,
    /// Hop latencies of nodes.
    pub nodes: Vec<SeriesView>,
    /// Occupancy of the queues.
    pub queues: Vec<SeriesView>,
    /// Utilization of the links.
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

/// The worker's end of the publication.
#[derive(Debug)]
pub(super) struct Publisher {
    published: Arc<Mutex<Snapshot>>,
    entries: Arc<Entries>,
    /// Time at which the entries were last copied.
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

    /// Publishes `stats` and the state of the tables.
    pub(super) fn publish(&mut self, collector: &Collector, stats: Stats) {
        // Copy few entries at every tick, but many at intervals, because copying delays datagrams.
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
        // Replaced as a whole, so that the state is valid even if another thread panics.
        *lock(&self.published) = new;
    }
}

fn losses(collector: &Collector) -> Losses {
    let mut losses: Losses = collector.streams().map(|stream| stream.losses()).sum();
    losses += collector.evicted_losses();
    losses
}

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
