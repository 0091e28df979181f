//! Helper process for users' SQL (`hopwise sql-helper DIR`): limits its own memory and file sizes, then runs one query after
//! another from standard input.

use std::{
    io::{self, BufRead, Write},
    path::Path,
    process::ExitCode,
    sync::mpsc::channel,
    thread,
    time::Instant,
};

use store::{QueryError, QueryErrorKind, QueryOptions, Reader, Value};
use terminal::CliError;

use super::{Header, MAX_BYTES, Request, Rows};
use view::fill;

/// Memory limit of a helper, bytes: page caches, sorting, and the response.
const MAX_MEMORY: u64 = 1 << 30;
/// Limit of SQLite's heap, bytes: page caches, sorting, grouping and materialisation. There are no temporary files.
const MAX_SQLITE_HEAP: u64 = 640 << 20;
/// Maximum file size that it may write, bytes: the WAL's shared memory, which the first reader creates.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Serves queries from standard input over the files in `directory`, until the input ends.
///
/// # Errors
/// The directory cannot be read, or the server is gone.
pub fn serve(directory: &Path) -> Result<ExitCode, CliError> {
    let limits = nic::process::limit_own(MAX_MEMORY, MAX_FILE_BYTES).map_err(|error| limit_error(&error));
    let reader = Reader::open_confined(directory, MAX_SQLITE_HEAP)
        .map_err(|error| CliError::new(error.to_string()))?;
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            // Fails if the main thread is about to end.
            let _ = sender.send(line);
        }
        // End of input: the server is gone, so a running query has no client.
        std::process::exit(0);
    });
    let mut out = io::stdout().lock();
    for line in lines {
        let (header, body) = answer(&reader, &limits, &line);
        let written = serde_json::to_writer(&mut out, &header)
            .map_err(io::Error::from)
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.write_all(&body))
            .and_then(|()| out.flush());
        written.map_err(|error| CliError::io("cannot answer a query", error, "has the server exited?"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats the error if the limits cannot be set; then no query is run.
fn limit_error(error: &nic::Error) -> String {
    format!(
        "queries run in a process with resource limits, which the sandbox forbids ({error}); allow setrlimit and prlimit64, as \
         packaging/hopwise.service does"
    )
}

fn answer(reader: &Reader, limits: &Result<(), String>, line: &str) -> (Header, Vec<u8>) {
    if let Err(message) = limits {
        return fault(message.clone());
    }
    let request: Request = match serde_json::from_str(line) {
        Ok(request) => request,
        Err(error) => return fault(error.to_string()),
    };
    let rows = match run_query(reader, &request) {
        Ok(rows) => rows,
        Err(error) => {
            let refused = Header::Refused {
                storage: error.kind == QueryErrorKind::Storage,
                message: error.message,
                offset: error.offset,
            };
            return (refused, Vec::new());
        }
    };
    match serde_json::to_vec(&rows) {
        Ok(body) => (Header::Answer { length: body.len() }, body),
        Err(error) => fault(error.to_string()),
    }
}

fn fault(message: String) -> (Header, Vec<u8>) {
    let refused = Header::Refused {
        storage: true,
        message,
        offset: None,
    };
    (refused, Vec::new())
}

fn run_query(reader: &Reader, request: &Request) -> Result<Rows, QueryError> {
    let started = Instant::now();
    let options = QueryOptions {
        from: request.from,
        to: request.to,
        max_rows: request.max_rows,
        max_bytes: MAX_BYTES,
        timeout: request.timeout,
        ..QueryOptions::default()
    };
    let table = reader.query(&request.sql, &options)?;
    let rows = table
        .rows
        .into_iter()
        .map(|row| row.into_iter().map(cell).collect());
    let (rows, is_cut) = fill(rows, usize::MAX, MAX_BYTES);
    let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
    let notes = request.notes.iter().cloned().chain(table.notes).collect();
    Ok(Rows {
        columns: table.columns,
        rows,
        truncated: table.truncated || is_cut,
        notes,
        elapsed_ms,
    })
}

fn cell(value: Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Int(number) => number.into(),
        // Infinity and NaN have no JSON form; they become null.
        Value::Real(number) => number.into(),
        Value::Text(text) => text.into(),
        Value::Blob(bytes) => bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn without_limits_nothing_is_executed() {
        let directory = std::env::temp_dir();
        let reader = Reader::open(directory).unwrap();
        let request = Request {
            sql: "SELECT 1".into(),
            from: None,
            to: None,
            max_rows: 1,
            timeout: Duration::from_secs(60),
            notes: Vec::new(),
        };
        let line = serde_json::to_string(&request).unwrap();
        let answered = |limits: &Result<(), String>| match answer(&reader, limits, &line) {
            (Header::Answer { length }, body) => Ok(length == body.len()),
            (Header::Refused { storage, message, .. }, _) => Err((storage, message)),
        };
        assert_eq!(answered(&Ok(())), Ok(true));
        assert_eq!(
            answered(&Err("no limits".into())),
            Err((true, "no limits".into()))
        );
    }
}
