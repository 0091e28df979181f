//! State machine that delivers one stream to one server, without I/O: the caller executes its [`Action`]s and reports results
//! with the time.
//!
//! ```text
//! Reading ──▶ Announcing ──▶ Sending ──▶ Saving ──▶ Reading …
//!  read a      save the       requests    save the
//!  batch       batch's end    per lane    cursor
//! ```
//!
//! While a batch is sent, the next page is read ahead. A batch that the server refuses is halved until the bad record is alone.

mod batch;
mod notice;
#[cfg(test)]
mod tests;

use self::batch::{Batch, Lane, LaneState};
pub use self::notice::Notice;
use self::notice::Notices;
use crate::backoff::{Backoff, Nanos};
use crate::cursor::{Cursor, Position};
use crate::ledger::Ledger;
use crate::outcome::Outcome;

/// Consecutive rejections after which the problem is more likely the stream than single records. Each further one is then
/// followed by a long pause, so that an operator can fix the cause before everything is rejected.
const MAX_CONSECUTIVE_REJECTIONS: u64 = 32;

/// A record with a key. Records with the same key stay in order.
pub trait Keyed {
    /// Returns a hash of the key.
    fn key(&self) -> u64;

    /// Returns the reason why the record can never be sent. It is then rejected without a request.
    fn refusal(&self) -> Option<&str> {
        None
    }
}

/// Number of a request. Its answer carries it, so that late answers are recognised.
pub type RequestId = u64;

/// The settings of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Maximum number of records in a batch.
    pub records: usize,
    /// Maximum size of a batch, bytes, as the reader counts them.
    pub bytes: usize,
    /// Maximum time to wait for a batch to fill.
    pub linger: Nanos,
    /// Interval between reads while there are no new records.
    pub poll: Nanos,
    /// Maximum time to wait for an answer.
    pub timeout: Nanos,
    /// Maximum number of concurrent requests. Each lane has its own share of the keys.
    pub lanes: usize,
    /// Save the end of a batch before sending it, so that a repetition after a crash has the same boundaries.
    pub announce: bool,
}

impl Default for Settings {
    /// Returns batches of up to 10,000 records or 900 kB, at most a second old.
    fn default() -> Self {
        const SECOND: Nanos = 1_000_000_000;
        Self {
            records: 10_000,
            bytes: 900_000,
            linger: SECOND,
            poll: SECOND / 2,
            timeout: 30 * SECOND,
            lanes: 1,
            announce: true,
        }
    }
}

/// An action for the caller. Each action has one result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Read the records from `from` on; then [`Delivery::page`] or [`Delivery::read_failed`].
    Read {
        /// The position of the first record.
        from: Position,
        /// Read exactly up to this position, whatever the size: this batch may have been sent already.
        until: Option<Position>,
        /// Without `until`, the maximum number of records.
        records: usize,
        /// Without `until`, the maximum size in bytes; at least one record is read.
        bytes: usize,
    },
    /// Send these records of [`Delivery::batch`], in this order; then [`Delivery::answer`].
    Send {
        /// Number to pass with the answer.
        request: RequestId,
        /// The records, by their indices in the batch.
        records: Vec<usize>,
    },
    /// Write a record that the server will never accept to a file, with the server's error; then [`Delivery::rejection_written`].
    Reject {
        /// The record, by its index in the batch.
        record: usize,
        /// The server's error message.
        reason: String,
    },
    /// Save the cursor, so that it survives a crash; then [`Delivery::saved`].
    Save(Cursor),
}

/// Records that were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<R> {
    /// The records, in the order of the stream.
    pub records: Vec<R>,
    /// The position at which the next page begins.
    pub end: Position,
    /// Records after `from` that had been deleted.
    pub expired: u64,
    /// Records in this range that do not belong to the stream.
    pub left_out: u64,
    /// Size of the records in memory, bytes.
    pub bytes: usize,
    /// There are no more records now.
    pub is_last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// There is no batch. It is read at `not_before`; `fills_until` is the deadline for more records to arrive.
    Reading {
        not_before: Nanos,
        fills_until: Option<Nanos>,
    },
    /// The end of the batch must be saved, not before this time.
    Announcing { not_before: Nanos },
    /// Requests are in flight.
    Sending,
    /// Everything is settled, and the cursor must be saved, not before this time.
    Saving { not_before: Nanos },
    /// Final state of the delivery.
    Stopped,
}

