//! Experiment `switch-cost`: CPU time that INT-MD 2.1 adds to a packet in hopwise's switch, in process, by role (source,
//! transit, sink). The paper measures the latency in a hardware switch (INTCollector, Fig. 9).

use std::cmp::Ordering;

use dataplane::{Switch, Watch, Watchlist, report::Outbox, switch};

use super::{
    page::{Comparison, Findings, Table, fixed, linear, named, row},
    rows::{Observations, Results, judgement},
    settings::{Parameter, Settings},
    timing::{self, Spread},
};
use crate::figures::{
    failed,
    packets::{plain, visit},
};
use terminal::CliError;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::runs(),
    Parameter::span(&[300]),
    Parameter::new("flows", &[1_000], 1..=10_000)
        .help("flows, with one packet each, which is sent repeatedly"),
    Parameter::new("nodes", &[6], 2..=15).help("nodes of the path that ends at the sink"),
];

/// The paper's latency added by INT, us.
const PAPER_ADDED_US: f64 = 0.692;
/// The paper's share of that in the latency with INT.
const PAPER_SHARE: f64 = 0.01587;

/// The INT role of the measured switch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Plain,
    Source,
    Transit,
    Sink,
    SourceAndSink,
}

const TASKS: [(Task, &str); 5] = [
    (Task::Plain, "no INT"),
    (Task::Source, "source"),
    (Task::Transit, "transit"),
    (Task::Sink, "sink"),
    (Task::SourceAndSink, "source and sink"),
];

pub(super) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let nodes = settings.value("nodes") as u32;
    let columns = "task,ns_per_packet,ns_per_packet_min,ns_per_packet_max,added_ns";
    let mut table = Table::new("packet", "Time of a packet in the switch", columns);
    let mut plain = f64::NAN;
    for (task, name) in TASKS {
        let time = measure(settings, task, nodes)?;
        if task == Task::Plain {
            plain = time.median;
        }
        table.push(row![name, time.cells(1), fixed(time.median - plain, 1)]);
    }
    let bars = table.bars("hopwise", "ns_per_packet");
    let axes = [named(TASKS.map(|task| task.1)), linear("per packet (ns)")];
    let title = "Time of a packet in the switch (Fig. 9)";
    table.plot(title, "in process, without I/O", axes, vec![bars]);
    Ok(Findings::new(
        "One switch of hopwise, in process, forwards UDP packets of 200 bytes of payload, with and without INT-MD 2.1 with the usual items (node \
         id, level-1 interfaces, hop latency, queue, timestamps, utilization). The time is that of a packet in the switch, without I/O.",
        [
            format!("the sink receives packets with the records of {} nodes, and reports every packet", nodes - 1),
            "the paper: end-to-end latency between host and switch (Wedge 100B) with and without INT, source, transit and sink enabled, mean of 10,000 \
             packets"
                .into(),
            timing::CONDITION.into(),
        ],
        [table],
    ))
}

fn new(node: u32, watched: bool) -> Result<Switch, CliError> {
    let watchlist = if watched {
        Watch::default().into()
    } else {
        Watchlist::default()
    };
    Switch::new(node, switch::Config::default(), watchlist).map_err(failed)
}

/// Measures the time per packet in one switch, ns.
fn measure(settings: &Settings, task: Task, nodes: u32) -> Result<Spread, CliError> {
    // Number of nodes that a packet passes before the measured one.
    let before = match task {
        Task::Plain | Task::Source | Task::SourceAndSink => 0,
        Task::Transit => 1,
        Task::Sink => nodes - 1,
    };
    let mut path = (1..=before)
        .map(|node| new(node, true))
        .collect::<Result<Vec<_>, _>>()?;
    let mut outbox = Outbox::default();
    let packets: Vec<Vec<u8>> = (0..settings.value("flows") as u16)
        .map(|flow| {
            let mut frame = plain(flow);
            for (switch, node) in path.iter_mut().zip(1..) {
                let visit = switch::Visit {
                    from_edge: node == 1,
                    ..visit(u64::from(flow) * 2_000)
                };
                switch.forward(&mut frame, &visit, &mut outbox);
            }
            frame
        })
        .collect();
    let mut switch = new(before + 1, task != Task::Plain)?;
    let (from_edge, to_edge) = match task {
        Task::Plain | Task::SourceAndSink => (true, true),
        Task::Source => (true, false),
        Task::Transit => (false, false),
        Task::Sink => (false, true),
    };
    let mut frame = Vec::with_capacity(2_048);
    let mut now = 0;
    let mut next = packets.chunks(64).cycle();
    timing::measure(settings, || {
        let burst = next.next().unwrap_or_default();
        for packet in burst {
            frame.clear();
            frame.extend_from_slice(packet);
            outbox.clear();
            now += 1_000;
            switch.forward(
                &mut frame,
                &switch::Visit {
                    from_edge,
                    to_edge,
                    ..visit(now)
                },
                &mut outbox,
            );
            std::hint::black_box(&frame);
        }
        Ok(burst.len() as u64)
    })
}

