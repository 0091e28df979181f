//! Outcomes of requests to an external system.

use export::Outcome;

/// The result of interpreting an answer.
#[derive(Debug)]
pub(super) enum Answered {
    /// More must be sent before the outcome is known.
    More,
    Done {
        outcome: Outcome,
        /// Number of delivered records that this system does not store.
        left_out: usize,
    },
}

/// The reason a request has no usable answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// A transient failure; retrying may succeed.
    Passing(String),
    /// The server rejects the credentials.
    Denied(String),
    /// The server works, but the requested object does not exist.
    Absent(String),
}

impl From<String> for Failure {
    fn from(words: String) -> Self {
        Self::Passing(words)
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Passing(words) | Failure::Absent(words) => Self::failed(words),
            Failure::Denied(words) => Self::Unauthorised { reason: words },
        }
    }
}

impl Failure {
    pub(super) fn words(self) -> String {
        let (Self::Passing(words) | Self::Denied(words) | Self::Absent(words)) = self;
        words
    }
}

impl Answered {
    pub(super) fn done(outcome: Outcome) -> Self {
        Self::Done { outcome, left_out: 0 }
    }

    /// Returns the outcome of a request that has no answer.
    pub(super) fn missing() -> Self {
        Self::done(Failure::Passing("there is no answer".to_owned()).into())
    }
}
