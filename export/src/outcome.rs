//! Classification of a server's answer to an export request: stored, retry later, rejected, or unauthorised.

use crate::backoff::Nanos;

/// The outcome of one request. HTTP status 200 with per-record errors inside is not a success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The server answered for each record; records in neither list are stored.
    Settled {
        /// Rejected records: index in the request, and the server's error.
        rejected: Vec<(usize, String)>,
        /// Records to send again later: indices in the request.
        again: Vec<usize>,
        /// The reason why one of `again` was not accepted now.
        words: String,
        /// Pause that the server asked for, ns.
        retry_after: Option<Nanos>,
    },
    /// Possibly nothing is stored, and the same request may succeed later: transport errors, 408, 429, 5xx.
    Failed {
        /// The reason of the failure.
        words: String,
        /// Pause that the server asked for, ns.
        retry_after: Option<Nanos>,
    },
    /// This request can never succeed, and nothing of it is stored: 400, 413, 422.
    Refused {
        /// The error that the server reported.
        words: String,
    },
    /// The credentials are wrong, or not sufficient: 401, 403.
    Unauthorised {
        /// The error that the server reported.
        words: String,
    },
}

impl Outcome {
    /// The outcome of a request whose records are all stored.
    pub const DONE: Self = Self::Settled {
        rejected: Vec::new(),
        again: Vec::new(),
        words: String::new(),
        retry_after: None,
    };

    /// Returns the outcome of a request that may be repeated at once.
    pub fn failed(words: impl Into<String>) -> Self {
        Self::Failed {
            words: words.into(),
            retry_after: None,
        }
    }

    /// Classifies an HTTP response without per-record errors by its status.
    pub fn from_status(status: u16, words: impl Into<String>, retry_after: Option<Nanos>) -> Self {
        let words = words.into();
        match status {
            200..=299 => Self::DONE,
            401 | 403 => Self::Unauthorised { words },
            // A redirect or 404 means a wrong address, not a bad record: the records are sent once the address is corrected.
            ..=399 | 404 | 405 | 408 | 425 | 429 | 500.. => Self::Failed { words, retry_after },
            _ => Self::Refused { words },
        }
    }

    /// Adds the host and the status to the reason.
    pub fn explained(self, host: &str, status: u16) -> Self {
        match self {
            Self::Settled {
                rejected,
                again,
                words,
                retry_after,
            } => Self::Settled {
                rejected: rejected
                    .into_iter()
                    .map(|(record, words)| (record, explain(words, host, status)))
                    .collect(),
                words: if again.is_empty() {
                    words
                } else {
                    explain(words, host, status)
                },
                again,
                retry_after,
            },
            Self::Failed { words, retry_after } => Self::Failed {
                words: explain(words, host, status),
                retry_after,
            },
            Self::Refused { words } => Self::Refused {
                words: explain(words, host, status),
            },
            Self::Unauthorised { words } => Self::Unauthorised {
                words: explain(words, host, status),
            },
        }
    }
}

fn explain(words: String, host: &str, status: u16) -> String {
    // The error of a single record in a successful response.
    if (200..=299).contains(&status) {
        return if words.is_empty() {
            format!("{host} returned no reason")
        } else {
            words
        };
    }
    let reason = if words.is_empty() {
        String::new()
    } else {
        format!(": {words}")
    };
    let meaning = match status {
        // A 404 with an explanation comes from the right server.
        404 if !words.is_empty() => " (check the url, and that the database, table or index exists)",
        _ => meaning(status),
    };
    format!("{host} answers HTTP {status}{meaning}{reason}")
}

/// Returns the meaning of an HTTP status and what to do, or an empty text if only the body explains it.
fn meaning(status: u16) -> &'static str {
    match status {
        300..=399 => " (a redirect, which is not followed; correct the url)",
        400 | 422 => " (it cannot read the request)",
        401 => " (invalid credentials; correct user, password or token)",
        403 => " (these credentials may not write there)",
        404 | 405 => " (it does not accept records at this address; correct the url)",
        408 | 504 => " (a time limit of the server, or of a proxy)",
        411 => " (it, or a proxy, requires another form of request)",
        413 => " (the request is too large for it, or for a proxy; raise its limit, or lower batch_size)",
        415 => " (it does not accept this format; correct the url, or the kind)",
        425 | 429 => " (too many requests)",
        500 => " (an error within the server; see its log)",
        502 => " (a proxy does not reach the server)",
        503 => " (it is overloaded, or not ready)",
        507 => " (its disk is full)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_body_is_explained_by_its_status() {
        let words =
            |status, body: &str| match Outcome::from_status(status, body, None).explained("h:1", status) {
                Outcome::Failed { words, .. }
                | Outcome::Refused { words }
                | Outcome::Unauthorised { words } => words,
                done @ Outcome::Settled { .. } => format!("{done:?}"),
            };
        assert_eq!(
            [302, 401, 403, 404, 413, 429, 500, 599].map(|status| words(status, "")),
            [
                "h:1 answers HTTP 302 (a redirect, which is not followed; correct the url)",
                "h:1 answers HTTP 401 (invalid credentials; correct user, password or token)",
                "h:1 answers HTTP 403 (these credentials may not write there)",
                "h:1 answers HTTP 404 (it does not accept records at this address; correct the url)",
                "h:1 answers HTTP 413 (the request is too large for it, or for a proxy; raise its limit, or lower batch_size)",
                "h:1 answers HTTP 429 (too many requests)",
                "h:1 answers HTTP 500 (an error within the server; see its log)",
                "h:1 answers HTTP 599",
            ]
        );
        assert_eq!(
            words(503, "busy"),
            "h:1 answers HTTP 503 (it is overloaded, or not ready): busy"
        );
        assert_eq!(
            words(404, "Database hopwise does not exist"),
            "h:1 answers HTTP 404 (check the url, and that the database, table or index exists): Database hopwise does not exist"
        );
        let by_record = Outcome::Settled {
            rejected: vec![(0, String::new()), (1, "bad".to_owned())],
            again: vec![2],
            words: String::new(),
            retry_after: None,
        };
        let none = "h:1 returned no reason".to_owned();
        let expected = Outcome::Settled {
            rejected: vec![(0, none.clone()), (1, "bad".to_owned())],
            again: vec![2],
            words: none,
            retry_after: None,
        };
        assert_eq!(by_record.explained("h:1", 200), expected);
        assert_eq!(Outcome::DONE.explained("h:1", 204), Outcome::DONE);
    }

    #[test]
    fn a_status_says_whether_to_try_again() {
        let kind = |status| match Outcome::from_status(status, "", None) {
            Outcome::Settled { .. } => 'd',
            Outcome::Failed { .. } => 'f',
            Outcome::Refused { .. } => 'r',
            Outcome::Unauthorised { .. } => 'u',
        };
        let statuses = [
            100, 200, 204, 301, 400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503, 507, 599, 999,
        ];
        assert_eq!(
            statuses.map(kind).iter().collect::<String>(),
            "fddfruuffrrrrffffff"
        );
    }
}
