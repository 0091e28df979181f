//! `/losses`: packets lost in a time span, by place and link, with the evidence: drop reports, and postcards from both ends
//! of a link. Lost reports do not prove lost packets; they only widen the range of the counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::extract::State;
use store::{DropKey, Losses, ReporterLoss, Span};

use super::{
    context::Context,
    page::{self, Prepared},
    params::{PAST_FROM, PAST_TO, Param, Params},
    past,
    query::{history_of, history_permit, respond},
    refusal::Refusal,
};
use collect_role::known_links::{Behind, LinkMemory};
use history::{LinkEnds, LossQuery};
use view::{DropsView, LinkLoss, LossMap, ReporterView};

/// Query parameters of `/losses`.
pub(super) const LOSSES: &[Param] = &[PAST_FROM, PAST_TO, Param::limit(500, 10_000)];
/// Age from which packets are counted, ns: before, reports of one end may not have arrived or may not be stored.
const SETTLE_DELAY: u64 = 5_000_000_000;
// Reasons that the loss of a link is unknown, as users read them.
const NO_NODE_SEEN: &str =
    "no report showed a node behind this interface by then: a host is there, or no packet had passed it";
const NO_HOPS: &str = "no exported hop showed a node behind this interface in this time: the stream `hops` is not exported, a host is there, or no such packet had passed it";
const SEVERAL_NODES: &str = "several nodes were behind this interface in this time: choose a shorter one, or it leads to something that forwards without reports";
const ONE_END: &str = "needs reports of both ends: one of them did not report this traffic itself";
const UNEQUAL_SHARES: &str = "needs equal shares: the receiving node reported more packets than the sending one, which samples or filters";

/// Returns the packets lost in a span, by place (node, interface, queue, reason) and by link.
pub(crate) async fn losses(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(LOSSES)?;
    let span = past::span_or_default(&params)?;
    let limit = params.limit()?;
    let settings = context.active_config.get();
    let reasons = settings.collect().drop_reasons();
    // Only with `[store] reports` are all reports stored. The flight recorder stores some, which cannot be counted.
    let evidence = match settings.console {
        Some(_) => Evidence::Exported,
        None if settings.store.reports => Evidence::Reports,
        None => Evidence::Sampled,
    };
    let settled = nic::time::now().saturating_sub(SETTLE_DELAY);
    let count_until = (evidence == Evidence::Reports).then_some(settled);
    let permit = history_permit(&context).await?;
    let history = history_of(&context)?;
    let query = LossQuery { span, count_until };
    let losses = history.losses(query, Arc::clone(&permit)).await?;
    let paths = history.paths(span, Arc::clone(&permit)).await?;
    let known_links = Arc::clone(&context.known_links);
    let current_links = context.monitor.links().await?;
    let (exported, has_more_ends) = history.ends(span, Arc::clone(&permit)).await?;
    respond(permit, move || {
        let peers = match evidence {
            Evidence::Exported => Peers::from_losses(&losses, &link_memory(&exported, span)),
            Evidence::Reports | Evidence::Sampled => {
                let mut memory = known_links.memory();
                memory.learn(&current_links);
                Peers::from_losses(&losses, &memory)
            }
        };
        let links = past::link_views(&paths).into_keys().collect();
        let drops = drops(&losses, &reasons, &peers, evidence);
        let (drops, more) = page::fill(drops.into_iter(), limit);
        let by_link = link_losses(&losses, links, &peers, evidence);
        let omitted = losses.drops.len().saturating_sub(drops.len()) + by_link.len().saturating_sub(limit);
        let (links, more_links) = page::fill(by_link.into_iter(), limit);
        LossMap {
            more: omitted.max(usize::from(more || more_links)),
            drops,
            unplaced: peers.unplaced(&losses),
            links,
            reporters: reporters(&losses),
            counted: !losses.links.is_empty(),
            uncounted: losses.links.is_empty().then(|| requirement(evidence).to_owned()),
            left_out: losses.left_out,
            counted_until: losses.counted_until,
            range: past::range(span, paths.truncated || losses.truncated || has_more_ends),
        }
    })
    .await
}

/// Learns from exported hops which node is behind each interface.
fn link_memory(exported: &[LinkEnds], span: Span) -> LinkMemory {
    let mut memory = LinkMemory::default();
    for ends in exported {
        if let Some(interface) = ends.egress_if {
            // Only some hops are exported, so each counts as valid for the whole span.
            memory.see((ends.from, interface), ends.to, span.from());
        }
    }
    memory
}

/// Node behind the egress interface of each drop place, at the time of its drops.
#[derive(Default, Debug)]
struct Peers(BTreeMap<DropKey, Behind>);

impl Peers {
    fn from_losses(losses: &Losses, memory: &LinkMemory) -> Self {
        let peers = losses.drops.iter().filter_map(|(place, sum)| {
            let (node, interface) = place.node.zip(place.egress_if)?;
            Some((*place, memory.behind(node, interface, sum.first, sum.last)))
        });
        Self(peers.collect())
    }

    fn node(&self, place: &DropKey) -> Option<u32> {
        match self.0.get(place)? {
            Behind::Node(node) => Some(*node),
            Behind::Unknown | Behind::Several => None,
        }
    }

    /// Returns the reason that the node is unknown; `None` if it is known.
    fn unknown(&self, place: &DropKey, evidence: Evidence) -> Option<String> {
        let reason = match (self.0.get(place)?, evidence) {
            (Behind::Node(_), _) => return None,
            (Behind::Unknown, Evidence::Exported) => NO_HOPS,
            (Behind::Unknown, Evidence::Reports | Evidence::Sampled) => NO_NODE_SEEN,
            (Behind::Several, _) => SEVERAL_NODES,
        };
        Some(reason.to_owned())
    }

