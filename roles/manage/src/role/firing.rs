//! Turns rules of intents that became true in the collector into drill-downs: looks up the flow's path or fullest queue, and
//! passes them to the manager.

use std::sync::Arc;

use collector::{Collector, HopView};
use manager::{
    device::NodeId,
    drill_down::{Firing, Queue},
    intent::Scope,
};
use wire::FlowKey;

use super::{Handle, core::key_of};
use runtime::monitor::{CollectorMonitor, RuleOn};
use runtime::slice;

/// Capacity of the queue of rules that became true.
const MAX_WAITING: usize = 256;
/// Maximum number of flows through a queue that are considered.
const MAX_FLOWS: usize = 100_000;

/// Passes rules that became true to the manager, one at a time. Those that arrive too fast are only counted.
pub(super) async fn follow(own: Handle, monitor: Arc<impl CollectorMonitor>) {
    let mut fired = monitor.follow_rules(MAX_WAITING);
    while let Some(RuleOn { rule, flow }) = fired.recv().await {
        let missed = monitor.drain_missed_rules();
        // A request that an overloaded manager drops is not repeated.
        let name = rule.clone();
        let Some(Some(scope)) = own
            .requests
            .own(move |core, now| core.scope_of(&name, &flow, missed, now))
            .await
        else {
            continue;
        };
        let mut firing = locate(&*monitor, &flow, scope).await;
        if scope == Scope::Queue {
            let name = rule.clone();
            let asked = firing.clone();
            if own
                .requests
                .own(move |core, now| core.admits(&name, &asked, now))
                .await
                != Some(true)
            {
                continue;
            }
            add_flows_through(&*monitor, &mut firing).await;
        }
        own.requests
            .own(move |core, now| core.fire(&rule, &firing, now))
            .await;
    }
}

/// Looks up where a flow's rule became true: the ends of its path, or its fullest queue.
async fn locate(monitor: &impl CollectorMonitor, flow: &FlowKey, scope: Scope) -> Firing {
    let key = *flow;
    let asked = monitor.ask(move |collector: &Collector| {
        let flow = collector.flow(&key)?;
        // Without a complete path, the order of the hops is unknown.
        (flow.path_length > 0 && !flow.truncated).then(|| flow.hops().collect::<Vec<_>>())
    });
    // If the collector is too busy to answer, the location stays unknown, and the drill-down applies everywhere.
    let hops_of_workers = asked.await.unwrap_or_default();
    let hops = hops_of_workers.into_iter().flatten().next().unwrap_or_default();
    let first = hops.first().and_then(|hop| hop.node);
    let last = hops
        .last()
        .and_then(|hop| hop.node)
        .filter(|_| scope == Scope::Path);
    Firing {
        flow: key_of(flow),
        at: first.into_iter().chain(last).collect(),
        queue: fullest(&hops).filter(|_| scope == Scope::Queue),
        through: Vec::new(),
    }
}

/// Returns the queue of the hop with the greatest occupancy or, if no occupancy is known, with the greatest latency.
fn fullest(hops: &[HopView]) -> Option<Queue> {
    let hop = hops
        .iter()
        .filter(|hop| hop.queue_occupancy.is_some() || hop.hop_latency.is_some())
        .max_by_key(|hop| (hop.queue_occupancy, hop.hop_latency))?;
    Some((hop.node?, hop.egress_if?, hop.queue))
}

/// Returns whether a hop goes through the queue.
fn passes(hop: &HopView, (node, interface, queue): Queue) -> bool {
    hop.node == Some(node) && hop.egress_if == Some(interface) && hop.queue == queue
}

/// A flow through the queue of a firing alert.
struct FiringFlow {
    flow: FlowKey,
    /// Number of its reports.
    reports: u64,
    /// The first node of its path, if known.
    first_node: Option<NodeId>,
}

/// Adds the flows that go through the queue, and the nodes at which they enter.
async fn add_flows_through(monitor: &impl CollectorMonitor, firing: &mut Firing) {
    let Some(queue) = firing.queue else { return };
    let mut firing_flows: Vec<FiringFlow> = Vec::new();
    let walked = monitor.walk(
        move |collector: &Collector, first: u32| {
            let mut part = Vec::new();
            let next = slice::visit_flows(collector, first, |view| {
                if view.row.flow.known_id().is_none() && view.hops().any(|hop| passes(&hop, queue)) {
                    part.push(FiringFlow {
                        flow: view.row.flow,
                        reports: view.row.reports,
                        first_node: view.path().next().filter(|node| *node != u32::MAX),
                    });
                }
            });
            (part, next)
        },
        |_, part| {
            let room = MAX_FLOWS.saturating_sub(firing_flows.len());
            firing_flows.extend(part.into_iter().take(room));
        },
    );
    if walked.await.is_err() {
        return;
    }
    firing_flows.sort_by_key(|firing| (std::cmp::Reverse(firing.reports), firing.flow.id()));
    if firing_flows.iter().any(|firing| firing.first_node.is_none()) {
        // A flow with an unknown first node may enter anywhere.
        firing.at.clear();
    } else {
        firing.at = firing_flows
            .iter()
            .filter_map(|firing| firing.first_node)
            .collect();
        firing.at.sort_unstable();
        firing.at.dedup();
    }
    firing.through = firing_flows.iter().map(|firing| key_of(&firing.flow)).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(node: u32, queue: Option<u8>, occupancy: Option<u64>, latency: Option<u64>) -> HopView {
        HopView {
            node: Some(node),
            ingress_if: Some(1),
            egress_if: Some(2),
            queue,
            hop_latency: latency,
            implausible_latency: None,
            queue_occupancy: occupancy,
            queue_congestion: None,
            link_utilization: None,
            queue_latest: None,
            link_latest: None,
        }
    }

    #[test]
    fn the_queue_of_a_rule_is_the_fullest_one_on_the_path() {
        let path = [
            hop(1, Some(0), Some(3), Some(9)),
            hop(2, Some(5), Some(70), Some(1)),
            hop(3, None, None, None),
        ];
        assert_eq!(fullest(&path), Some((2, 2, Some(5))));
        assert!(
            passes(&path[1], (2, 2, Some(5)))
                && !passes(&path[1], (2, 2, Some(6)))
                && !passes(&path[0], (2, 2, Some(5)))
        );
        let slow = [hop(1, None, None, Some(9)), hop(2, None, None, Some(800))];
        assert_eq!((fullest(&slow), fullest(&path[2..])), (Some((2, 2, None)), None));
    }
}
