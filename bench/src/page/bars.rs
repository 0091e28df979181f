//! Performance goals ("bars") of the benchmark cases: one table, with the reason for each bar that the published figures miss.

/// A goal of a case. A case may have several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    /// Name of the case.
    pub(super) case: &'static str,
    pub(super) goal: Goal,
    /// One sentence that says why `docs/reference/performance.jsonl` misses the goal, and what was tried. `None` if it does not.
    pub(super) reason: Option<&'static str>,
}

/// The compared value of a bar, and its bound.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    /// At most `most` times another case.
    Times { case: &'static str, most: f64 },
    /// At most `most` ns more than another case.
    More { case: &'static str, most: f64 },
    /// The condition `condition`, a ratio to `what` in the same run, is at least `least`.
    Share {
        condition: &'static str,
        what: &'static str,
        least: f64,
    },
    /// The condition `condition` is at most `most`.
    Of {
        condition: &'static str,
        what: &'static str,
        most: f64,
    },
    /// The median is at most this many ns.
    Most(f64),
}

impl Goal {
    /// Returns whether `value`, rounded as the page shows it, reaches the goal.
    pub(super) fn is_met(&self, value: f64) -> bool {
        let tenths = (value * 10.0).round() / 10.0;
        let hundredths = (value * 100.0).round() / 100.0;
        match *self {
            Self::Times { most, .. } => hundredths <= most,
            Self::More { most, .. } | Self::Of { most, .. } => tenths <= most,
            Self::Share { least, .. } => hundredths >= least,
            Self::Most(most) => value.round() <= most,
        }
    }
}

impl Bar {
    const fn new(case: &'static str, goal: Goal) -> Self {
        Self {
            case,
            goal,
            reason: None,
        }
    }

    const fn missed_because(self, reason: &'static str) -> Self {
        Self {
            reason: Some(reason),
            ..self
        }
    }
}

/// Returns the goals of a case, in the order of the table.
pub(super) fn bars_of(case: &str) -> impl Iterator<Item = &'static Bar> {
    BARS.iter().filter(move |bar| bar.case == case)
}

const fn times(name: &'static str, case: &'static str, most: f64) -> Bar {
    Bar::new(name, Goal::Times { case, most })
}

const fn more(name: &'static str, case: &'static str, most: f64) -> Bar {
    Bar::new(name, Goal::More { case, most })
}

const fn share(name: &'static str, condition: &'static str, what: &'static str, least: f64) -> Bar {
    Bar::new(
        name,
        Goal::Share {
            condition,
            what,
            least,
        },
    )
}

const fn of(name: &'static str, condition: &'static str, what: &'static str, most: f64) -> Bar {
    Bar::new(
        name,
        Goal::Of {
            condition,
            what,
            most,
        },
    )
}

const fn most(name: &'static str, ns: f64) -> Bar {
    Bar::new(name, Goal::Most(ns))
}

/// A peer's time per report, compared with hopwise's in user space.
const fn peer(name: &'static str, least: f64) -> Bar {
    share(name, "peer_to_hopwise", "hopwise in user space", least)
}

/// A peer's time per report, compared with hopwise's in the kernel.
const fn peer_in_kernel(name: &'static str, least: f64) -> Bar {
    share(name, "peer_to_hopwise_kernel", "hopwise in the kernel", least)
}

const COMMON: &str = "fastpath-6x8-1k";

const RANDOM_ORDER: &str = "In random order, a report waits for the eight cache lines of its flow; prefetching further ahead and longer \
    bursts had no effect.";
const FULL_DECODER: &str = "The fast read by known offsets covers single reports 1.0 and 2.0 with INT-MD; all others pass the full \
    decoder one at a time, without prefetching, and extending the fast read to them has not been tried.";