/// Delivery of one stream to one server. See the [crate](crate).
#[derive(Debug)]
pub struct Delivery<R> {
    settings: Settings,
    cursor: Cursor,
    /// The cursor that is being saved.
    pending_cursor: Cursor,
    step: Step,
    batch: Batch<R>,
    /// The page after the batch.
    next_page: Option<Page<R>>,
    /// Actions without a result yet: a read, a save, the writing of a rejected record.
    is_reading: bool,
    is_saving: bool,
    is_writing_rejected: bool,
    /// False if the last read found no more records or failed; then no read-ahead is made.
    read_ahead: bool,
    last_request: RequestId,
    /// Backoff for local I/O: reads and saves.
    io_backoff: Backoff,
    stop_at: Option<Nanos>,
    ledger: Ledger,
    notices: Notices,
    last_success: Option<Nanos>,
    rejected_in_a_row: u64,
}

impl<R: Keyed> Delivery<R> {
    /// Returns a delivery that resumes at `cursor`. `seed` is for the jitter of pauses.
    pub fn new(settings: Settings, cursor: Cursor, seed: u64) -> Self {
        let lanes = (0..settings.lanes.max(1) as u64).map(|lane| Lane::new(seed ^ (lane + 1) << 48));
        let cursor = Cursor {
            batch_end: cursor.batch_end.filter(|end| *end > cursor.settled),
            ..cursor
        };
        Self {
            settings,
            cursor,
            pending_cursor: cursor,
            step: Step::Reading {
                not_before: 0,
                fills_until: None,
            },
            batch: Batch::new(lanes.collect(), cursor.settled),
            next_page: None,
            is_reading: false,
            is_saving: false,
            is_writing_rejected: false,
            read_ahead: true,
            last_request: 0,
            io_backoff: Backoff::new(seed),
            stop_at: None,
            ledger: Ledger::default(),
            notices: Notices::default(),
            last_success: None,
            rejected_in_a_row: 0,
        }
    }

    /// Returns the records of the batch. Indices in actions refer to this slice.
    pub fn batch(&self) -> &[R] {
        &self.batch.records
    }

    /// Returns the last saved cursor.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Returns the number of records after the cursor that the ledger already counts as read, expired or left out.
    pub fn ahead(&self) -> u64 {
        let next = self.next_page.as_ref().map_or(0, |page| page.records.len());
        (self.batch.records.len() + next) as u64 + self.batch.expired + self.batch.left_out
    }

    /// Returns the size of the records in memory, bytes.
    pub fn bytes(&self) -> usize {
        self.batch.bytes + self.next_page.as_ref().map_or(0, |page| page.bytes)
    }

    /// Returns the counters of the records.
    pub fn ledger(&self) -> Ledger {
        let next = self.next_page.as_ref().map_or(0, |page| page.records.len());
        Ledger {
            held: self.batch.unsettled + next as u64,
            ..self.ledger
        }
    }

    /// Returns the time when a request last succeeded for all its records.
    pub fn last_success(&self) -> Option<Nanos> {
        self.last_success
    }

    /// Returns the error of the last failed or rejected request, or `None` if one has succeeded since.
    pub fn last_error(&self) -> Option<&str> {
        self.notices.last_error()
    }

    /// Removes and returns the notices for the log.
    pub fn notices(&mut self) -> Vec<Notice> {
        self.notices.drain()
    }

    /// Makes the next poll read, because new records were committed.
    pub fn wake(&mut self, now: Nanos) {
        if let Step::Reading {
            not_before,
            fills_until: None,
        } = &mut self.step
        {
            *not_before = (*not_before).min(now);
        }
        self.read_ahead = true;
    }

