//! `hopwise query`: runs SQL over the files of a store or on a running hopwise, once or in a shell; prints tables, JSON lines
//! or CSV.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::runtime;

use super::remote::{Api, fetch, parse_path};
use super::store_query::{Format, QueryOutput, StoreQuery, time};
use config::{Settings, build};
use history::sql::{Failure, MAX_BYTES, Pool, QueryFailure, Request, Rows};
use net::client::{self, Client};
use terminal::json::{self, Object};
use terminal::progress::Waiting;
use terminal::{Align, CliError, Table, table, units};
use view::{Names, NamesView};

/// Maximum length of a query from standard input, bytes.
const MAX_QUERY: u64 = 256 << 10;

/// Query the store in SQL; without a query, in a shell
///
/// The shell has history, completion of tables and columns (Tab), commands such as `.schema`, and shows long results in $PAGER. Without a
/// terminal, the query is read from standard input.
///
/// Reads the files of the store directly, whether hopwise runs or not; with --api, a running hopwise runs the query, on any machine.
/// Tables: events, rollups, flows, drops, losses, and reports if they are stored. Times are ns since the Unix epoch. A query has the
/// limits of the API: a result has at most 8 MiB, and a query uses at most 1 GiB of memory. With --config or --api, a table shows names
/// in the columns node, interface (beside node), path, src, dst and reason; the other formats keep ids. --dir with --api reads the files
/// of the directory, and takes only the names from the running hopwise.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise query \"SELECT kind, count(*) FROM events GROUP BY kind\"
  hopwise query \"SELECT * FROM flows ORDER BY flow_latency DESC LIMIT 10\"
  hopwise query \"SELECT ts, value FROM events WHERE flow = '10.0.0.1:5000>10.0.0.2:80/17' AND metric = 'flow_latency'\"
  hopwise query                               a shell; .help lists its commands
  hopwise query --api http://127.0.0.1:8080   a shell on a running hopwise, which knows names, too
  hopwise query --from 1h --format csv \"SELECT * FROM drops\" > drops.csv")]
pub struct Args {
    /// The query, for example "SELECT * FROM events LIMIT 10"; without it, a shell
    pub(crate) sql: Option<String>,

    /// Directory of the store (default: $STATE_DIRECTORY, otherwise `hopwise-data` in the current directory)
    #[arg(long, alias = "store", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Output format of the answer
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,

    /// Skip files that end before this time: UTC such as 2026-11-26T03:10Z or 2026-11-26, an age such as 15m, 2h, 7d, or ns since 1970 (years 2000 to 2199)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
    pub(crate) from: Option<u64>,

    /// Skip files that begin after this time, likewise
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
    pub(crate) to: Option<u64>,

    /// Maximum number of rows
    #[arg(long, default_value_t = 10_000)]
    pub(crate) limit: usize,

    /// Configuration file whose names a table shows in place of ids and addresses
    #[arg(short, long, value_name = "FILE", conflicts_with = "Api")]
    pub(crate) config: Option<PathBuf>,

    /// Timeout of the query, seconds; with --api, `[api] query_timeout` of the running hopwise applies, too
    #[arg(long, default_value_t = 60.0, value_parser = timeout)]
    pub(crate) timeout: f64,

    /// A running hopwise that runs the query
    #[command(flatten)]
    pub(crate) api: Option<Api>,
}

fn timeout(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    if (0.001..=86_400.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("between 0.001 and 86400 seconds".into())
    }
}