pub(super) const BARS: &[Bar] = &[
    // Random order of flows, compared with the order of creation.
    times("fastpath-6x8-100k-shuffled", "fastpath-6x8-100k", 1.35).missed_because(RANDOM_ORDER),
    times("fastpath-6x8-1m-shuffled", "fastpath-6x8-1m", 1.5).missed_because(RANDOM_ORDER),
    // Linear in the length of the path: 33 ns and 8 ns per hop where six hops take 81 ns.
    times("fastpath-8x8-1k", COMMON, 1.2),
    times("fastpath-12x8-1k", COMMON, 1.59),
    times("fastpath-16x8-1k", COMMON, 1.99),
    // Four items do not cost more than eight.
    times("fastpath-6x4-1k", COMMON, 1.0),
    of("fastpath-grid", "cells_above", "shapes above the line", 0.0),
    more("fastpath-6x8-1k-rule", COMMON, 5.0),
    more("fastpath-6x8-1k-rule-history", COMMON, 12.0).missed_because(
        "Each report needs the greatest occupancy of its hops and the history of its flow; since conditions under `for` are part \
         of the region, no report is evaluated anew, but that was not enough.",
    ),
    times("fastpath-6x8-1k-rules10", COMMON, 1.4).missed_because(
        "Each report needs the least, greatest and sum, over all hops, of every value that the ten rules use; comparing them with \
         one region instead of evaluating each rule was not enough.",
    ),
    // Other formats, per report. A path takes six reports with INT-MX and postcards.
    times("fastpath-md21-6x8-1k", COMMON, 1.5),
    times("fastpath-tr20-md10-6x8-1k", COMMON, 1.5),
    times("fastpath-tr05-6x8-1k", COMMON, 1.3).missed_because(FULL_DECODER),
    times("fastpath-mx21-6x8-1k", COMMON, 1.3).missed_because(FULL_DECODER),
    times("fastpath-postcard-6x3-1k", COMMON, 1.3).missed_because(FULL_DECODER),
    share("fanout-2", "of_limit", "two threads that share nothing", 0.9),
    share("fanout-2-100k", "of_limit", "two threads that share nothing", 0.9),
    times("replay", COMMON, 1.3).missed_because(
        "Since frames are processed where they were read, mainly the copy by `read()` and the sampling of series remain, which each \
         replay begins anew; reading ahead in another thread has not been tried.",
    ),
    most("switch-sf-transit", 60.0),
    of(
        "switch-filter",
        "ns_added_by_filter",
        "ns more than without it",
        30.0,
    )
    .missed_because(
        "The filter reads the record and a register of each of the five hops before the report is written; no faster way has been \
         tried.",
    ),
    share("udp-one-sender", "of_baseline", "a `recvmmsg` loop", 0.9),
    share("udp-one-sender-flood", "of_baseline", "a `recvmmsg` loop", 0.9),
    share("udp-loopback", "of_baseline", "a `recvmmsg` loop", 0.9),
    share("rx-xdp-native", "of_baseline", "a loop that discards", 0.9),
    share("rx-xdp-generic", "of_baseline", "a loop that discards", 0.9),
    share("rx-packet", "of_baseline", "a loop that discards", 0.9),
    share("rx-udp", "of_baseline", "a loop that discards", 0.9),
    share("switch-live", "of_baseline", "a loop that copies frames", 0.5),
    most("xdp-detect-1k-event", 400.0).missed_because(
        "An earlier program was measured, whose detection has been changed since then; the case has not been measured again.",
    ),
    // Other projects' programs on the same reports. `--all` does not measure them, because they need an object file.
    peer("peer-6x8-1k", 6.0),
    peer_in_kernel("peer-6x8-1k", 3.5),
    peer("peer-6x8-100k", 4.5),
    peer_in_kernel("peer-6x8-100k", 3.0),
    peer("peer-6x8-change", 5.0),
    peer("peer-1x1-1k", 1.6),
    peer_in_kernel("peer-1x1-1k", 1.0),
    peer("peer-3x3-1k", 4.0),
    peer_in_kernel("peer-3x3-1k", 3.0),
    share("dta-sketch-merge", "of_copy", "a copy", 0.33),
    share("rdma-key-write", "of_baseline", "a plain loop", 0.6),
    share("rdma-append-80", "of_baseline", "a plain loop", 0.55),
    share("rdma-append", "of_baseline", "a plain loop", 0.6).missed_because(
        "The responder also reads the frame and verifies its ICRC, which the plain loop does not; a CRC by carry-less \
         multiplication and storing writes in bursts were not enough.",
    ),
    share("dta-follow", "of_copy", "a copy", 0.5).missed_because(
        "A follower verifies the CRC-32C of each block, which a copy does not; computing it while copying, by the processor's CRC \
         instruction, was not enough.",
    ),
    share("dta-follow-4", "of_copy", "a copy", 0.5),
    of(
        "store-insert",
        "store_ns_on_core",
        "ns of the store's threads per event",
        1000.0,
    )
    .missed_because(
        "SQLite spends most of the time on the row and on three indexes; building the indexes when a file is complete was not \
         enough.",
    ),
    // One second, and 20 ms.
    most("manager-plan", 1e9),
    most("manager-one-more", 2e7),
    most("manager-one-more-everywhere", 2e7),
    of(
        "manager-apply-200",
        "simulated_ms",
        "ms of simulated time",
        2000.0,
    ),
    // Two million records per second, one million, and half a million.
    most("export-protobuf", 500.0),
    most("export-json", 1000.0),
    most("export-clickhouse", 2000.0),
    share("export-kafka", "of_own_load", "Kafka's own load tool", 0.7),
    of("export-catch-up", "lost", "reports lost meanwhile", 0.0),
    // User time of all threads, for a report and its records.
    of(
        "live-change-100",
        "user_ns_per_report",
        "ns of the program per report",
        1800.0,
    )
    .missed_because(
        "Each report also writes an event to the store, which alone misses its bar (`store-insert`); indexes built later were not \
         enough.",
    ),
    of(
        "live-asked-1m",
        "api_ms_greatest",
        "ms for the slowest page",
        60.0,
    )
    .missed_because(
        "Each page needs a new copy of all flows, sorted on a core that the sender and the collector also use; copies took the \
         place of sorting in the worker, which was slower.",
    ),
    // A million new flows in ten seconds.
    most("live-new-flows", 10_000.0),
];

/// Returns the names of all cases that goals refer to.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    BARS.iter().flat_map(|bar| {
        let other = match bar.goal {
            Goal::Times { case, .. } | Goal::More { case, .. } => Some(case),
            _ => None,
        };
        [Some(bar.case), other].into_iter().flatten()
    })
}
