//! Log messages of a delivery, deduplicated: one per change of state instead of one per request.

use std::collections::VecDeque;
use std::fmt;

use crate::backoff::Nanos;

const MINUTE: Nanos = 60_000_000_000;
/// Maximum number of queued notices; more are dropped.
const MAX_QUEUED: usize = 64;
/// Maximum length of a server's message, characters; longer ones are truncated.
const MAX_REASON_CHARS: usize = 500;

/// A message for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Requests, reads or saves fail. Repeated when the reason changes or after a minute.
    Failing {
        /// The failed operation and the reason.
        reason: String,
    },
    /// Requests succeed again after failures.
    Recovered {
        /// Duration of the failure, ns.
        after: Nanos,
    },
    /// The reason why a record was rejected by the server or cannot be read. At most once a minute.
    Rejected(String),
    /// The reason why a rejected record could not be written to a file.
    Unwritten(String),
    /// Number of records that were deleted before they were read.
    Expired(u64),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failing { reason } => f.write_str(reason),
            Self::Recovered { after } => {
                write!(f, "requests succeed again, after {:.1} s", *after as f64 / 1e9)
            }
            Self::Rejected(reason) => write!(f, "a record is rejected: {reason}"),
            Self::Unwritten(reason) => write!(f, "a rejected record is only counted: {reason}"),
            Self::Expired(count) => {
                let keep = "let the store, or Kafka, keep more";
                write!(f, "{count} records were deleted before they were sent; {keep}")
            }
        }
    }
}

#[derive(Default, Debug)]
pub(super) struct Notices {
    queue: VecDeque<Notice>,
    failing: Option<Failure>,
    /// The last rejection, if the server has accepted nothing since.
    rejected: Option<String>,
    rejected_at: Option<Nanos>,
    unwritten_at: Option<Nanos>,
}

#[derive(Debug)]
struct Failure {
    reason: String,
    since: Nanos,
    /// Time of the last notice about it.
    noticed: Nanos,
}

impl Notices {
    pub(super) fn last_error(&self) -> Option<&str> {
        match &self.failing {
            Some(failure) => Some(&failure.reason),
            None => self.rejected.as_deref(),
        }
    }

    /// Records a rejection. `is_consecutive` means that the server has accepted nothing since the last rejection.
    pub(super) fn rejected(&mut self, reason: String, is_consecutive: bool, now: Nanos) {
        let notice = Notice::Rejected(reason);
        self.rejected = is_consecutive.then(|| notice.to_string());
        self.push(notice, now);
    }

    pub(super) fn drain(&mut self) -> Vec<Notice> {
        self.queue.drain(..).collect()
    }

    pub(super) fn push(&mut self, notice: Notice, now: Nanos) {
        let last = match &notice {
            Notice::Rejected(_) => Some(&mut self.rejected_at),
            Notice::Unwritten(_) => Some(&mut self.unwritten_at),
            _ => None,
        };
        if let Some(last) = last {
            if last.is_some_and(|last| now.saturating_sub(last) < MINUTE) {
                return;
            }
            *last = Some(now);
        }
        if self.queue.len() < MAX_QUEUED {
            self.queue.push_back(notice);
        }
    }

    pub(super) fn failing(&mut self, operation: &str, reason: &str, now: Nanos) {
        let reason = format!("{operation}: {}", one_line(reason));
        let since = self.failing.as_ref().map_or(now, |failure| failure.since);
        let noticed = match &self.failing {
            Some(failure) if failure.reason == reason && now.saturating_sub(failure.noticed) < MINUTE => {
                failure.noticed
            }
            _ => {
                self.push(
                    Notice::Failing {
                        reason: reason.clone(),
                    },
                    now,
                );
                now
            }
        };
        self.failing = Some(Failure {
            reason,
            since,
            noticed,
        });
    }

    pub(super) fn recovered(&mut self, now: Nanos) {
        self.rejected = None;
        if let Some(failure) = self.failing.take() {
            let after = now.saturating_sub(failure.since);
            self.push(Notice::Recovered { after }, now);
        }
    }
}

/// Truncates a server's message to one line of bounded length without control characters, since it goes into logs and pages.
pub(super) fn one_line(reason: &str) -> String {
    let mut line: String = reason.trim().chars().take(MAX_REASON_CHARS + 1).collect();
    if line.chars().count() > MAX_REASON_CHARS {
        line.pop();
        line.push_str(" …");
    }
    line.chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect()
}
