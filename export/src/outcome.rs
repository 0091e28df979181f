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
        retry: Vec<usize>,
        /// The reason why one of `retry` was not accepted now.
        reason: String,
        /// Pause that the server asked for, ns.
        retry_after: Option<Nanos>,
    },
    /// Possibly nothing is stored, and the same request may succeed later: transport errors, 408, 429, 5xx.
    Failed {
        /// The reason of the failure.
        reason: String,
        /// Pause that the server asked for, ns.
        retry_after: Option<Nanos>,
    },
    /// This request can never succeed, and nothing of it is stored: 400, 413, 422.
    Refused {
        /// The error that the server reported.
        reason: String,
    },
    /// The credentials are wrong, or not sufficient: 401, 403.
    Unauthorised {
        /// The error that the server reported.
        reason: String,
    },
}

impl Outcome {
    /// The outcome of a request whose records are all stored.
    pub const DONE: Self = Self::Settled {
        rejected: Vec::new(),
        retry: Vec::new(),
        reason: String::new(),
        retry_after: None,
    };

    /// Returns the outcome of a request that may be repeated at once.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed {
            reason: reason.into(),
            retry_after: None,
        }
    }

    /// Classifies an HTTP response without per-record errors by its status.
    pub fn from_status(status: u16, reason: impl Into<String>, retry_after: Option<Nanos>) -> Self {
        let reason = reason.into();
        match status {
            200..=299 => Self::DONE,
            401 | 403 => Self::Unauthorised { reason },
            // A redirect or 404 means a wrong address, not a bad record: the records are sent once the address is corrected.
            ..=399 | 404 | 405 | 408 | 425 | 429 | 500.. => Self::Failed { reason, retry_after },
            _ => Self::Refused { reason },
        }
    }

    /// Adds the host and the status to the reason.
    pub fn explained(self, host: &str, status: u16) -> Self {
        match self {
            Self::Settled {
                rejected,
                retry,
                reason,
                retry_after,
            } => Self::Settled {
                rejected: rejected
                    .into_iter()
                    .map(|(record, reason)| (record, explain(reason, host, status)))
                    .collect(),
                reason: if retry.is_empty() {
                    reason
                } else {
                    explain(reason, host, status)
                },
                retry,
                retry_after,
            },
            Self::Failed { reason, retry_after } => Self::Failed {
                reason: explain(reason, host, status),
                retry_after,
            },
            Self::Refused { reason } => Self::Refused {
                reason: explain(reason, host, status),
            },
            Self::Unauthorised { reason } => Self::Unauthorised {
                reason: explain(reason, host, status),
            },
        }
    }
}

fn explain(reason: String, host: &str, status: u16) -> String {
    // The error of a single record in a successful response.
    if (200..=299).contains(&status) {
        return if reason.is_empty() {
            format!("{host} returned no reason")
        } else {
            reason
        };
    }
    let reason = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    let meaning = match status {
        // A 404 with an explanation comes from the right server.
        404 if !reason.is_empty() => " (check the url, and that the database, table or index exists)",
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
        let reason =
            |status, body: &str| match Outcome::from_status(status, body, None).explained("h:1", status) {
                Outcome::Failed { reason, .. }
                | Outcome::Refused { reason }
                | Outcome::Unauthorised { reason } => reason,
                done @ Outcome::Settled { .. } => format!("{done:?}"),
            };
        assert_eq!(
            [302, 401, 403, 404, 413, 429, 500, 599].map(|status| reason(status, "")),
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
            reason(503, "busy"),
            "h:1 answers HTTP 503 (it is overloaded, or not ready): busy"
        );
        assert_eq!(
            reason(404, "Database hopwise does not exist"),
            "h:1 answers HTTP 404 (check the url, and that the database, table or index exists): Database hopwise does not exist"
        );
        let by_record = Outcome::Settled {
            rejected: vec![(0, String::new()), (1, "bad".to_owned())],
            retry: vec![2],
            reason: String::new(),
            retry_after: None,
        };
        let none = "h:1 returned no reason".to_owned();
        let expected = Outcome::Settled {
            rejected: vec![(0, none.clone()), (1, "bad".to_owned())],
            retry: vec![2],
            reason: none,
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
