//! Sandbox for SQL of users: an SQLite authorizer that permits only reads of hopwise's tables and calls of pure functions,
//! limits on sizes, and a deadline. Also turns SQLite errors into messages with a suggestion.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode};

use crate::query::{QueryError, QueryErrorKind};

/// Virtual machine steps between two checks of the deadline: about 20 µs.
const STEPS_PER_CHECK: i32 = 2000;
/// Limits of a query. Sizes are in bytes, depths and counts in items. A row in memory is at most its columns times the length
/// of a value. Sorting and grouping use limited memory in the process that runs users' queries, and temporary files
/// elsewhere.
const LIMITS: &[(Limit, i32)] = &[
    (Limit::SQLITE_LIMIT_LENGTH, 1 << 20),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 256 << 10),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
    (Limit::SQLITE_LIMIT_COLUMN, 200),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 1000),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];
/// Names of SQLite's virtual tables, besides those recognised by their prefix: a `FROM` can use them although no file has
/// them.
const MODULES: &[&str] = &["bytecode", "dbstat", "geopoly", "tables_used"];

/// Makes `conn` read-only: from now on, only statements that read can be prepared on it.
pub(crate) fn make_read_only(conn: &mut Connection) -> rusqlite::Result<()> {
    for (limit, value) in LIMITS {
        conn.set_limit(*limit, *value)?;
    }
    conn.authorizer(Some(authorize))
}

/// The time limit of a request, which may be many queries over many files.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    start: Instant,
    pub(crate) timeout: Duration,
    stop: Option<Arc<AtomicBool>>,
}

