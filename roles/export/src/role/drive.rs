//! The event loop around a [`Delivery`], shared by exports and outlets. It asks the delivery (a state machine without I/O) for
//! actions, runs them as tasks, and feeds the results back. Files are written on blocking threads.
//!
//! Timers use the monotonic clock, so that backoff, polls and repeated alerts are unaffected by changes of the system clock.

use std::{sync::Arc, time::Duration};

use export::{Action, Cursor, Delivery, Keyed, RequestId};
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time,
};

use super::{GRACE, files::Files};

/// The source and the destination of a delivery.
pub(super) trait Route: Sized {
    type Record: Keyed;
    /// The result of sending a request.
    type Sent: Send + 'static;
    /// The result of reading records.
    type Read: Send + 'static;

    /// Returns the delivery that this route serves.
    fn delivery(&mut self) -> &mut Delivery<Self::Record>;

    /// Starts a task that reads the requested records.
    fn begin_read(&mut self, wanted: ReadRequest, tasks: &mut Tasks<Self>);

    /// Processes the result of a read, or `None` if the reader panicked.
    fn read(&mut self, read: Option<Self::Read>);

    /// Starts to send these records of the batch, given by index.
    fn begin_send(&mut self, request: RequestId, records: Vec<usize>, tasks: &mut Tasks<Self>);

    /// Processes the result of sending, or `None` if the task panicked.
    fn sent(&mut self, sent: Option<Self::Sent>, tasks: &mut Tasks<Self>);

    /// Returns the files of the cursor and of rejected records, or `None` if no cursor is saved.
    fn cursor_files(&self) -> Option<Arc<Files>>;

    /// Returns the files for a permanently rejected record, and its line there; `None` if the record is no longer in memory.
    fn rejected(&self, record: usize, words: &str) -> Option<(Arc<Files>, Vec<u8>)>;

    /// Called after a cursor was saved. `now` is monotonic time, ns, as in [`Route::report`].
    fn saved(&mut self, _cursor: Cursor, _now: u64) {}

    /// Publishes the progress of the delivery.
    fn report(&mut self, now: u64, tasks: &mut Tasks<Self>);

    /// Returns whether something is still pending, even though the delivery has stopped.
    fn is_busy(&self) -> bool {
        false
    }
}

/// A range of records to read, with limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRequest {
    pub(super) from: export::Position,
    pub(super) until: Option<export::Position>,
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// The tasks in progress.
pub(super) struct Tasks<R: Route> {
    pub(super) reading: JoinSet<R::Read>,
    pub(super) sending: JoinSet<R::Sent>,
    writing: JoinSet<Written>,
}

/// The result of writing a file.
enum Written {
    Saved(Cursor, Result<(), String>),
    Kept(Result<(), String>),
}

/// Runs until the delivery has stopped. `stopped` requests that, after the batch in flight.
pub(super) async fn drive<R: Route>(route: &mut R, mut stopped: watch::Receiver<bool>) {
    let mut tasks = Tasks {
        reading: JoinSet::new(),
        sending: JoinSet::new(),
        writing: JoinSet::new(),
    };
    let mut stopping = false;
    loop {
        let now = nic::time::monotonic();
        while let Some(action) = route.delivery().poll(now) {
            execute(route, action, &mut tasks, now);
        }
        route.report(now, &mut tasks);
        if route.delivery().is_stopped() && !route.is_busy() {
            return;
        }
        let rest = route.delivery().wake_at().map_or(LONGEST_REST, |at| {
            Duration::from_nanos(at.saturating_sub(nic::time::monotonic())).min(LONGEST_REST)
        });
        tokio::select! {
            Some(sent) = tasks.sending.join_next() => route.sent(sent.ok(), &mut tasks),
            Some(read) = tasks.reading.join_next() => route.read(read.ok()),
            Some(done) = tasks.writing.join_next() => written(route, done),
            changed = stopped.changed(), if !stopping => {
                // The sender is dropped only when the process ends.
                stopping = changed.is_err() || *stopped.borrow();
                if stopping {
                    let grace = u64::try_from(GRACE.as_nanos()).unwrap_or(u64::MAX);
                    route.delivery().stop(nic::time::monotonic(), grace);
                }
            }
            () = time::sleep(rest) => {}
        }
    }
}

