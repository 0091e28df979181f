//! Outcomes of the requests that were sent to a system.

use export::Outcome;

/// The meaning of an answer.
#[derive(Debug)]
pub(super) enum Answered {
    /// More is to be sent before the outcome is known.
    More,
    Done {
        outcome: Outcome,
        /// Delivered records that are not for this system.
        left_out: usize,
    },
}

/// The reason that there is no usable answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// Trying again later may succeed.
    Passing(String),
    /// The server does not take the credentials.
    Denied(String),
    /// The server is there, and what was asked for is not.
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

    /// Nothing was sent, or nothing came.
    pub(super) fn missing() -> Self {
        Self::done(Failure::Passing("there is no answer".to_owned()).into())
    }
}
