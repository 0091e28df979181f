//! What became of a request.

use crate::backoff::Nanos;

/// A server's answer to one request, as an exporter understood it. HTTP status 200 with errors inside is not a success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The server answered for each record: those in neither list are stored.
    Settled {
        /// Index in the request, and the server's words: it will never take this record.
        rejected: Vec<(usize, String)>,
        /// Indices in the request: it may take these later.
        again: Vec<usize>,
        /// Why not now, of one of them.
        words: String,
        /// When it wants to be asked again.
        retry_after: Option<Nanos>,
    },
    /// Nothing is known to be stored, and the same request may succeed later: transport errors, 408, 429, 5xx.
    Failed {
        /// The reason, in words.
        words: String,
        /// When the server wants to be asked again.
        retry_after: Option<Nanos>,
    },
    /// The request as it is will never be taken, and nothing of it is stored: 400, 413, 422.
    Refused {
        /// The server's words.
        words: String,
    },
    /// The credentials are wrong, or not sufficient: 401, 403.
    Unauthorised {
        /// The server's words.
        words: String,
    },
}

impl Outcome {
    /// Everything is stored.
    pub const DONE: Self =
        Self::Settled { rejected: Vec::new(), again: Vec::new(), words: String::new(), retry_after: None };

    /// The outcome of a whole HTTP request without errors by record, by its status.
    pub fn of_status(status: u16, words: impl Into<String>, retry_after: Option<Nanos>) -> Self {
        let words = words.into();
        match status {
            200..=299 => Self::DONE,
            401 | 403 => Self::Unauthorised { words },
            // A redirect is a wrong address, not a wrong record: whoever corrects it wants the records.
            ..=399 | 404 | 405 | 408 | 425 | 429 | 500.. => Self::Failed { words, retry_after },
            _ => Self::Refused { words },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_to_try_again() {
        let kind = |status| match Outcome::of_status(status, "", None) {
            Outcome::Settled { .. } => 'd',
            Outcome::Failed { .. } => 'f',
            Outcome::Refused { .. } => 'r',
            Outcome::Unauthorised { .. } => 'u',
        };
        let statuses =
            [100, 200, 204, 301, 400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503, 507, 599, 999];
        assert_eq!(statuses.map(kind).iter().collect::<String>(), "fddfruuffrrrrffffff");
    }
}