/// Starts an action of the delivery as a task.
fn execute<R: Route>(route: &mut R, action: Action, tasks: &mut Tasks<R>, now: u64) {
    match action {
        Action::Read {
            from,
            until,
            records,
            bytes,
        } => {
            route.begin_read(
                ReadRequest {
                    from,
                    until,
                    records,
                    bytes,
                },
                tasks,
            );
        }
        Action::Send { request, records } => route.begin_send(request, records, tasks),
        Action::Reject { record, reason } => match route.rejected(record, &reason) {
            Some((files, line)) => {
                tasks
                    .writing
                    .spawn_blocking(move || Written::Kept(files.keep(&line)));
            }
            None => route
                .delivery()
                .rejection_written(Err("the record is not in memory".to_owned()), now),
        },
        Action::Save(cursor) => match route.cursor_files() {
            Some(files) => {
                tasks
                    .writing
                    .spawn_blocking(move || Written::Saved(cursor, files.save(&cursor)));
            }
            None => saved(route, cursor, Ok(())),
        },
    }
}

fn written<R: Route>(route: &mut R, written: Result<Written, JoinError>) {
    let now = nic::time::monotonic();
    match written {
        Ok(Written::Saved(cursor, result)) => saved(route, cursor, result),
        Ok(Written::Kept(result)) => route.delivery().rejection_written(result, now),
        // At most one write is pending, but which one panicked is unknown.
        Err(_) => {
            route.delivery().saved(Err("writing failed".to_owned()), now);
            route
                .delivery()
                .rejection_written(Err("writing failed".to_owned()), now);
        }
    }
}

fn saved<R: Route>(route: &mut R, cursor: Cursor, result: Result<(), String>) {
    let now = nic::time::monotonic();
    let is_saved = result.is_ok();
    route.delivery().saved(result, now);
    if is_saved {
        route.saved(cursor, now);
    }
}

const LONGEST_REST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Keyed for Nothing {
        fn key(&self) -> u64 {
            0
        }
    }

    /// A route that notes the times of its timers, and stops.
    struct Noting {
        delivery: Delivery<Nothing>,
        times: Vec<u64>,
    }

    impl Route for Noting {
        type Record = Nothing;
        type Sent = ();
        type Read = ();

        fn delivery(&mut self) -> &mut Delivery<Nothing> {
            &mut self.delivery
        }

        fn begin_read(&mut self, _wanted: ReadRequest, tasks: &mut Tasks<Self>) {
            tasks.reading.spawn(async {});
        }

        fn read(&mut self, _read: Option<()>) {}

        fn begin_send(&mut self, _request: RequestId, _records: Vec<usize>, _tasks: &mut Tasks<Self>) {}

        fn sent(&mut self, _sent: Option<()>, _tasks: &mut Tasks<Self>) {}

        fn cursor_files(&self) -> Option<Arc<Files>> {
            None
        }

        fn rejected(&self, _record: usize, _words: &str) -> Option<(Arc<Files>, Vec<u8>)> {
            None
        }

        fn report(&mut self, now: u64, _tasks: &mut Tasks<Self>) {
            self.times.push(now);
            self.delivery.stop(now, 0);
        }
    }

    #[test]
    fn timers_run_by_a_clock_that_nobody_sets() {
        let mut route = Noting {
            delivery: Delivery::new(export::Settings::default(), Cursor::default(), 1),
            times: Vec::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (_sender, stopped) = watch::channel(false);
        let before = nic::time::monotonic();
        runtime.block_on(drive(&mut route, stopped));
        let after = nic::time::monotonic();
        assert!(!route.times.is_empty());
        assert!(
            route.times.iter().all(|now| (before..=after).contains(now)),
            "{:?}",
            route.times
        );
    }
}