    /// Stops after the batch in flight, which gets `grace` ns to complete.
    pub fn stop(&mut self, now: Nanos, grace: Nanos) {
        self.stop_at.get_or_insert(now.saturating_add(grace));
        if let Some(page) = self.next_page.take() {
            self.ledger.read -= page.records.len() as u64;
        }
    }

    /// Returns true if the delivery has stopped and has no further actions.
    pub fn is_stopped(&self) -> bool {
        self.step == Step::Stopped
    }

    /// Returns the time of the next call of [`Delivery::poll`], or `None` if only a result can cause an action.
    pub fn wake_at(&self) -> Option<Nanos> {
        let step = match self.step {
            Step::Reading { not_before, .. } if !self.is_reading => Some(not_before),
            Step::Announcing { not_before } | Step::Saving { not_before } if !self.is_saving => {
                Some(not_before)
            }
            Step::Sending => self.batch.lanes.iter().filter_map(Lane::wake_at).min(),
            _ => None,
        };
        let stop = if self.is_stopped() { None } else { self.stop_at };
        step.into_iter().chain(stop).min()
    }

    /// Returns the next action. Call it until there is none, after each result and at [`Delivery::wake_at`].
    pub fn poll(&mut self, now: Nanos) -> Option<Action> {
        if self.stop_at.is_some_and(|at| at <= now) {
            self.step = Step::Stopped;
        }
        match self.step {
            Step::Stopped => None,
            Step::Reading {
                not_before,
                fills_until,
            } => self.poll_reading(now, not_before, fills_until),
            Step::Announcing { not_before } => {
                let cursor = Cursor {
                    batch_end: Some(self.batch.end),
                    ..self.cursor
                };
                self.save(cursor, not_before, now)
            }
            Step::Sending => self.poll_sending(now),
            Step::Saving { not_before } => self.save(self.after_batch(), not_before, now),
        }
    }

    /// Returns the cursor after the batch. If the next page is certain to become the next batch, its end is announced with the
    /// same save.
    fn after_batch(&self) -> Cursor {
        let next = self.next_page.as_ref().filter(|page| {
            self.settings.announce && !page.is_last && !page.records.is_empty() && self.stop_at.is_none()
        });
        Cursor {
            settled: self.batch.end,
            batch_end: next.map(|page| page.end),
        }
    }

    fn poll_reading(&mut self, now: Nanos, not_before: Nanos, fills_until: Option<Nanos>) -> Option<Action> {
        if let Some(page) = self.next_page.take() {
            self.begin(page, fills_until, now);
            return self.poll(now);
        }
        if self.stop_at.is_some() && !self.is_reading {
            self.step = Step::Stopped;
            return None;
        }
        if self.is_reading || now < not_before {
            return None;
        }
        self.is_reading = true;
        Some(self.read(self.cursor.settled, self.cursor.batch_end))
    }

    fn read(&self, from: Position, until: Option<Position>) -> Action {
        Action::Read {
            from,
            until,
            records: self.settings.records,
            bytes: self.settings.bytes,
        }
    }

    /// Processes the records that were read.
    pub fn page(&mut self, page: Page<R>, now: Nanos) {
        if !std::mem::take(&mut self.is_reading) {
            return;
        }
        self.io_backoff.reset();
        if self.stop_at.is_some() {
            return;
        }
        self.ledger.read += page.records.len() as u64;
        self.read_ahead = !page.is_last;
        match self.step {
            Step::Reading { fills_until, .. } => self.begin(page, fills_until, now),
            _ => self.next_page = Some(page),
        }
    }

    /// Schedules another attempt after a failed read.
    pub fn read_failed(&mut self, reason: &str, now: Nanos) {
        if !std::mem::take(&mut self.is_reading) {
            return;
        }
        self.notices.failing("the stream cannot be read", reason, now);
        self.read_ahead = false;
        let pause = now.saturating_add(self.io_backoff.pause(None));
        if let Step::Reading { not_before, .. } = &mut self.step {
            *not_before = pause;
        }
    }

