//! What people read in the log: once, not for each request.

use std::collections::VecDeque;
use std::fmt;

use crate::backoff::Nanos;

/// Something that a person should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Requests, reads or saves fail. Repeated only with another reason, or after a minute.
    Failing {
        /// What happens, and why.
        words: String,
    },
    /// Requests succeed again.
    Recovered {
        /// For how long they had failed, ns.
        after: Nanos,
    },
    /// The server will never take a record, or nobody can read it: why. Reported once a minute at most.
    Rejected(String),
    /// A rejected record could not be written: why.
    Unwritten(String),
    /// So many records had been deleted before they were read.
    Expired(u64),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failing { words } => f.write_str(words),
            Self::Recovered { after } => {
                write!(f, "requests succeed again, after {:.1} s", *after as f64 / 1e9)
            }
            Self::Rejected(words) => write!(f, "a record is rejected: {words}"),
            Self::Unwritten(words) => write!(f, "a rejected record is only counted: {words}"),
            Self::Expired(count) => {
                let keep = "let the store, or Kafka, keep more";
                write!(f, "{count} records were deleted before they were sent; {keep}")
            }
        }
    }
}

const MINUTE: Nanos = 60_000_000_000;
/// More are not kept until somebody reads them.
const MOST: usize = 64;
/// Longer words of servers are cut: they may be whole pages.
const LONGEST: usize = 500;

#[derive(Default, Debug)]
pub(super) struct Notices {
    queue: VecDeque<Notice>,
    /// The failure, since when, and when it was last noted.
    failing: Option<(String, Nanos, Nanos)>,
    /// The last rejection, if the server has taken nothing since.
    rejected: Option<String>,
    rejected_at: Option<Nanos>,
    unwritten_at: Option<Nanos>,
}

impl Notices {
    pub(super) fn last_error(&self) -> Option<&str> {
        self.failing
            .as_ref()
            .map(|(words, ..)| words.as_str())
            .or(self.rejected.as_deref())
    }

    /// A record is rejected. `alone`: with nothing that the server took.
    pub(super) fn rejected(&mut self, words: String, alone: bool, now: Nanos) {
        let notice = Notice::Rejected(words);
        self.rejected = alone.then(|| notice.to_string());
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
        if self.queue.len() < MOST {
            self.queue.push_back(notice);
        }
    }

    pub(super) fn failing(&mut self, what: &str, why: &str, now: Nanos) {
        let words = format!("{what}: {}", cut(why));
        let since = self.failing.as_ref().map_or(now, |(_, since, _)| *since);
        let noted = match &self.failing {
            Some((last, _, noted)) if *last == words && now.saturating_sub(*noted) < MINUTE => *noted,
            _ => {
                self.push(Notice::Failing { words: words.clone() }, now);
                now
            }
        };
        self.failing = Some((words, since, noted));
    }

    pub(super) fn recovered(&mut self, now: Nanos) {
        self.rejected = None;
        if let Some((_, since, _)) = self.failing.take() {
            self.push(
                Notice::Recovered {
                    after: now.saturating_sub(since),
                },
                now,
            );
        }
    }
}

/// One line of bounded length, without control characters: words of servers go into logs and pages.
pub(super) fn cut(words: &str) -> String {
    let mut line: String = words.trim().chars().take(LONGEST + 1).collect();
    if line.chars().count() > LONGEST {
        line.pop();
        line.push_str(" …");
    }
    line.chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect()
}