    /// Counts the dropped packets that cannot be assigned to a link.
    fn unplaced(&self, losses: &Losses) -> u64 {
        let unplaced = losses
            .drops
            .iter()
            .filter(|(place, _)| self.node(place).is_none());
        unplaced.map(|(_, sum)| sum.packets).fold(0, u64::saturating_add)
    }
}

/// Returns the dropped packets by place, the most first.
fn drops(
    losses: &Losses,
    reasons: &BTreeMap<u8, String>,
    peers: &Peers,
    evidence: Evidence,
) -> Vec<DropsView> {
    let views = losses.drops.iter().map(|(place, sum)| DropsView {
        node: place.node,
        egress_if: place.egress_if,
        to: peers.node(place),
        to_unknown: peers.unknown(place, evidence),
        queue: place.queue,
        reason: place.reason,
        reason_name: place.reason.and_then(|code| reasons.get(&code).cloned()),
        packets: sum.packets,
        flows: sum.flows,
        first: sum.first,
        last: sum.last,
    });
    let mut views: Vec<DropsView> = views.collect();
    views.sort_by_key(|drops| std::cmp::Reverse(drops.packets));
    views
}

fn reporters(losses: &Losses) -> Vec<ReporterView> {
    let mut views: Vec<ReporterView> = losses
        .reporters
        .iter()
        .map(|(node, loss)| reporter_view(Some(*node), loss))
        .collect();
    if losses.unknown_reporters != ReporterLoss::default() {
        views.push(reporter_view(None, &losses.unknown_reporters));
    }
    views.retain(|reporter| reporter.lost > 0 || reporter.duplicated > 0);
    views.sort_by_key(|reporter| std::cmp::Reverse(reporter.lost));
    views
}

fn reporter_view(node: Option<u32>, loss: &ReporterLoss) -> ReporterView {
    ReporterView {
        node,
        lost: loss.lost,
        duplicated: loss.duplicated,
    }
}

/// Returns the losses of each link with their evidence: most losses first, unknown losses last.
fn link_losses(
    losses: &Losses,
    mut links: BTreeSet<(u32, u32)>,
    peers: &Peers,
    evidence: Evidence,
) -> Vec<LinkLoss> {
    let mut dropped: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for (place, sum) in &losses.drops {
        if let Some(link) = place.node.zip(peers.node(place)) {
            *dropped.entry(link).or_default() += sum.packets;
        }
    }
    links.extend(dropped.keys().chain(losses.links.keys()));
    let mut views: Vec<LinkLoss> = links
        .into_iter()
        .map(|(from, to)| {
            let link = LinkLoss {
                from,
                to,
                dropped: *dropped.get(&(from, to)).unwrap_or(&0),
                ..LinkLoss::default()
            };
            with_counts(losses, link, evidence)
        })
        .collect();
    views.sort_by_key(|link| {
        let lost = link.lost.unwrap_or(0).saturating_add(link.dropped);
        (
            std::cmp::Reverse(lost),
            link.unknown.is_some(),
            link.from,
            link.to,
        )
    });
    views
}

/// Adds both ends' packet counts. `lost` and `lost_most` are bounds of the loss, given lost and duplicated
/// reports, and packets under way at the ends of the time.
fn with_counts(losses: &Losses, link: LinkLoss, evidence: Evidence) -> LinkLoss {
    let ends = (link.from, link.to);
    let Some(count) = losses.links.get(&ends) else {
        let unknown = match losses.silent.contains(&ends) {
            true => ONE_END,
            false => requirement(evidence),
        };
        return LinkLoss {
            unknown: Some(unknown.to_owned()),
            ..link
        };
    };
    let sender = losses.concerning.get(&link.from).copied().unwrap_or_default();
    let receiver = losses.concerning.get(&link.to).copied().unwrap_or_default();
    // A report lost at the receiver or duplicated at the sender looks like a lost packet, as does a packet under way at the end
    // of the time; the opposite hides one.
    let explains = receiver
        .lost
        .saturating_add(sender.duplicated)
        .saturating_add(count.unreceived);
    let hides = sender
        .lost
        .saturating_add(receiver.duplicated)
        .saturating_add(count.unsent);
    if count.arrived > count.sent.saturating_add(explains).saturating_add(hides) {
        return LinkLoss {
            unknown: Some(UNEQUAL_SHARES.to_owned()),
            ..link
        };
    }
    let missing = count.sent.saturating_sub(count.arrived);
    LinkLoss {
        sent: Some(count.sent),
        lost: Some(missing.saturating_sub(explains)),
        lost_most: Some(missing.saturating_add(hides)),
        ..link
    }
}

/// Completeness of the reports from which packets can be counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Evidence {
    /// The store has all reports.
    Reports,
    /// The store has some reports or none.
    Sampled,
    /// A console: collectors do not export reports.
    Exported,
}

/// Returns a sentence on what is missing to count packets.
fn requirement(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Reports => {
            "needs reports of each node about each packet (postcards): in this time, no node reported the same flow as the node before it"
        }
        Evidence::Sampled => {
            "needs `[store] reports = true`, and reports of each node about each packet (postcards)"
        }
        Evidence::Exported => {
            "needs each report of both ends, which collectors do not export: the page of the collector that receives them counts (`[store] reports = true`, postcards)"
        }
    }
}

#[cfg(test)]
mod tests;