    /// Makes a page the batch, unless it is not full and more records may arrive soon.
    fn begin(&mut self, page: Page<R>, fills_until: Option<Nanos>, now: Nanos) {
        let is_repeat = self.cursor.batch_end.is_some();
        let fill_deadline = fills_until.unwrap_or_else(|| now.saturating_add(self.settings.linger));
        if page.records.is_empty() && page.end == self.cursor.settled {
            let not_before = now.saturating_add(self.settings.poll);
            self.step = Step::Reading {
                not_before,
                fills_until: None,
            };
            return;
        }
        let has_content = !page.records.is_empty() || page.left_out > 0;
        if page.is_last && has_content && !is_repeat && now < fill_deadline {
            // Read it again later, with the records that arrive until then.
            self.ledger.read -= page.records.len() as u64;
            self.step = Step::Reading {
                not_before: fill_deadline,
                fills_until: Some(fill_deadline),
            };
            return;
        }
        if page.expired > 0 {
            self.ledger.expired += page.expired;
            self.notices.push(Notice::Expired(page.expired), now);
        }
        self.ledger.left_out += page.left_out;
        self.batch.fill(page.records, page.end);
        self.batch.expired = page.expired;
        self.batch.left_out = page.left_out;
        self.batch.bytes = page.bytes;
        self.step = if self.batch.records.is_empty() {
            Step::Saving { not_before: now }
        } else if self.settings.announce && self.cursor.batch_end != Some(page.end) {
            Step::Announcing { not_before: now }
        } else {
            Step::Sending
        };
    }

    fn save(&mut self, cursor: Cursor, not_before: Nanos, now: Nanos) -> Option<Action> {
        if self.is_saving || now < not_before {
            return None;
        }
        self.is_saving = true;
        self.pending_cursor = cursor;
        Some(Action::Save(cursor))
    }

    /// Processes the result of saving the cursor.
    pub fn saved(&mut self, result: Result<(), String>, now: Nanos) {
        if !std::mem::take(&mut self.is_saving) {
            return;
        }
        let failed = result.is_err();
        if let Err(reason) = result {
            self.ledger.unsaved += 1;
            self.notices.failing(
                "the cursor cannot be saved, so nothing more is sent",
                &reason,
                now,
            );
        }
        let retry_at = now.saturating_add(if failed { self.io_backoff.pause(None) } else { 0 });
        match self.step {
            Step::Announcing { .. } if failed => self.step = Step::Announcing { not_before: retry_at },
            Step::Announcing { .. } => {
                self.io_backoff.reset();
                self.cursor = self.pending_cursor;
                self.step = Step::Sending;
            }
            Step::Saving { .. } if failed => self.step = Step::Saving { not_before: retry_at },
            Step::Saving { .. } => {
                self.io_backoff.reset();
                self.cursor = self.pending_cursor;
                self.batch.clear();
                self.step = Step::Reading {
                    not_before: now,
                    fills_until: None,
                };
            }
            Step::Reading { .. } | Step::Sending | Step::Stopped => {}
        }
    }

    fn poll_sending(&mut self, now: Nanos) -> Option<Action> {
        if !self.is_writing_rejected
            && let Some((record, reason)) = self.batch.rejected.front()
        {
            self.is_writing_rejected = true;
            return Some(Action::Reject {
                record: *record,
                reason: reason.clone(),
            });
        }
        for lane in &mut self.batch.lanes {
            if lane.times_out(now) {
                self.ledger.timed_out += 1;
                self.notices
                    .failing("no answer in time", "the server did not answer", now);
            }
        }
        if let Some(action) = self.send(now) {
            return Some(action);
        }
        if self.batch.is_settled() && !self.is_writing_rejected {
            self.step = Step::Saving { not_before: now };
            return self.poll(now);
        }
        // Read ahead while the server works.
        if self.read_ahead && !self.is_reading && self.next_page.is_none() && self.stop_at.is_none() {
            self.is_reading = true;
            return Some(self.read(self.batch.end, None));
        }
        None
    }

