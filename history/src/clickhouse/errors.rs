//! Translates ClickHouse's error codes into messages that say what the user or administrator can do.

use std::time::Duration;

use export::sink::{
    Response,
    clickhouse::{self, error_code, is_login_error},
    one_line, response_summary,
};
use settings::values::rounded_text;

use crate::sql::{Failure, QueryFailure};

/// The author of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Author {
    /// This program wrote the statement.
    Program,
    /// A user of the API.
    User,
}

impl Author {
    /// Returns advice for reducing the query.
    fn advice(self) -> &'static str {
        match self {
            Self::Program => "choose a shorter time",
            Self::User => "narrow it with a time range (ts >= …), or ask for fewer rows or columns",
        }
    }
}

/// Checks that a response is successful, and explains the error otherwise.
pub(super) fn check_response(
    response: &Response<'_>,
    author: Author,
    limit: Duration,
) -> Result<(), Failure> {
    // `wait_end_of_query` makes errors the only content of a response. The prefix is tested because rows may contain "Code: ",
    // too.
    if (200..=299).contains(&response.status) && !response.body.starts_with(b"Code: ") {
        return Ok(());
    }
    let code = clickhouse::code(response.body);
    let summary = response_summary(response);
    let message = one_line(response.body);
    match code {
        Some(code) if is_login_error(code) => unavailable(format!(
            "ClickHouse refuses the credentials of this console ({summary}); correct user and password_file in [console]"
        )),
        Some(error_code::TIMEOUT_EXCEEDED | error_code::TOO_SLOW) => Err(timed_out(limit, author)),
        Some(error_code::MEMORY_LIMIT_EXCEEDED) => reject(format!(
            "the query needs more memory than ClickHouse allows; {}",
            author.advice()
        )),
        Some(error_code::TOO_MANY_ROWS | error_code::TOO_MANY_BYTES | error_code::TOO_MANY_ROWS_OR_BYTES) => {
            Err(too_large(author))
        }
        Some(error_code::READONLY) if message.contains("setting") => unavailable(format!(
            "the user of this console has a profile in ClickHouse that lets it set no limits ({summary}); give it GRANT SELECT, and no profile with readonly"
        )),
        Some(error_code::READONLY) => reject(format!("a query can only read; write a SELECT ({message})")),
        Some(error_code::ACCESS_DENIED) => match author {
            Author::User => reject(format!(
                "the console's ClickHouse user lacks permission: {message}"
            )),
            Author::Program => unavailable(format!(
                "the user of this console may not read the tables ({summary}); GRANT SELECT on the database to it"
            )),
        },
        Some(error_code::UNKNOWN_TABLE | error_code::UNKNOWN_DATABASE) if author == Author::Program => {
            unavailable(format!(
                "ClickHouse does not have the tables ({summary}); `hopwise schema apply` of a collector makes them, and [console] names their database and prefix"
            ))
        }
        Some(_) if author == Author::User => reject(format!("ClickHouse refuses the query: {message}")),
        _ if matches!(response.status, 401 | 403) => unavailable(format!(
            "the server refuses the credentials of this console ({summary}); correct user and password_file, or token_file, in [console]"
        )),
        _ => unavailable(format!(
            "ClickHouse does not answer as expected ({summary}); check its log, and url in [console]"
        )),
    }
}

fn reject(message: String) -> Result<(), Failure> {
    Err(Failure::Query(QueryFailure::from(message)))
}

fn unavailable(message: String) -> Result<(), Failure> {
    Err(Failure::Unavailable(message))
}

/// Returns the error of a query that took too long.
pub(super) fn timed_out(limit: Duration, author: Author) -> Failure {
    Failure::Query(QueryFailure::from(format!(
        "the query took longer than {}; {}, or raise [api] query_timeout",
        rounded_text(limit),
        author.advice()
    )))
}

/// Returns the error of a response that is too large.
pub(super) fn too_large(author: Author) -> Failure {
    Failure::Query(QueryFailure::from(format!(
        "the answer is too large; {}",
        author.advice()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a list, in its order")]
    fn each_error_says_whose_fault_it_is_and_what_to_do() {
        let verdict = |status, body: &str, author| {
            let response = Response {
                status,
                retry_after: None,
                body: body.as_bytes(),
                is_cut: false,
            };
            match check_response(&response, author, Duration::from_secs(10)) {
                Ok(()) => "ok".to_owned(),
                Err(Failure::Query(failure)) => format!("400 {}", failure.message),
                Err(Failure::Unavailable(message)) => format!("503 {message}"),
            }
        };
        use Author::{Program, User};
        for (status, body, author, begins) in [
            (200, "{}\n", Program, "ok"),
            (200, "{\"rule\":\"Code: 241. DB::Exception\"}\n", Program, "ok"),
            (
                200,
                "Code: 241. DB::Exception: Memory limit",
                Program,
                "400 the query needs more memory",
            ),
            (
                403,
                "Code: 516. DB::Exception: x",
                User,
                "503 ClickHouse refuses the credentials",
            ),
            (
                408,
                "Code: 159. DB::Exception: x",
                User,
                "400 the query took longer than 10 s; narrow it",
            ),
            (
                408,
                "Code: 159. DB::Exception: x",
                Program,
                "400 the query took longer than 10 s; choose a shorter time, or raise",
            ),
            (
                500,
                "Code: 396. DB::Exception: x",
                User,
                "400 the answer is too large",
            ),
            (
                500,
                "Code: 164. DB::Exception: Cannot modify 'readonly' setting",
                User,
                "503 the user of this console has a profile",
            ),
            (
                500,
                "Code: 164. DB::Exception: Cannot execute query",
                User,
                "400 a query can only read",
            ),
            (
                500,
                "Code: 497. DB::Exception: x",
                User,
                "400 the console's ClickHouse user lacks permission",
            ),
            (
                500,
                "Code: 497. DB::Exception: x",
                Program,
                "503 the user of this console may not read",
            ),
            (
                404,
                "Code: 60. DB::Exception: x",
                Program,
                "503 ClickHouse does not have the tables",
            ),
            (
                404,
                "Code: 60. DB::Exception: x",
                User,
                "400 ClickHouse refuses the query: Code: 60.",
            ),
            (
                400,
                "Code: 62. DB::Exception: x",
                User,
                "400 ClickHouse refuses the query: Code: 62.",
            ),
            (
                400,
                "Code: 62. DB::Exception: x",
                Program,
                "503 ClickHouse does not answer as expected (HTTP 400",
            ),
            (401, "login", User, "503 the server refuses the credentials"),
            (
                502,
                "bad gateway",
                User,
                "503 ClickHouse does not answer as expected (HTTP 502: bad gateway)",
            ),
        ] {
            let is = verdict(status, body, author);
            assert!(is.starts_with(begins), "{status} {body}: {is}");
        }
    }
}
