//! Pool of helper processes for users' SQL, on the server's side.

use std::{io, path::PathBuf, process::Stdio, sync::Mutex, time::Duration};

use settings::values::rounded_text;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time,
};

use super::{Header, MAX_BYTES, Request};
use runtime::lock::lock;

/// Time beyond the query's limit after which its helper is killed.
const KILL_GRACE: Duration = Duration::from_millis(50);
/// This program, also after its file was replaced or removed, as an upgrade does.
const PROGRAM: &str = "/proc/self/exe";
/// Maximum number of idle helpers.
const MAX_IDLE: usize = 2;
/// Maximum length of a header, bytes.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Runs each query in a helper process.
#[derive(Debug)]
pub struct Pool {
    directory: PathBuf,
    time_limit_setting: &'static str,
    idle: Mutex<Vec<Helper>>,
}

/// A helper process. It runs one query at a time and is killed when this handle is dropped.
#[derive(Debug)]
struct Helper {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The reason for a failed query.
#[derive(Debug)]
pub enum Failure {
    /// The query is at fault.
    Query(QueryFailure),
    /// The store or this machine is at fault.
    Unavailable(String),
}

/// The error of a query.
#[derive(Debug, PartialEq, Eq)]
pub struct QueryFailure {
    /// The error, in one sentence.
    pub message: String,
    /// Position in the query's text, bytes from its start.
    pub offset: Option<usize>,
}

impl From<String> for QueryFailure {
    fn from(message: String) -> Self {
        Self {
            message,
            offset: None,
        }
    }
}

impl Pool {
    /// Creates a pool for queries over the files in `directory`. `time_limit_setting` names the option or setting that raises the time
    /// limit, for error messages.
    pub fn new(directory: PathBuf, time_limit_setting: &'static str) -> Self {
        Self {
            directory,
            time_limit_setting,
            idle: Mutex::default(),
        }
    }

    /// Runs a query and returns [`super::Rows`] as JSON. Dropping the future ends the query.
    ///
    /// # Errors
    /// The query was refused or took too long, or no helper could be started.
    pub async fn query(&self, request: &Request) -> Result<Vec<u8>, Failure> {
        match time::timeout(request.timeout + KILL_GRACE, self.run(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Query(QueryFailure::from(format!(
                "the query took longer than {}; narrow it with a time range (ts > …), end a recursion with LIMIT, or \
                 raise {}",
                rounded_text(request.timeout),
                self.time_limit_setting
            )))),
        }
    }

    async fn run(&self, request: &Request) -> Result<Vec<u8>, Failure> {
        let idle = lock(&self.idle).pop();
        if let Some(mut helper) = idle
            && let Ok(answer) = helper.run(request).await
        {
            self.put_back(helper);
            return answer;
        }
        // There was no idle helper, or it died: a fresh one shows whether the query is the cause.
        let mut helper = self.start().map_err(|error| {
            Failure::Unavailable(format!(
                "cannot start a process for the query ({PROGRAM}): {error}; check the memory and process limits of the \
                 machine, and that /proc is mounted"
            ))
        })?;
        match helper.run(request).await {
            Ok(answer) => {
                self.put_back(helper);
                answer
            }
            Err(_) => Err(Failure::Query(QueryFailure::from(
                "the query needed more memory than it may use; narrow the query".to_owned(),
            ))),
        }
    }

    fn start(&self) -> io::Result<Helper> {
        let mut child = Command::new(PROGRAM)
            .arg0("hopwise")
            .arg("sql-helper")
            .arg(&self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (input, output) = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Helper {
            _child: child,
            input,
            output: BufReader::new(output),
        })
    }

    fn put_back(&self, helper: Helper) {
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE {
            idle.push(helper);
        }
    }

    /// Ends idle helpers, because they keep deleted files open.
    pub fn tidy(&self) {
        lock(&self.idle).clear();
    }
}

impl Helper {
    /// Sends a request to the helper. The outer error means that the helper died.
    async fn run(&mut self, request: &Request) -> io::Result<Result<Vec<u8>, Failure>> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.input.write_all(&line).await?;
        let mut header = Vec::new();
        (&mut self.output)
            .take(MAX_HEADER_BYTES)
            .read_until(b'\n', &mut header)
            .await?;
        if header.pop() != Some(b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(&header)? {
            Header::Answer { length } if length <= 2 * MAX_BYTES => {
                let mut body = vec![0; length];
                self.output.read_exact(&mut body).await?;
                Ok(Ok(body))
            }
            Header::Answer { .. } => Err(io::ErrorKind::InvalidData.into()),
            Header::Refused {
                storage: true,
                message,
                ..
            } => Ok(Err(Failure::Unavailable(message))),
            Header::Refused { message, offset, .. } => {
                Ok(Err(Failure::Query(QueryFailure { message, offset })))
            }
        }
    }
}
