//! Settings of the flight recorder: the table `[flight_recorder]`.

use std::time::Duration;

use collector::flight::{Chunk, FlightConfig};

use crate::triggers::{Config, RecordedEvent};
use settings::{
    section,
    values::{Size, as_nanoseconds},
};

section! {
    /// The flight recorder: it keeps the datagrams of the last seconds in memory and, on an event, stores the related reports
    /// around it, one row per hop (view `reports`; the view `recordings` lists each recording and its cause). The page *Queues*
    /// uses them to show which flows filled a queue. It needs a store, and does not see reports that are suppressed in the kernel
    /// (`[collector.xdp] mode = "kernel"`).
    pub struct FlightRecorderSettings("[flight_recorder]") {
        /// Record. Default: yes, if there is a store and the kernel does not detect changes.
        pub enabled: Option<bool> = None,
        /// Memory for datagrams, over all workers, allocated when needed. A report of four hops takes about 200 bytes: 64 MiB are
        /// 300,000 reports; at a million reports a second, `before` and two seconds more need 512 MiB.
        pub memory: Size = Size(64 << 20),
        /// The events that start a recording. `queue_occupancy`, `queue_congestion`, `hop_latency` and `flow_latency`: a value rose by
        /// more than its threshold.
        pub on: Vec<RecordedEvent> = vec![
            RecordedEvent::RuleOn,
            RecordedEvent::Drop,
            RecordedEvent::PathLoop,
            RecordedEvent::QueueOccupancy,
        ],
        /// Time before the event.
        pub before: Duration = Duration::from_millis(500),
        /// Time after the event. Further events in that time make the recording longer, up to 3 s.
        pub after: Duration = Duration::from_millis(500),
        /// Maximum number of recordings per minute. Further events are counted, not recorded.
        pub per_minute: usize = 12,
        /// Maximum number of reports in a recording. If there are more, one in 2, 4, 8, … is stored, evenly. A report takes about
        /// 70 bytes on disk per hop: by default at most 10 GB a day, if events never stop.
        pub reports: usize = 2_000,
    }
}

impl FlightRecorderSettings {
    /// Returns the recorder's configuration. `has_all_reports`: the store has a row for each hop of every report.
    pub fn config(&self, has_all_reports: bool) -> Config {
        Config {
            windows: FlightConfig {
                before: as_nanoseconds(self.before),
                after: as_nanoseconds(self.after),
                per_minute: self.per_minute,
                reports: self.reports,
                ..FlightConfig::default()
            },
            causes: self.on.clone(),
            memory: usize::try_from(self.memory.0).unwrap_or(usize::MAX),
            has_all_reports,
        }
    }
}

/// Refuses unusable values of the section.
pub fn check(written: &FlightRecorderSettings, has_store: bool, refuse: &mut dyn FnMut(&[&str], &str)) {
    if written.enabled == Some(true) && !has_store {
        let message = "there is no store for recordings; set [store] enabled = true beside [collector], or remove the line";
        refuse(&["flight_recorder", "enabled"], message);
    }
    if !(4 * Chunk::BYTES as u64..=64 << 30).contains(&written.memory.0) {
        refuse(
            &["flight_recorder", "memory"],
            "write a size from \"1 MiB\" to \"64 GiB\"",
        );
    }
    let longest = Duration::from_nanos(FlightConfig::default().longest / 2);
    for (name, value) in [("before", written.before), ("after", written.after)] {
        if value > longest {
            refuse(
                &["flight_recorder", name],
                "too long; write a duration up to \"1500ms\"",
            );
        }
    }
    if !(1..=600).contains(&written.per_minute) {
        refuse(
            &["flight_recorder", "per_minute"],
            "write a number from 1 to 600, or enabled = false",
        );
    }
    if !(10..=1_000_000).contains(&written.reports) {
        refuse(
            &["flight_recorder", "reports"],
            "write a number from 10 to 1000000",
        );
    }
}
