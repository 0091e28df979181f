//! Losses in a time span from ClickHouse: exported drops and gaps in report sequences. Packets per link cannot be counted,
//! because single reports are only in the collectors' stores.

use export::record::Stream;
use serde::Deserialize;
use store::{DropKey, DropSum, Losses, ReporterLoss, Span};
use tokio::time::Instant;

use super::{Remote, queues::RowCount, rows::queue, statement::present};
use crate::query::LinkEnds;
use crate::sql::Failure;

/// Maximum number of drop locations, those with the most packets first: about 150 bytes of a response each.
const MAX_DROP_LOCATIONS: usize = 50_000;
/// Maximum number of reporters.
const MAX_REPORTERS: usize = 100_000;
/// Maximum number of links.
const MAX_LINKS: usize = 50_000;
/// Maximum number of hops read; the latest are used.
const MAX_HOPS: usize = 1_000_000;

#[derive(Deserialize, Debug)]
struct DropsLine {
    node: u32,
    egress_if: Option<u32>,
    queue: u32,
    reason: Option<u64>,
    packets: u64,
    flows: u64,
    first: u64,
    last: u64,
}

#[derive(Deserialize, Debug)]
struct ReporterLine {
    node: u32,
    lost: u64,
    duplicated: u64,
}

impl Remote {
    pub(super) async fn losses_within(&self, span: Span) -> Result<Losses, Failure> {
        let until = Instant::now() + self.limit;
        let locations: Vec<DropsLine> = self
            .rows(
                self.about(Stream::Drops).drop_locations(span, MAX_DROP_LOCATIONS),
                until,
            )
            .await?;
        let statement = self.about(Stream::Losses).reporters(span, MAX_REPORTERS);
        let reporters: Vec<ReporterLine> = self.rows(statement, until).await?;
        let truncated = locations.len() > MAX_DROP_LOCATIONS || reporters.len() > MAX_REPORTERS;
        let drops = locations
            .into_iter()
            .take(MAX_DROP_LOCATIONS)
            .map(DropsLine::sum)
            .collect();
        let mut losses = Losses {
            drops,
            truncated,
            ..Losses::default()
        };
        for line in reporters.into_iter().take(MAX_REPORTERS) {
            let loss = ReporterLoss {
                lost: line.lost,
                duplicated: line.duplicated,
            };
            match present(line.node) {
                Some(node) => _ = losses.reporters.insert(node, loss),
                None => losses.unknown_reporters = loss,
            }
        }
        Ok(losses)
    }

    /// Returns the interfaces at both ends of links, and whether there are more hops or links than the limits. The list is
    /// empty if hops are not exported.
    pub(super) async fn ends_within(&self, span: Span) -> Result<(Vec<LinkEnds>, bool), Failure> {
        let until = Instant::now() + self.limit;
        if !self.has(Stream::Hops, until).await? {
            return Ok((Vec::new(), false));
        }
        let statement = self.about(Stream::Hops).ends(span, MAX_HOPS, MAX_LINKS);
        let mut ends: Vec<LinkEnds> = self.rows(statement, until).await?;
        let hops: Vec<RowCount> = self
            .rows(self.about(Stream::Hops).row_count(span, MAX_HOPS), until)
            .await?;
        let truncated =
            ends.len() > MAX_LINKS || hops.first().is_some_and(|hops| hops.amount > MAX_HOPS as u64);
        ends.truncate(MAX_LINKS);
        Ok((ends, truncated))
    }
}

impl DropsLine {
    fn sum(self) -> (DropKey, DropSum) {
        let key = DropKey {
            node: present(self.node),
            egress_if: self.egress_if,
            queue: queue(self.queue),
            reason: self.reason.and_then(|reason| u8::try_from(reason).ok()),
        };
        let sum = DropSum {
            packets: self.packets,
            flows: self.flows,
            first: self.first,
            last: self.last,
        };
        (key, sum)
    }
}