impl Deadline {
    /// Returns a deadline that expires after `timeout`, or as soon as `stop` is set.
    pub(crate) fn new(timeout: Duration, stop: Option<Arc<AtomicBool>>) -> Self {
        Self {
            start: Instant::now(),
            timeout,
            stop,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        // Relaxed: the flag orders no other memory.
        self.start.elapsed() > self.timeout
            || self
                .stop
                .as_ref()
                .is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Returns a timeout error if the deadline has passed. Called between queries.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        if self.is_over() {
            let message = timeout_message(self.timeout);
            return Err(QueryError::new(QueryErrorKind::Timeout, message));
        }
        Ok(())
    }
}

/// Interrupts statements on `conn` once `deadline` has passed.
///
/// SQLite checks this between steps of its virtual machine, and one step of a hostile query can take minutes (`instr` on two
/// long texts). A server therefore runs users' queries in a separate process, which it can kill.
pub(crate) fn set_deadline(conn: &mut Connection, deadline: &Deadline) -> rusqlite::Result<()> {
    let deadline = deadline.clone();
    conn.progress_handler(STEPS_PER_CHECK, Some(move || deadline.is_over()))
}

fn authorize(context: AuthContext<'_>) -> Authorization {
    let allowed = match context.action {
        AuthAction::Select | AuthAction::Recursive => true,
        // A query such as `count(*)` reads no column. SQLite then passes the name used in the query, which may be a common
        // table expression. This is safe because the files only have hopwise's tables.
        AuthAction::Read {
            table_name,
            column_name: "",
        } => is_known(table_name) || !is_built_in(table_name),
        AuthAction::Read { table_name, .. } => is_readable(table_name),
        AuthAction::Function { function_name } => FUNCTIONS
            .iter()
            .any(|name| name.eq_ignore_ascii_case(function_name)),
        _ => false,
    };
    if allowed {
        Authorization::Allow
    } else {
        Authorization::Deny
    }
}

/// Returns true if queries may read this view or table.
fn is_readable(name: &str) -> bool {
    VIEWS.contains(&name) || TABLES.contains(&name)
}

fn is_known(table: &str) -> bool {
    let mut names = VIEWS.iter().chain(TABLES);
    names.any(|name| name.eq_ignore_ascii_case(table))
}

/// Returns true if `table` is one that SQLite itself provides.
fn is_built_in(table: &str) -> bool {
    let table = table.to_ascii_lowercase();
    MODULES.contains(&table.as_str())
        || ["pragma_", "sqlite_", "fts", "rtree"]
            .iter()
            .any(|prefix| table.starts_with(prefix))
}

/// Returns an error message with the cause and a suggestion.
pub(crate) fn explain(error: &rusqlite::Error, timeout: Duration) -> QueryError {
    match error {
        rusqlite::Error::SqlInputError { msg, offset, .. } => {
            let offset = usize::try_from(*offset).unwrap_or(0);
            let message = format!("{msg}, at character {}{}", offset + 1, hint(msg));
            QueryError {
                offset: Some(offset),
                ..QueryError::new(QueryErrorKind::Syntax, message)
            }
        }
        rusqlite::Error::MultipleStatement => QueryError::new(
            QueryErrorKind::Refused,
            "one query at a time: remove the text after the semicolon",
        ),
        rusqlite::Error::SqliteFailure(failure, text) => {
            let text = text.as_deref().unwrap_or("SQLite returned no reason");
            explain_failure(failure.code, text, timeout)
        }
        rusqlite::Error::InvalidParameterCount(given, wanted) => QueryError::new(
            QueryErrorKind::Syntax,
            format!("the query has {wanted} parameters, {given} values were given; give as many"),
        ),
        other => QueryError::new(QueryErrorKind::Syntax, other.to_string()),
    }
}

fn explain_failure(code: ErrorCode, text: &str, timeout: Duration) -> QueryError {
    let (kind, message) = match code {
        ErrorCode::OperationInterrupted => (QueryErrorKind::Timeout, timeout_message(timeout)),
        ErrorCode::AuthorizationForStatementDenied => {
            (QueryErrorKind::Refused, format!("{text}: queries may only read; {}", tables_hint()))
        }
        ErrorCode::OutOfMemory => (
            QueryErrorKind::TooLarge,
            "the query needs more memory for what it sorts, groups or joins than it may use; narrow it with a time range \
             (ts > …), or ask for fewer columns or groups"
                .to_owned(),
        ),
        ErrorCode::TooBig => (QueryErrorKind::TooLarge, format!("{text}: narrow the query")),
        ErrorCode::DatabaseCorrupt
        | ErrorCode::NotADatabase
        | ErrorCode::SystemIoFailure
        | ErrorCode::CannotOpen
        | ErrorCode::DiskFull
        | ErrorCode::DatabaseBusy => (
            QueryErrorKind::Storage,
            format!("a file of the store cannot be read: {text}; exclude its time range"),
        ),
        _ => (QueryErrorKind::Syntax, format!("{text}{}", hint(text))),
    };
    QueryError::new(kind, message)
}

fn timeout_message(timeout: Duration) -> String {
    format!(
        "the query took longer than {} s; narrow it with a time range (ts > …), end a recursion with \
         LIMIT, or allow more time",
        timeout.as_secs_f64()
    )
}

fn hint(message: &str) -> String {
    if message.starts_with("no such table") {
        format!("; {}", tables_hint())
    } else if message.starts_with("no such column") {
        "; SELECT * … LIMIT 1 shows the columns".to_owned()
    } else {
        String::new()
    }
}

fn tables_hint() -> String {
    format!("the tables are {}", VIEWS.join(", "))
}

/// Names of the documented SQL views.
pub const VIEWS: [&str; 7] = [
    "events",
    "rollups",
    "flows",
    "drops",
    "losses",
    "reports",
    "recordings",
];
/// Readable names besides the views: the tables behind them, SQLite's schema tables, and the JSON table functions.
const TABLES: &[&str] = &[
    "event_data",
    "first_data",
    "rollup_data",
    "flow_data",
    "drop_data",
    "loss_data",
    "report_data",
    "recording_data",
    "span_data",
    "taken_data",
    "minute_data",
    "block_data",
    "flow_key",
    "path_text",
    "rule_text",
    "kind_name",
    "metric_name",
    "basis_name",
    "meta",
    "sqlite_schema",
    "sqlite_master",
    "sqlite_temp_schema",
    "sqlite_temp_master",
    "json_each",
    "json_tree",
];

/// Permitted functions: they depend only on their arguments.
#[rustfmt::skip]
const FUNCTIONS: &[&str] = &[
    // Core.
    "abs", "char", "coalesce", "concat", "concat_ws", "format", "glob", "hex", "if", "ifnull", "iif", "instr", "length",
    "like", "lower", "ltrim", "max", "min", "nullif", "octet_length", "printf", "quote", "replace", "round", "rtrim",
    "sign", "substr", "substring", "trim", "typeof", "unhex", "unicode", "unistr", "unistr_quote", "upper",
    "likely", "unlikely", "likelihood",
    // Aggregates and windows.
    "avg", "count", "group_concat", "string_agg", "sum", "total", "median", "percentile", "percentile_cont",
    "percentile_disc", "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead",
    "first_value", "last_value", "nth_value",
    // Time.
    "date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff", "current_timestamp", "current_date",
    "current_time",
    // Mathematics.
    "acos", "asin", "atan", "atan2", "ceil", "ceiling", "cos", "degrees", "exp", "floor", "ln", "log", "log10", "log2",
    "mod", "pi", "pow", "power", "radians", "sin", "sqrt", "tan", "trunc",
    // JSON.
    "json", "json_array", "json_array_length", "json_extract", "json_group_array", "json_group_object", "json_object",
    "json_quote", "json_type", "json_valid", "->", "->>",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_that_sqlite_makes_up_is_known() {
        let conn = Connection::open_in_memory().unwrap();
        let mut modules = conn.prepare("SELECT name FROM pragma_module_list").unwrap();
        let modules: Vec<String> = modules
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(modules.contains(&"dbstat".to_owned()), "{modules:?}");
        let unknown: Vec<_> = modules
            .iter()
            .filter(|name| !is_known(name) && !is_built_in(name))
            .collect();
        assert_eq!(unknown, [] as [&String; 0]);
    }
}
