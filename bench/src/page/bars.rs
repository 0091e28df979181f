//! Performance goals ("bars") of the benchmark cases, which the page of figures compares with the results.

/// The goal that a case should reach.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bar {
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

impl Bar {
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

/// Returns the goal of a case, if it has one.
pub(super) fn bar_of(name: &str) -> Option<&'static Bar> {
    BARS.iter().find(|(case, _)| *case == name).map(|(_, bar)| bar)
}

const fn times(case: &'static str, most: f64) -> Bar {
    Bar::Times { case, most }
}

const fn share(condition: &'static str, what: &'static str, least: f64) -> Bar {
    Bar::Share {
        condition,
        what,
        least,
    }
}

const fn more(case: &'static str, most: f64) -> Bar {
    Bar::More { case, most }
}

const fn of(condition: &'static str, what: &'static str, most: f64) -> Bar {
    Bar::Of {
        condition,
        what,
        most,
    }
}

const COMMON: &str = "fastpath-6x8-1k";

const BARS: &[(&str, Bar)] = &[
    // Random order of flows takes at most a quarter more than the order of creation.
    ("fastpath-6x8-100k-shuffled", times("fastpath-6x8-100k", 1.25)),
    ("fastpath-6x8-1m-shuffled", times("fastpath-6x8-1m", 1.25)),
    // Linear in the length of the path: 33 ns and 8 ns per hop where six hops take 81 ns.
    ("fastpath-8x8-1k", times(COMMON, 1.2)),
    ("fastpath-12x8-1k", times(COMMON, 1.59)),
    ("fastpath-16x8-1k", times(COMMON, 1.99)),
    // Four items do not cost more than eight.
    ("fastpath-6x4-1k", times(COMMON, 1.0)),
    ("fastpath-6x8-1k-rule", more(COMMON, 5.0)),
    ("fastpath-6x8-1k-rule-history", more(COMMON, 15.0)),
    ("fastpath-6x8-1k-rules10", times(COMMON, 2.0)),
    // Other formats, per report. A path takes six reports with INT-MX and postcards.
    ("fastpath-md21-6x8-1k", times(COMMON, 1.5)),
    ("fastpath-tr20-md10-6x8-1k", times(COMMON, 1.5)),
    ("fastpath-tr05-6x8-1k", times(COMMON, 1.5)),
    ("fastpath-mx21-6x8-1k", times(COMMON, 1.5)),
    ("fastpath-postcard-6x3-1k", times(COMMON, 1.5)),
    ("fanout-2", share("speedup", "one worker", 1.7)),
    ("fanout-2-100k", share("speedup", "one worker", 1.7)),
    ("replay", times(COMMON, 1.2)),
    ("switch-sf-transit", Bar::Most(60.0)),
    (
        "switch-filter",
        of("ns_added_by_filter", "ns more than without it", 20.0),
    ),
    ("udp-one-sender", share("of_baseline", "a `recvmmsg` loop", 0.9)),
    (
        "udp-one-sender-flood",
        share("of_baseline", "a `recvmmsg` loop", 0.9),
    ),
    ("udp-loopback", share("of_baseline", "a `recvmmsg` loop", 0.9)),
    ("rx-xdp-native", share("of_baseline", "a loop that discards", 0.9)),
    (
        "rx-xdp-generic",
        share("of_baseline", "a loop that discards", 0.9),
    ),
    ("rx-packet", share("of_baseline", "a loop that discards", 0.9)),
    ("rx-udp", share("of_baseline", "a loop that discards", 0.9)),
    (
        "switch-live",
        share("of_baseline", "a loop that copies frames", 0.5),
    ),
    ("xdp-detect-1k-event", Bar::Most(400.0)),
    ("dta-sketch-merge", share("of_copy", "a copy", 0.33)),
    ("rdma-key-write", share("of_baseline", "a plain loop", 0.6)),
    ("rdma-append", share("of_baseline", "a plain loop", 0.6)),
    ("dta-follow", share("of_copy", "a copy", 0.5)),
    ("store-insert", Bar::Most(1000.0)),
    // One second, and 20 ms.
    ("manager-plan", Bar::Most(1e9)),
    ("manager-one-more", Bar::Most(2e7)),
    ("manager-one-more-everywhere", Bar::Most(2e7)),
    (
        "manager-apply-200",
        of("simulated_ms", "ms of simulated time", 2000.0),
    ),
    // Two million records per second, one million, and half a million.
    ("export-protobuf", Bar::Most(500.0)),
    ("export-json", Bar::Most(1000.0)),
    ("export-clickhouse", Bar::Most(2000.0)),
    ("export-kafka", share("of_own_load", "Kafka's own load tool", 0.7)),
    ("export-catch-up", of("lost", "reports lost meanwhile", 0.0)),
    // User time of all threads, for a report and its records.
    (
        "live-change-100",
        of("user_ns_per_report", "ns of the program per report", 1000.0),
    ),
    (
        "live-asked-1m",
        of("api_ms_greatest", "ms for the slowest page", 100.0),
    ),
    // A million new flows in ten seconds.
    ("live-new-flows", Bar::Most(10_000.0)),
];

/// Returns the names of all cases that goals refer to.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    BARS.iter().flat_map(|(name, bar)| {
        let other = match *bar {
            Bar::Times { case, .. } | Bar::More { case, .. } => Some(case),
            _ => None,
        };
        [Some(*name), other].into_iter().flatten()
    })
}