    fn send(&mut self, now: Nanos) -> Option<Action> {
        let lane = self.batch.lanes.iter_mut().find(|lane| lane.can_send(now))?;
        self.last_request += 1;
        let request = self.last_request;
        let records = lane.send(request, now.saturating_add(self.settings.timeout))?;
        self.ledger.requests += 1;
        self.ledger.repeated += self.batch.mark_sent(&records);
        Some(Action::Send { request, records })
    }

    /// Processes the outcome of a request.
    pub fn answer(&mut self, request: RequestId, outcome: Outcome, now: Nanos) {
        let lane = self
            .batch
            .lanes
            .iter_mut()
            .find(|lane| lane.state == LaneState::InFlight(request));
        let Some(lane) = lane else {
            self.ledger.late += 1;
            return;
        };
        if self.step != Step::Sending {
            self.ledger.late += 1;
            return;
        }
        match outcome {
            Outcome::Settled {
                rejected,
                retry,
                reason: retry_reason,
                retry_after,
            } => {
                let Some(settled) = lane.settle(rejected, &retry) else {
                    let reason = "the answer names records that were not sent";
                    self.ledger.failed += 1;
                    lane.fail(now, retry_after);
                    return self.notices.failing("a request failed", reason, now);
                };
                self.ledger.settled += 1;
                self.ledger.delivered += settled.delivered;
                self.batch.unsettled -= settled.delivered;
                let rejected_count = settled.rejected.len() as u64;
                self.rejected_in_a_row = if settled.delivered > 0 {
                    0
                } else {
                    self.rejected_in_a_row + rejected_count
                };
                let reason = settled.rejected.last().map(|(_, reason)| reason.clone());
                self.batch.rejected.extend(settled.rejected);
                if self.rejected_in_a_row >= MAX_CONSECUTIVE_REJECTIONS
                    && let Some(reason) = reason
                {
                    lane.fail_for_long(now);
                    self.notices
                        .failing("the server rejects every record", &reason, now);
                } else if retry.is_empty() {
                    lane.succeed();
                    self.last_success = Some(now);
                    self.notices.recovered(now);
                } else {
                    lane.fail(now, retry_after);
                    let detail = if retry_reason.is_empty() {
                        String::new()
                    } else {
                        format!(": {retry_reason}")
                    };
                    let reason = format!("the server will accept {} records later{detail}", retry.len());
                    self.notices.failing("a request failed in part", &reason, now);
                }
            }
            Outcome::Failed { reason, retry_after } => {
                self.ledger.failed += 1;
                lane.fail(now, retry_after);
                self.notices.failing("a request failed", &reason, now);
            }
            Outcome::Unauthorised { reason } => {
                self.ledger.unauthorised += 1;
                lane.fail_for_long(now);
                self.notices
                    .failing("the server refused the credentials", &reason, now);
            }
            Outcome::Refused { reason } => {
                self.ledger.refused += 1;
                let refused_record = lane.halve();
                self.rejected_in_a_row += u64::from(refused_record.is_some());
                if refused_record.is_some() && self.rejected_in_a_row >= MAX_CONSECUTIVE_REJECTIONS {
                    lane.fail_for_long(now);
                    self.notices
                        .failing("the server rejects every record", &reason, now);
                } else {
                    lane.succeed();
                }
                self.batch
                    .rejected
                    .extend(refused_record.map(|record| (record, notice::one_line(&reason))));
            }
        }
    }

    /// Processes the result of writing a rejected record. If the write failed, the record is only counted.
    pub fn rejection_written(&mut self, result: Result<(), String>, now: Nanos) {
        if !std::mem::take(&mut self.is_writing_rejected) {
            return;
        }
        let Some((_, reason)) = self.batch.rejected.pop_front() else {
            return;
        };
        self.ledger.rejected += 1;
        self.batch.unsettled -= 1;
        self.notices.rejected(reason, self.rejected_in_a_row > 0, now);
        if let Err(reason) = result {
            self.ledger.unwritten += 1;
            self.notices
                .push(Notice::Unwritten(notice::one_line(&reason)), now);
        }
    }
}
