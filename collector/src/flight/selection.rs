//! Selects which reports of a time window the flight recorder records, in full or thinned to a bounded number.

use wire::report::Report;

use super::window::{Recording, Window};
use crate::event::{Event, Location};

/// Collects the reports that concern the triggers of a window, in order: all, or one of every 2, 4, … if there are too many.
#[derive(Debug)]
pub struct Selection<T> {
    window: Window,
    /// Number of reports for each trigger.
    reports: Vec<u64>,
    most: usize,
    every: u64,
    offered: u64,
    kept: Vec<T>,
}

impl<T> Selection<T> {
    /// Creates an empty selection of at most `most` items, at least two.
    pub fn new(window: Window, most: usize) -> Self {
        let reports = vec![0; window.triggers.len()];
        let most = most.max(2);
        Self {
            window,
            reports,
            most,
            every: 1,
            offered: 0,
            kept: Vec::new(),
        }
    }

    /// Returns the window whose reports are collected.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Adds the result of `make` if the report concerns a trigger and is selected.
    pub fn offer(&mut self, report: &Report<'_>, make: impl FnOnce() -> T) {
        let mut concerned = false;
        for (trigger, count) in self.window.triggers.iter().zip(&mut self.reports) {
            if concerns(&trigger.event, report) {
                *count += 1;
                concerned = true;
            }
        }
        if !concerned {
            return;
        }
        if self.offered.is_multiple_of(self.every) {
            if self.kept.len() >= self.most {
                self.every *= 2;
                let mut place = 0_u64;
                self.kept.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
            }
            if self.offered.is_multiple_of(self.every) {
                self.kept.push(make());
            }
        }
        self.offered += 1;
    }

    /// Returns a recording for each trigger, and the collected items. `late` states that the start of the window was no longer
    /// in memory.
    pub fn finish(self, late: bool) -> (Vec<Recording>, Vec<T>) {
        let Window {
            from, to, triggers, ..
        } = self.window;
        let every = self.every;
        let recordings = triggers.into_iter().zip(self.reports);
        let recordings = recordings.map(|(trigger, reports)| Recording {
            trigger,
            from,
            to,
            reports,
            every,
            late,
        });
        (recordings.collect(), self.kept)
    }
}

/// Returns true if a report concerns an event: it passed the event's node, port and queue, or belongs to the event's flow if
/// the event has no node.
fn concerns(event: &Event, report: &Report<'_>) -> bool {
    let Some(node) = event.node else {
        return event.flow.is_some() && report.flow == event.flow;
    };
    let mut hops = report.hops().peekable();
    if hops.peek().is_none() {
        // A drop report may have no hop; its header then names the node.
        return report.node_id == Some(node);
    }
    hops.any(|hop| {
        let location = Location {
            node: hop.node_id.or(report.node_id),
            interface: hop.egress_interface(),
            queue: hop.queue_id,
        };
        // If a hop names no queue or no port, it may be the event's.
        location.node == event.node && location.may_equal(&event.location())
    })
}

#[cfg(test)]
mod tests {
    use super::super::window::Trigger;
    use super::*;
    use crate::event::Kind;

    fn event(node: Option<u32>, queue: Option<u8>) -> Event {
        Event {
            node,
            queue,
            ..Event::blank(100, Kind::Change)
        }
    }

    fn with_report(check: impl FnOnce(&Report<'_>)) {
        // A packet that passed nodes 1, 2 and 3.
        let bytes = testkit::vectors::bytes("tr20_emb");
        let profile = wire::Profile::default();
        let mut decoder = wire::Decoder::new(profile);
        let report = decoder.reports(&bytes).next().unwrap().unwrap();
        check(&report);
    }

    #[test]
    fn a_report_concerns_an_event_of_its_nodes_and_of_its_flow() {
        with_report(|report| {
            let of_flow = |flow| Event {
                flow,
                ..event(None, None)
            };
            let queue = report
                .hops()
                .find(|hop| hop.node_id == Some(2))
                .and_then(|hop| hop.queue_id);
            let other = queue.map_or(0, |queue| queue ^ 1);
            let checks = [
                (event(Some(2), None), true),
                (event(Some(9), None), false),
                (event(Some(2), queue), true),
                (event(Some(2), Some(other)), queue.is_none()),
                (of_flow(report.flow), true),
                (of_flow(None), false),
            ];
            for (event, expected) in checks {
                assert_eq!(concerns(&event, report), expected, "{event:?}");
            }
        });
    }

    #[test]
    fn too_many_reports_are_thinned_evenly_and_counted() {
        with_report(|report| {
            let triggers = [2, 9].map(|node| Trigger {
                event: event(Some(node), None),
                rule: None,
            });
            let window = Window {
                from: 0,
                to: 200,
                triggers: triggers.into(),
                left_out: 0,
            };
            let mut selection = Selection::new(window.clone(), 100);
            for place in 0..1_000 {
                selection.offer(report, || place);
            }
            let (recordings, kept) = selection.finish(false);
            let counts: Vec<_> = recordings.iter().map(|one| (one.reports, one.every)).collect();
            assert_eq!(counts, [(1_000, 16), (0, 16)]);
            assert_eq!(kept, (0..1_000).step_by(16).collect::<Vec<_>>());
            let (few, kept) = {
                let mut selection = Selection::new(window, 100);
                (0..100).for_each(|place| selection.offer(report, || place));
                selection.finish(true)
            };
            assert_eq!(
                (few[0].every, few[0].late, kept),
                (1, true, (0..100).collect::<Vec<_>>())
            );
        });
    }
}
