//! A batch of records, divided into lanes by key. Each lane has at most one request in flight and its own backoff.

use std::collections::VecDeque;

use super::{Keyed, RequestId};
use crate::backoff::{Backoff, Nanos};
use crate::cursor::Position;

/// The records that are being delivered.
#[derive(Debug)]
pub(super) struct Batch<R> {
    pub(super) records: Vec<R>,
    /// Number of records before them that were deleted before they were read.
    pub(super) expired: u64,
    /// Number of records between them that do not belong to the stream.
    pub(super) left_out: u64,
    /// Bytes of the records in memory.
    pub(super) bytes: usize,
    /// The position at which the next batch begins.
    pub(super) end: Position,
    /// True for each record that was part of a request.
    was_sent: Vec<bool>,
    /// Number of records neither delivered nor rejected.
    pub(super) unsettled: u64,
    pub(super) lanes: Vec<Lane>,
    /// Rejected records that are not written to a file yet: index and the server's error.
    pub(super) rejected: VecDeque<(usize, String)>,
}

impl<R: Keyed> Batch<R> {
    pub(super) fn new(lanes: Vec<Lane>, end: Position) -> Self {
        Self {
            records: Vec::new(),
            expired: 0,
            left_out: 0,
            bytes: 0,
            end,
            was_sent: Vec::new(),
            unsettled: 0,
            lanes,
            rejected: VecDeque::new(),
        }
    }

    pub(super) fn fill(&mut self, records: Vec<R>, end: Position) {
        let lanes = self.lanes.len();
        let mut parts = vec![Vec::new(); lanes];
        for (index, record) in records.iter().enumerate() {
            if let Some(reason) = record.refusal() {
                self.rejected.push_back((index, super::notice::one_line(reason)));
                continue;
            }
            // Hashing the key is the most expensive step here, so one lane skips it.
            let lane = if lanes == 1 {
                0
            } else {
                record.key() % lanes as u64
            };
            parts[lane as usize].push(index);
        }
        for (lane, part) in self.lanes.iter_mut().zip(parts) {
            lane.parts.clear();
            if !part.is_empty() {
                lane.parts.push_back(part);
            }
            lane.state = LaneState::Ready;
        }
        self.unsettled = records.len() as u64;
        self.was_sent.clear();
        self.was_sent.resize(records.len(), false);
        self.records = records;
        self.end = end;
    }

    pub(super) fn clear(&mut self) {
        self.records = Vec::new();
        self.unsettled = 0;
        self.expired = 0;
        self.left_out = 0;
        self.bytes = 0;
    }

    /// Returns true if every record is delivered or rejected.
    pub(super) fn is_settled(&self) -> bool {
        self.rejected.is_empty() && self.lanes.iter().all(|lane| lane.parts.is_empty())
    }

    /// Marks records as sent. Returns how many were sent before.
    pub(super) fn mark_sent(&mut self, records: &[usize]) -> u64 {
        records
            .iter()
            .map(|index| u64::from(std::mem::replace(&mut self.was_sent[*index], true)))
            .sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LaneState {
    Ready,
    InFlight(RequestId),
    Waiting,
}

/// The part of a batch whose keys belong to one lane.
#[derive(Debug)]
pub(super) struct Lane {
    /// Record indices of each request. The first request is sent, and stays until it is settled.
    parts: VecDeque<Vec<usize>>,
    pub(super) state: LaneState,
    /// The deadline of the answer, or the time of the next attempt.
    until: Nanos,
    backoff: Backoff,
}

/// The records that a request settled.
pub(super) struct Settled {
    pub(super) delivered: u64,
    pub(super) rejected: Vec<(usize, String)>,
}

impl Lane {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            parts: VecDeque::new(),
            state: LaneState::Ready,
            until: 0,
            backoff: Backoff::new(seed),
        }
    }

    /// Returns the time of the lane's next event.
    pub(super) fn wake_at(&self) -> Option<Nanos> {
        match self.state {
            _ if self.parts.is_empty() => None,
            LaneState::Ready => Some(0),
            LaneState::InFlight(_) | LaneState::Waiting => Some(self.until),
        }
    }

    pub(super) fn can_send(&self, now: Nanos) -> bool {
        let is_ready = match self.state {
            LaneState::Ready => true,
            LaneState::Waiting => self.until <= now,
            LaneState::InFlight(_) => false,
        };
        is_ready && !self.parts.is_empty()
    }

    pub(super) fn send(&mut self, request: RequestId, until: Nanos) -> Option<Vec<usize>> {
        let part = self.parts.front()?.clone();
        self.state = LaneState::InFlight(request);
        self.until = until;
        Some(part)
    }

    /// Fails a request whose deadline has passed. Returns true if there was one.
    pub(super) fn times_out(&mut self, now: Nanos) -> bool {
        let is_over = matches!(self.state, LaneState::InFlight(_)) && self.until <= now;
        if is_over {
            self.fail(now, None);
        }
        is_over
    }

    /// Settles the first request, except for the records to be sent again (`retry`). Indices refer to the request. Returns `None` if
    /// the answer does not match the request.
    pub(super) fn settle(&mut self, rejected: Vec<(usize, String)>, retry: &[usize]) -> Option<Settled> {
        let part = self.parts.front()?;
        // The answer's order may differ from the request's.
        let mut unsettled = vec![true; part.len()];
        for index in rejected.iter().map(|(index, _)| index).chain(retry) {
            // Each index must exist in the request and occur once.
            if !std::mem::take(unsettled.get_mut(*index)?) {
                return None;
            }
        }
        let delivered = unsettled.iter().filter(|unsettled| **unsettled).count() as u64;
        let rejected = rejected
            .into_iter()
            .map(|(index, reason)| (part[index], super::notice::one_line(&reason)))
            .collect();
        let mut retry = retry.to_vec();
        retry.sort_unstable();
        let retry: Vec<usize> = retry.into_iter().map(|index| part[index]).collect();
        self.parts.pop_front();
        if !retry.is_empty() {
            self.parts.push_front(retry);
        }
        Some(Settled { delivered, rejected })
    }

    /// Splits the first request into two halves. Removes and returns its record instead if there is only one.
    pub(super) fn halve(&mut self) -> Option<usize> {
        let mut part = self.parts.pop_front()?;
        if part.len() < 2 {
            return part.pop();
        }
        let second = part.split_off(part.len() / 2);
        self.parts.push_front(second);
        self.parts.push_front(part);
        None
    }

    pub(super) fn succeed(&mut self) {
        self.state = LaneState::Ready;
        self.backoff.reset();
    }

    pub(super) fn fail(&mut self, now: Nanos, requested: Option<Nanos>) {
        let pause = self.backoff.pause(requested);
        self.wait(now.saturating_add(pause));
    }

    pub(super) fn fail_for_long(&mut self, now: Nanos) {
        let pause = self.backoff.long_pause(None);
        self.wait(now.saturating_add(pause));
    }

    fn wait(&mut self, until: Nanos) {
        self.state = LaneState::Waiting;
        self.until = until;
    }
}
