//! Case `switch-filter`: cost of event detection in an INT sink, in process: INT-MD packets with and without a filter.

use dataplane::filter::{Filter, Units};
use dataplane::report::Outbox;
use dataplane::switch::{Config, Visit};
use dataplane::{Filters, Switch, Watch};
use detect::{Algorithm, Detector, Match, Metric};

use experiments::figures::{failed, packets};

use super::harness::{Conditions, Failure, Measured, Outcome, Plan, measure, median};
use terminal::CliError;

/// Number of flows, with one packet each, which is sent repeatedly.
const FLOWS: u16 = 1000;
/// Number of nodes of the path, including the sink.
const NODES: u32 = 5;

/// Measures a packet at the sink with a filter that always reports it, with one that suppresses it, and without a filter.
pub(super) fn filter(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let packets = prepared()?;
    let [reports, suppresses] = [0, 1_000_000].map(|threshold| Filter {
        flows: Match::default(),
        detector: Detector {
            algorithm: Algorithm::PerHop,
            metric: Metric::QueueOccupancy,
            threshold,
        },
    });
    let without = median(run(plan, &packets, None)?.ns_per_op);
    let filtered = run(plan, &packets, Some(reports))?;
    let suppressed = run(plan, &packets, Some(suppresses))?;
    let included = "frame parsing, the filter, the report, stripping INT, a copy of the frame; no I/O";
    let conditions = Conditions::of("one packet at the sink, filtered and reported", included)
        .number("hops", NODES)
        .number("items_per_hop", Watch::USUAL.count_ones())
        .number("flows", FLOWS)
        .number("frame_bytes", packets.first().map_or(0, Vec::len))
        .ratio("ns_without_filter", without)
        .ratio("ns_added_by_filter", median(filtered.ns_per_op.clone()) - without)
        .ratio("ns_when_hidden", median(suppressed.ns_per_op));
    Ok(Outcome::measured(name, filtered, conditions))
}

fn run(plan: &Plan, packets: &[Vec<u8>], filter: Option<Filter>) -> Result<Measured, Failure> {
    let mut sink = switch(NODES)?;
    let filters = Filters::new(filter.into_iter().collect(), 4096, Units::default()).map_err(failed)?;
    sink.set_filters(filters);
    let mut outbox = Outbox::default();
    let mut frame = Vec::with_capacity(2048);
    let mut now = 0;
    measure(plan, || {
        for packet in packets {
            frame.clear();
            frame.extend_from_slice(packet);
            outbox.clear();
            now += 1000;
            sink.forward(&mut frame, &visit(NODES, now), &mut outbox);
        }
        Ok(packets.len() as u64)
    })
}

fn switch(node: u32) -> Result<Switch, CliError> {
    let watch = Watch::default();
    Switch::new(node, Config::default(), watch.into()).map_err(failed)
}

fn visit(node: u32, now: u64) -> Visit {
    Visit {
        from_edge: node == 1,
        to_edge: node == NODES,
        ..packets::visit(now)
    }
}

/// Generates one packet of each flow, as it reaches the sink.
fn prepared() -> Result<Vec<Vec<u8>>, CliError> {
    let mut nodes = (1..NODES).map(switch).collect::<Result<Vec<_>, _>>()?;
    let mut outbox = Outbox::default();
    let mut frames = Vec::new();
    for flow in 0..FLOWS {
        let mut frame = packets::plain(flow);
        for (switch, node) in nodes.iter_mut().zip(1..) {
            switch.forward(&mut frame, &visit(node, u64::from(flow) * 2000), &mut outbox);
        }
        frames.push(frame);
    }
    Ok(frames)
}
