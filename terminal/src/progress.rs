//! Progress of long operations, as one line on standard error that is rewritten in place; nothing if that is not a terminal.

use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{Terminal, plot, units};

const INTERVAL: Duration = Duration::from_millis(100);
/// Duration from which work counts as long and gets a line.
const SHOW_DELAY: Duration = Duration::from_secs(1);
/// Clears the rest of a longer earlier line, and returns the cursor to the start.
const REWRITE: &str = "\x1b[K\r";
const ERASE: &str = "\x1b[K";

/// Progress of reading `total` bytes, with the number of items found so far and the time left.
///
/// ```
/// use terminal::progress::Progress;
///
/// let file = [0; 10_000];
/// let mut progress = Progress::new("reading", "reports", Some(file.len() as u64));
/// for (number, chunk) in file.chunks(1000).enumerate() {
///     let done = (number * 1000 + chunk.len()) as u64;
///     progress.at(done, number as u64 + 1); // prints to standard error, at most ten times per second
/// }
/// progress.file_done(file.len() as u64);
/// progress.finish();
/// assert_eq!(progress.files_done(), 10_000);
/// ```
#[derive(Debug)]
pub struct Progress {
    label: String,
    noun: &'static str,
    total: Option<u64>,
    /// Bytes of all files that have been read completely.
    files_bytes: u64,
    terminal: Terminal,
    start: Instant,
    last_drawn: Option<Instant>,
    silent: bool,
}

impl Progress {
    /// Creates a progress line over `total` bytes (`None` for a pipe) of items called `noun` (`reports`).
    pub fn new(label: impl Into<String>, noun: &'static str, total: Option<u64>) -> Self {
        let terminal = Terminal::stderr();
        Self {
            label: label.into(),
            noun,
            total,
            files_bytes: 0,
            terminal,
            start: Instant::now(),
            last_drawn: None,
            silent: false,
        }
    }

    /// Disables all output if `silent`.
    pub fn silenced(mut self, silent: bool) -> Self {
        self.silent = silent;
        self
    }

    /// Returns the bytes of all files that have been read completely.
    pub fn files_done(&self) -> u64 {
        self.files_bytes
    }

    /// Marks a file as read. `bytes` is the total over all files so far.
    pub fn file_done(&mut self, bytes: u64) {
        self.files_bytes = bytes;
    }

    /// Updates the position, and prints if the interval has passed. It reads the clock, so call it every few thousand items.
    pub fn at(&mut self, done: u64, items: u64) {
        let now = Instant::now();
        // The first line appears after one interval, so that short work prints nothing.
        let is_soon = now.duration_since(self.last_drawn.unwrap_or(self.start)) < INTERVAL;
        if self.silent || !self.terminal.interactive || is_soon {
            return;
        }
        self.last_drawn = Some(now);
        let line = line(self, now.duration_since(self.start), done, items);
        // Nothing to do if standard error is closed.
        let _ = write!(std::io::stderr(), "{}{REWRITE}", self.terminal.clean(&line));
    }

    /// Removes the progress line.
    pub fn finish(&mut self) {
        if self.terminal.interactive && self.last_drawn.take().is_some() {
            let _ = write!(std::io::stderr(), "{ERASE}");
        }
    }
}

/// Progress of work whose end is unknown, or of one of several parts: after one second, a line shows the elapsed time until
/// this is dropped.
///
/// ```
/// use terminal::progress::Waiting;
///
/// for (number, case) in ["one", "two"].iter().enumerate() {
///     let waiting = Waiting::part(*case, number as u64, 2);
///     // … the work …
///     drop(waiting); // before anything is printed
/// }
/// ```
#[derive(Debug)]
pub struct Waiting {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Waiting {
    /// Shows that the work called `label` goes on.
    pub fn on(label: impl Into<String>) -> Self {
        Self::start(label.into(), None)
    }