/// Runs `hopwise query`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let client = args.api.as_ref().map(Api::client).transpose()?;
    let names = match (&args.config, &client) {
        (Some(file), _) => build::names(&Settings::load(Some(file))?),
        (None, Some(client)) => fetch::<NamesView>(client, "/names").map(Names::from)?,
        (None, None) => Names::default(),
    };
    let (runner, store) = match (args.dir, client) {
        (None, Some(client)) => {
            let url = client.url();
            (QueryRunner::Remote(client), url)
        }
        (dir, _) => {
            let is_named = dir.is_some();
            let dir = dir.unwrap_or_else(|| Settings::default().store_directory());
            // Fails early if the store is missing or unreadable.
            super::stored::open(&dir).map_err(|error| match is_named {
                true => error,
                false => CliError::new(format!("{error}, or query a running hopwise with --api URL")),
            })?;
            (QueryRunner::local(&dir)?, dir.display().to_string())
        }
    };
    let query = StoreQuery {
        sql: String::new(),
        format: args.format,
        from: args.from,
        to: args.to,
        limit: args.limit,
        timeout: Duration::from_secs_f64(args.timeout),
    };
    let sql = match args.sql {
        Some(sql) => sql,
        None if io::stdin().is_terminal() => {
            super::query_shell::run(
                &store,
                query.clone(),
                &|query| runner.run_formatted(query, &names),
                &|view| {
                    let query = query.with_sql(format!("SELECT * FROM {view} LIMIT 0"));
                    runner.columns(&query)
                },
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        None => read_query()?,
    };
    let output = runner.run_formatted(&query.with_sql(sql), &names)?;
    output.print()?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a query from standard input.
fn read_query() -> Result<String, CliError> {
    let mut sql = String::new();
    let read = io::stdin().take(MAX_QUERY + 1).read_to_string(&mut sql);
    read.map_err(|error| CliError::io("cannot read the query", error, "it is read from standard input"))?;
    if sql.len() as u64 > MAX_QUERY {
        return Err(CliError::new(format!(
            "the query is longer than {} KiB",
            MAX_QUERY >> 10
        )));
    }
    Ok(sql.trim().trim_end_matches(';').to_owned())
}

/// Runs queries.
enum QueryRunner {
    /// In a helper process with bounded memory, as the API does. A shell uses one helper for all its queries.
    Local { runtime: runtime::Runtime, pool: Pool },
    /// On a running hopwise.
    Remote(Client),
}

impl QueryRunner {
    fn local(dir: &Path) -> Result<Self, CliError> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(run_error)?;
        Ok(Self::Local {
            runtime,
            pool: Pool::new(dir.to_owned(), "--timeout"),
        })
    }

    /// Runs the query and formats its rows; remarks say whether and why rows are missing.
    fn run_formatted(&self, query: &StoreQuery, names: &Names) -> Result<QueryOutput, CliError> {
        let mut answer = self.run(query)?;
        let text = match query.format {
            Format::Table => as_table(&answer, names),
            Format::Json => as_json(&answer),
            Format::Csv => as_csv(&answer),
        };
        let mut remarks = std::mem::take(&mut answer.notes);
        if answer.truncated {
            let rows = units::counted(answer.rows.len() as u64, "row");
            let remedy = if answer.rows.len() < query.limit {
                format!(
                    "the result is larger than {} MiB; select fewer columns, or split the query",
                    MAX_BYTES >> 20
                )
            } else {
                "narrow the query or raise --limit".to_owned()
            };
            remarks.push(format!("only {rows} shown of a longer result; {remedy}"));
        }
        Ok(QueryOutput {
            format: query.format,
            text,
            remarks,
        })
    }

    /// Returns the columns of the result; none if a running hopwise refuses the query, because a console has other tables than
    /// a collector.
    fn columns(&self, query: &StoreQuery) -> Result<Vec<String>, CliError> {
        match self {
            Self::Local { .. } => Ok(self.run(query)?.columns),
            Self::Remote(client) => match ask(client, query) {
                Ok(rows) => Ok(rows.columns),
                Err(client::Error::Refused { status: 400, .. }) => Ok(Vec::new()),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Runs the query and waits, with a progress line, for its rows.
    fn run(&self, query: &StoreQuery) -> Result<Rows, CliError> {
        let (runtime, pool) = match self {
            Self::Local { runtime, pool } => (runtime, pool),
            Self::Remote(client) => {
                let _waiting = Waiting::on("querying");
                let start = Instant::now();
                return ask(client, query).map_err(|error| match &error {
                    client::Error::Unreachable { source, .. }
                        if source.kind() == io::ErrorKind::TimedOut && start.elapsed() >= query.timeout =>
                    {
                        CliError::new(format!("no response in {:?}; raise --timeout", query.timeout))
                    }
                    _ => error.into(),
                });
            }
        };
        let _waiting = Waiting::on(format!("querying, at most {}", units::clock(query.timeout)));
        let request = Request {
            sql: query.sql.clone(),
            from: query.from,
            to: query.to,
            max_rows: query.limit,
            timeout: query.timeout,
            notes: Vec::new(),
        };
        match runtime.block_on(pool.query(&request)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| run_error(error.into())),
            Err(Failure::Query(failure)) => Err(explain(&request.sql, &failure)),
            Err(Failure::Unavailable(message)) => Err(CliError::new(message)),
        }
    }
}

/// Sends the query to a running hopwise.
fn ask(client: &Client, query: &StoreQuery) -> Result<Rows, client::Error> {
    let body = serde_json::json!({
        "sql": query.sql, "from": query.from, "to": query.to, "limit": query.limit,
    });
    let answer = client.send_within(query.timeout, "POST", "/query", &body)?;
    serde_json::from_value(answer)
        .map_err(|_| client::Error::Protocol("the response does not fit the API of this version"))
}

fn run_error(error: io::Error) -> CliError {
    CliError::io(
        "cannot run the query",
        error,
        "check the memory and process limits of the machine",
    )
}

/// Formats the error message of a query, with a caret below its position if that is known.
fn explain(sql: &str, error: &QueryFailure) -> CliError {
    let message = &error.message;
    let Some(before) = error.offset.and_then(|offset| sql.get(..offset)) else {
        return CliError::new(message.as_str());
    };
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = sql[start..].lines().next().unwrap_or("");
    let indent = " ".repeat(sql[start..before.len()].chars().count());
    CliError::new(format!("{message}\n  {line}\n  {indent}^"))
}

/// Returns the name for an id or address in a cell; `None` if the column has neither or nothing is known.
fn cell_name(names: &Names, columns: &[String], row: &[Value], index: usize) -> Option<String> {
    let value = row.get(index)?;
    match columns.get(index)?.as_str() {
        "node" => Some(names.node(number(value)?)),
        "interface" => {
            let node = columns
                .iter()
                .position(|column| column == "node")
                .and_then(|position| row.get(position));
            Some(names.interface(node.and_then(number), number(value)?))
        }
        "path" => Some(names.path(&parse_path(value.as_str()?))),
        "src" | "dst" => Some(names.host(value.as_str()?)),
        "reason" => Some(names.drop_reason(u8::try_from(number(value)?).ok()?)),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

fn as_table(answer: &Rows, names: &Names) -> String {
    let columns = answer.columns.iter().enumerate().map(|(index, name)| {
        let align = if is_numeric(answer, index) {
            Align::Right
        } else {
            Align::Left
        };
        (name.clone(), align)
    });
    let mut table = Table::new(columns);
    for row in &answer.rows {
        table.row(row.iter().enumerate().map(|(index, value)| {
            cell_name(names, &answer.columns, row, index).unwrap_or_else(|| cell_text(value))
        }));
    }
    table.render()
}

/// Returns whether the first non-null value of a column is a number.
fn is_numeric(answer: &Rows, index: usize) -> bool {
    answer
        .rows
        .iter()
        .filter_map(|row| row.get(index))
        .find(|value| **value != Value::Null)
        .is_some_and(|value| value.is_number())
}

fn as_csv(answer: &Rows) -> String {
    let mut out = table::csv_line(answer.columns.iter().map(String::as_str));
    for row in &answer.rows {
        let cells: Vec<String> = row.iter().map(cell_text).collect();
        out.push_str(&table::csv_line(cells.iter().map(String::as_str)));
    }
    out
}

fn as_json(answer: &Rows) -> String {
    let mut out = String::new();
    for row in &answer.rows {
        json::object(&mut out, |object| {
            for (name, value) in answer.columns.iter().zip(row) {
                field(object, name, value);
            }
        });
        out.push('\n');
    }
    out
}

fn field(object: &mut Object<'_>, name: &str, value: &Value) {
    match value {
        Value::String(text) => object.field(name, text),
        Value::Number(number) => match number.as_i64() {
            Some(number) => object.field(name, number),
            None => object.field(name, number.as_f64()),
        },
        // NULL: the helper sends only strings, numbers and nulls.
        _ => object.field(name, None::<u8>),
    };
}

fn cell_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // As in SQLite, a whole floating-point number is printed without a fraction.
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(real)) => real.to_string(),
            _ => number.to_string(),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Rows {
        let row = |kind: &str, count: Value| vec![Value::from(kind), count, Value::Null];
        Rows {
            columns: ["kind", "n", "x"].map(String::from).to_vec(),
            rows: vec![row("new,er", Value::from(12)), row("dr\"op", Value::from(0.5))],
            truncated: false,
            notes: Vec::new(),
            elapsed_ms: 0.0,
        }
    }

    #[test]
    fn a_result_is_printed_in_three_formats() {
        let text = as_table(&answer(), &Names::default());
        assert_eq!(text, "kind      n  x\nnew,er   12\ndr\"op   0.5\n");
        assert_eq!(
            as_csv(&answer()),
            "kind,n,x\r\n\"new,er\",12,\r\n\"dr\"\"op\",0.5,\r\n"
        );
        assert_eq!(
            as_json(&answer()),
            "{\"kind\":\"new,er\",\"n\":12,\"x\":null}\n{\"kind\":\"dr\\\"op\",\"n\":0.5,\"x\":null}\n"
        );
    }

    #[test]
    fn the_timeout_also_bounds_a_query_of_a_running_hopwise() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(&silent.local_addr().unwrap().to_string(), None).unwrap();
        let query = StoreQuery {
            sql: "SELECT 1".to_owned(),
            format: Format::Table,
            from: None,
            to: None,
            limit: 1,
            timeout: Duration::from_millis(1_200),
        };
        let start = Instant::now();
        let error = QueryRunner::Remote(client).run(&query).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(30), "{error}");
        assert_eq!(error.to_string(), "no response in 1.2s; raise --timeout");
    }

    #[test]
    fn a_table_shows_names_in_the_columns_that_have_ids() {
        let view: NamesView = serde_json::from_value(serde_json::json!({
            "nodes": [{"node": 11, "name": "leaf1", "interfaces": [{"interface": 2, "name": "Ethernet4"}]}],
            "hosts": [{"address": "10.0.0.1", "name": "h1"}],
            "drop_reasons": [{"code": 128, "name": "link_down"}]}))
        .unwrap();
        let row = |node: Value| -> Vec<Value> {
            vec![
                128.into(),
                2.into(),
                node,
                "11>12>?".into(),
                "10.0.0.1".into(),
                "10.0.0.2".into(),
                11.into(),
                "11".into(),
            ]
        };
        let answer = Rows {
            columns: ["reason", "interface", "node", "path", "src", "dst", "n", "value"]
                .map(String::from)
                .to_vec(),
            rows: vec![row(11.into()), row(Value::Null)],
            ..answer()
        };
        let expected = "reason    interface  node  path        src  dst       n  value\n\
                        link_down Ethernet4  leaf1 leaf1>12>?  h1   10.0.0.2 11  11\n\
                        link_down 2                leaf1>12>?  h1   10.0.0.2 11  11\n";
        let squeezed = |text: &str| -> Vec<Vec<String>> {
            text.lines()
                .map(|line| line.split_whitespace().map(str::to_owned).collect())
                .collect()
        };
        assert_eq!(squeezed(&as_table(&answer, &view.into())), squeezed(expected));
    }

    #[test]
    fn an_error_in_sql_points_at_its_position() {
        let error = QueryFailure {
            message: "no such column: kin".into(),
            offset: Some(7),
        };
        assert_eq!(
            explain("SELECT kin FROM events", &error).to_string(),
            "no such column: kin\n  SELECT kin FROM events\n         ^"
        );
    }
}