/// Computes comparisons and remarks from the rows.
pub(super) fn observe(results: &Results) -> Observations {
    let rows = results.table("packet");
    let [plain, source, transit, sink, both] =
        TASKS.map(|task| rows.spread(&[("task", task.1)], "ns_per_packet"));
    let us = [both, source, transit, sink].map(|task| task.minus(plain).map(|ns| ns / 1e3).text(3));
    let hopwise = rows.iter().next().map(|_| {
        format!(
            "source and sink {} us; source {} us, transit {} us, sink {} us",
            us[0], us[1], us[2], us[3]
        )
    });
    let comparisons = vec![
        Comparison::new(
            "time that INT adds to a packet (the paper: source, transit and sink enabled; ours: each task alone, and source and sink)",
            format!(
                "{} us, {:.1} us with it",
                PAPER_ADDED_US,
                PAPER_ADDED_US / PAPER_SHARE
            ),
            hopwise,
        ),
        Comparison::new(
            "added time as a share of the latency",
            "1.587 %",
            "not comparable: no link and no NIC here",
        ),
    ];
    let mut remarks: Vec<String> = together(source.plus(sink).minus(plain), both)
        .into_iter()
        .collect();
    remarks.push(judgement(
        "the two figures are not the same quantity. The paper's is latency in the pipeline of a switch's chip, which hardly changes the rate of the \
         switch. Ours is CPU time, which limits the rate of a core.",
    ));
    Observations::new(comparisons, remarks)
}

/// Compares a switch that is source and sink with the sum of both tasks alone, if the runs distinguish them.
fn together(alone: Spread, both: Spread) -> Option<String> {
    let than = match both.order(alone)? {
        Ordering::Less => "less",
        _ => "more",
    };
    Some(format!(
        "A packet takes {} ns in a switch that is source and sink, {than} than both tasks alone add to a packet without INT: {} ns. The cause is not \
         measured; the sink alone receives packets with the records of the nodes before it.",
        both.text(1),
        alone.text(1)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_without_int_changes_no_byte_of_the_payload() {
        let (mut switch, mut outbox) = (new(1, false).unwrap(), Outbox::default());
        let (packet, mut frame) = (plain(7), plain(7));
        let visit = switch::Visit {
            from_edge: true,
            to_edge: true,
            ..visit(1)
        };
        switch.forward(&mut frame, &visit, &mut outbox);
        assert_eq!(frame, packet);
        assert_eq!(switch.stats().reported, 0);
        let (mut switch, mut frame) = (new(1, true).unwrap(), plain(7));
        switch.forward(&mut frame, &visit, &mut outbox);
        assert_eq!((switch.stats().reported, frame), (1, packet));
    }

    #[test]
    fn the_sum_of_the_tasks_is_that_of_the_rows() {
        fn remarks(both: &str) -> Vec<String> {
            let head = "task,ns_per_packet,ns_per_packet_min,ns_per_packet_max\nno INT,30,29,31\nsource,130,130,130\ntransit,50,50,50\nsink,80,80,80\n";
            observe(&Results::parse([(
                "packet",
                &*format!("{head}source and sink,{both}\n"),
            )]))
            .remarks
        }
        let less = "A packet takes 170.0 (169.0 to 171.0) ns in a switch that is source and sink, less than both tasks alone add to a packet without INT: \
                    180.0 (179.0 to 181.0) ns.";
        assert!(remarks("170,169,171")[0].starts_with(less));
        assert!(remarks("190,189,191")[0].contains("more than both tasks alone"));
        assert_eq!(remarks("170,169,180").len(), 1, "only the judgement is left");
    }
}