    /// Shows the part called `label`; `done` of `total` parts are complete.
    pub fn part(label: impl Into<String>, done: u64, total: u64) -> Self {
        Self::start(label.into(), Some((done, total)))
    }

    fn start(label: String, part: Option<(u64, u64)>) -> Self {
        let start = Instant::now();
        let (sender, ended) = channel();
        let thread = std::io::IsTerminal::is_terminal(&std::io::stderr()).then(|| {
            (
                sender,
                thread::spawn(move || draw_waiting(&label, part, start, &ended)),
            )
        });
        Self { thread }
    }
}

/// Rewrites the line until the sender is dropped, then erases it.
fn draw_waiting(label: &str, part: Option<(u64, u64)>, start: Instant, ended: &Receiver<()>) {
    let mut wait = SHOW_DELAY;
    let mut terminal: Option<Terminal> = None;
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        wait = INTERVAL * 5;
        // Only now: finding the size starts a process (`stty`), which is too expensive for short work.
        let terminal = terminal.get_or_insert_with(Terminal::stderr);
        if terminal.interactive {
            let line = waiting_line(label, part, start.elapsed());
            let line = truncate_line(&line, terminal.width);
            let _ = write!(std::io::stderr(), "{}{REWRITE}", terminal.clean(&line));
        }
    }
    if terminal.is_some_and(|terminal| terminal.interactive) {
        let _ = write!(std::io::stderr(), "{ERASE}");
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            // Wait until the line is erased, so that later output begins on an empty line.
            let _ = thread.join();
        }
    }
}

fn waiting_line(label: &str, part: Option<(u64, u64)>, elapsed: Duration) -> String {
    let time = units::clock(elapsed);
    let Some((done, total)) = part.filter(|(_, total)| *total > 1) else {
        return format!("{label}  {time}");
    };
    let bar = plot::bar(done as f64, total as f64, 20);
    format!("{label}  {bar:<20} {} of {total}  {time}", done + 1)
}

/// Cuts a line to fewer than `width` columns; a wrapped line could not be rewritten.
fn truncate_line(line: &str, width: usize) -> String {
    line.chars().take(width.saturating_sub(1)).collect()
}

fn line(progress: &Progress, elapsed: Duration, done: u64, items: u64) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let rate = units::short(items as f64 / seconds);
    let Progress { label, noun, .. } = progress;
    let item_text = format!("{} {noun}  {rate} {noun}/s", units::count(items));
    let Some(total) = progress.total.filter(|total| *total > 0) else {
        return format!("{label}  {} read  {item_text}", units::bytes(done));
    };
    let share = (done as f64 / total as f64).min(1.0);
    let remaining = Duration::from_secs_f64(if share > 0.0 {
        seconds * (1.0 - share) / share
    } else {
        0.0
    });
    let bar = plot::bar(share, 1.0, 20);
    format!(
        "{label}  {bar:<20} {:>3.0} %  {item_text}  {} left",
        share * 100.0,
        units::clock(remaining)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_shows_the_part_and_the_time() {
        let shown = |part| waiting_line("fastpath", part, Duration::from_secs(75));
        assert_eq!(shown(None), "fastpath  1:15");
        assert_eq!(shown(Some((0, 1))), "fastpath  1:15");
        assert_eq!(
            shown(Some((5, 20))),
            "fastpath  █████                6 of 20  1:15"
        );
        assert_eq!(truncate_line("abcdef", 4), "abc");
    }

    #[test]
    fn a_line_shows_share_rate_and_time_left() {
        let mut progress = Progress::new("a.pcap", "reports", Some(1_000));
        progress.terminal = Terminal::plain();
        assert_eq!(
            line(&progress, Duration::from_secs(10), 250, 50_000),
            "a.pcap  █████                 25 %  50,000 reports  5.00 k reports/s  0:30 left"
        );
        progress.total = None;
        assert_eq!(
            line(&progress, Duration::from_secs(10), 2_500, 50),
            "a.pcap  2.50 kB read  50 reports  5.00 reports/s"
        );
    }
}
