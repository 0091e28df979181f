//! Supervises inputs that can disappear and return: an interface is deleted, its number of queues changes, or another process
//! replaces its XDP program. One thread checks all such inputs each second, closes a broken one, and reopens it with
//! exponential backoff.
//!
//! ```text
//! Opened ──threads started──> Open ──failed or changed──> Closed ──backoff, reopened──> Opened
//! ```

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{Check, Opened, Work};
use runtime::control::Control;
use terminal::CliError;

/// Interval between two checks of an input.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between polls of a worker whose input is closed, and which therefore has no thread to run its timers.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Delay before the first attempt to reopen an input; doubled for each further one, up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(500);
/// Longest delay between two attempts.
const LONGEST: Duration = Duration::from_secs(8);

/// An input that is reopened after a failure.
pub struct Watched {
    opener: Box<dyn super::Open>,
    work: Work,
    state: State,
}

enum State {
    /// Opened, but not read yet.
    Opened(Opened),
    Open(Open),
    /// The time of the next attempt, and the delay before it, doubled after each failure.
    Closed(Instant, Duration),
}

/// The open parts of an input.
struct Open {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    health: Box<dyn Check>,
}

/// A handle to the supervising thread. Dropping it ends the thread and closes the inputs.
#[derive(Debug)]
pub struct Watch {
    inputs: Option<Sender<Watched>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread, without inputs. It keeps the caller's capabilities to reopen inputs; see [`crate::capabilities`].
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(control: &Control) -> Result<Self, CliError> {
        let (inputs, added) = channel();
        let shared = control.clone();
        let thread = control.spawn("inputs", move || watch(&added, &shared))?;
        Ok(Self {
            inputs: Some(inputs),
            thread: Some(thread),
        })
    }

    /// Hands an input over to the thread, which reads and supervises it.
    pub fn add(&self, input: Watched) {
        if let Some(inputs) = &self.inputs {
            // Fails only when the thread has panicked, which already ends the program.
            let _ = inputs.send(input);
        }
    }
}

impl Drop for Watch {
    /// Stops receiving. Datagrams received so far are processed.
    fn drop(&mut self) {
        drop(self.inputs.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been logged already.
            let _ = thread.join();
        }
    }
}

/// Supervises the inputs until no more can be added, which is at the stop.
fn watch(added: &Receiver<Watched>, control: &Control) {
    let mut inputs: Vec<Watched> = Vec::new();
    let mut last_check = Instant::now();
    loop {
        let now = Instant::now();
        let due = inputs
            .iter()
            .map(|input| input.due(now))
            .min()
            .unwrap_or(CHECK_INTERVAL);
        let closed = inputs.iter().any(Watched::is_closed);
        match added.recv_timeout(if closed { due.min(POLL_INTERVAL) } else { due }) {
            Ok(input) => inputs.push(input),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if closed {
            inputs
                .iter()
                .filter(|input| input.is_closed())
                .for_each(|input| input.work.dispatch.poll());
            if now.elapsed() < due && last_check.elapsed() < CHECK_INTERVAL {
                continue;
            }
        }
        last_check = Instant::now();
        inputs
            .iter_mut()
            .for_each(|input| input.check(Instant::now(), control));
    }
    inputs.iter_mut().for_each(Watched::end);
}

impl Watched {
    pub(super) fn new(opener: Box<dyn super::Open>, work: Work, opened: Opened) -> Self {
        Self {
            opener,
            work,
            state: State::Opened(opened),
        }
    }

    fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed(..))
    }

    /// Returns the time from `now` until the input's next check.
    fn due(&self, now: Instant) -> Duration {
        match &self.state {
            State::Opened(_) => Duration::ZERO,
            State::Open(_) => CHECK_INTERVAL,
            State::Closed(at, _) => at.saturating_duration_since(now).min(CHECK_INTERVAL),
        }
    }

    /// Advances an input's state: starts its threads, checks its health, closes it, or reopens it.
    fn check(&mut self, now: Instant, control: &Control) {
        match &mut self.state {
            State::Opened(_) => self.begin(now, control),
            State::Open(open) => {
                let health = open.health.check();
                self.work.gauge.note(open.health.counters());
                if let Some(why) = self.work.gauge.failure().or(health.err()) {
                    tracing::error!(
                        input = self.name(),
                        reason = why,
                        "the input failed; reopening it"
                    );
                    self.close(why, now);
                } else if self.opener.could_be_better() {
                    tracing::info!(
                        input = self.name(),
                        "the interface has changed; reopening the input"
                    );
                    self.close("the interface has changed".to_owned(), now);
                }
            }
            State::Closed(at, _) if *at > now => {}
            State::Closed(_, waited) => {
                let next = (*waited * 2).min(LONGEST);
                self.open_again(now, next, control);
            }
        }
    }

    fn name(&self) -> String {
        self.work.gauge.setup().listen
    }

    /// Starts the threads of an opened input.
    fn begin(&mut self, now: Instant, control: &Control) {
        let soon = State::Closed(now + SHORTEST, SHORTEST);
        let State::Opened(opened) = std::mem::replace(&mut self.state, soon) else {
            return;
        };
        let stop = Arc::default();
        match self.work.start(opened.sources, &stop, control) {
            Ok(threads) => {
                self.state = State::Open(Open {
                    threads,
                    stop,
                    health: opened.health,
                })
            }
            Err(error) => {
                // The threads already started end: their stop flag is set.
                stop.store(true, Ordering::Relaxed);
                tracing::error!(input = self.name(), %error, "cannot start the input; retrying");
                self.work.gauge.closed(error.to_string());
            }
        }
    }

    /// Stops the input's threads, and schedules the first attempt to reopen it.
    fn close(&mut self, why: String, now: Instant) {
        self.end();
        self.work.gauge.closed(why);
        self.state = State::Closed(now + SHORTEST, SHORTEST);
    }

    /// Stops receiving. Datagrams received so far are processed.
    fn end(&mut self) {
        let ended = State::Closed(Instant::now(), LONGEST);
        if let State::Open(Open {
            threads,
            stop,
            mut health,
        }) = std::mem::replace(&mut self.state, ended)
        {
            self.work.gauge.note(health.counters());
            // This detaches the program from the interface, so the rings receive no more records.
            drop(health);
            // Relaxed: the flag orders no other memory; joining the threads orders everything else.
            stop.store(true, Ordering::Relaxed);
            for thread in threads {
                // A thread's panic has been logged already.
                let _ = thread.join();
            }
        }
    }

    /// Tries to reopen the input. After a failure, the next attempt follows in `wait`.
    fn open_again(&mut self, now: Instant, wait: Duration, control: &Control) {
        let before = self.work.gauge.setup();
        match self.opener.open() {
            Ok(opened) => {
                let input = &opened.setup.listen;
                let rx_path = opened.setup.sentence();
                let before = before.kind;
                if before == opened.setup.kind {
                    tracing::info!(input, rx_path, "the input is open again");
                } else {
                    tracing::warn!(
                        input,
                        rx_path,
                        before,
                        "the input is open again by another receive path"
                    );
                }
                self.work.gauge.opened(opened.setup.clone());
                self.state = State::Opened(opened);
                self.begin(now, control);
            }
            Err(why) => {
                let (known, _) = self.work.gauge.failure_state();
                // Logged once per cause, not at every attempt.
                if known.as_ref() != Some(&why) {
                    tracing::error!(
                        input = self.name(),
                        reason = why,
                        "cannot reopen the input; retrying"
                    );
                }
                self.work.gauge.still_closed(why);
                self.state = State::Closed(now + wait, wait);
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched")
            .field("input", &self.name())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, net::SocketAddr, sync::Mutex};

    use nic::source::{Packet, Source, Stats};

    use super::*;
    use crate::{
        input::{Dispatch, InputGauge, RxSource, Setup},
        live::Hub,
        pipeline::{Config, Pipeline},
        settings::{Capabilities, CollectSettings, Policy},
        worker::Worker,
    };

    /// Returns its datagrams, then nothing, or fails.
    struct Once {
        left: u64,
        fails: bool,
        stats: Stats,
    }

    impl Source for Once {
        fn receive(
            &mut self,
            _timeout_ms: u32,
            take: &mut dyn FnMut(&[Packet<'_>]),
        ) -> Result<usize, nic::Error> {
            if self.left == 0 {
                if self.fails {
                    let refused = nic::netns::within("hopwise-none", || ());
                    return Err(refused.unwrap_err());
                }
                std::thread::park_timeout(Duration::from_millis(1));
                return Ok(0);
            }
            self.left -= 1;
            self.stats.datagrams += 1;
            let source: SocketAddr = "10.0.0.1:1".parse().unwrap();
            take(&[Packet {
                data: &[0; 4],
                source,
                port: 0,
                received: 1,
                truncated: false,
            }]);
            Ok(1)
        }

        fn is_drained(&self) -> bool {
            true
        }

        fn stats(&mut self) -> Stats {
            self.stats
        }

        fn address(&self) -> SocketAddr {
            "0.0.0.0:0".parse().unwrap()
        }

        fn kind(&self) -> &'static str {
            "once"
        }
    }

    /// The result of each opening: the number of datagrams, and whether the source fails after them; or an error.
    struct Script(VecDeque<Result<(u64, bool), String>>);

    impl super::super::Open for Script {
        fn open(&mut self) -> Result<Opened, String> {
            let (left, fails) = self
                .0
                .pop_front()
                .unwrap_or_else(|| Err("the script has ended".to_owned()))?;
            let source = Once {
                left,
                fails,
                stats: Stats::default(),
            };
            let setup = Setup {
                listen: "xdp://test".to_owned(),
                kind: "once",
                ..Setup::default()
            };
            Ok(Opened {
                sources: vec![RxSource::Source(Box::new(source))],
                setup,
                health: Box::new(Well),
            })
        }
    }

    struct Well;

    impl Check for Well {
        fn check(&mut self) -> Result<(), String> {
            Ok(())
        }
    }

    /// An open input with this script, and the objects that it depends on.
    fn watched(script: Vec<Result<(u64, bool), String>>) -> (Watched, Arc<InputGauge>, Control, Pipeline) {
        let control = Control::new().0;
        let hub = Arc::new(Hub::new(1, 1, std::collections::BTreeMap::new()));
        let config = Config {
            batch: 1024,
            queue: 1 << 16,
            store_queue: 1 << 16,
            policy: Policy::Shed,
            store: None,
        };
        let pipeline = Pipeline::new(config, hub, control.clone());
        let config = CollectSettings::default().collector_config(1, 0).unwrap();
        let outlet = pipeline.outlet().unwrap();
        let (worker, _) = Worker::new(collector::Collector::new(config), outlet, Arc::from([]), None);
        let mut opener = Script(script.into());
        let opened = super::super::Open::open(&mut opener).unwrap();
        let gauge = Arc::new(InputGauge::new(&opened.setup, true));
        let dispatch = Dispatch::Inline(Arc::new(Mutex::new(worker)));
        let work = Work {
            gauge: Arc::clone(&gauge),
            dispatch,
            listener: 0,
            capabilities: Capabilities::All,
        };
        (
            Watched::new(Box::new(opener), work, opened),
            gauge,
            control,
            pipeline,
        )
    }

    /// Waits until the threads of the input have ended by themselves.
    fn ended(input: &Watched) {
        let State::Open(open) = &input.state else {
            panic!("closed")
        };
        while open.threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_input_that_fails_is_opened_again_and_its_counters_go_on() {
        let refused = || Err("no such interface".to_owned());
        let (mut input, gauge, control, _pipeline) =
            watched(vec![Ok((3, true)), refused(), refused(), Ok((2, true))]);
        let start = Instant::now();
        input.check(start, &control);
        ended(&input);
        input.check(start, &control);
        let why = "open /run/netns/hopwise-none: No such file or directory (os error 2)";
        assert_eq!(gauge.failure_state(), (Some(why.to_owned()), 0));
        assert_eq!(gauge.stats().datagrams, 3);
        // Tried after half a second, then after one more, then after two more.
        let mut tried = Vec::new();
        // No later: the source of the input that is open then fails at an arbitrary time.
        for tenths in 1..=35 {
            input.check(start + Duration::from_millis(100 * tenths), &control);
            let now = gauge.failure_state();
            if tried.last().is_none_or(|(_, last)| *last != now) {
                tried.push((tenths, now));
            }
        }
        let closed = |why: &str| (Some(why.to_owned()), 0);
        assert_eq!(
            tried[..],
            [
                (1, closed(why)),
                (5, closed("no such interface")),
                (35, (None, 1))
            ]
        );
        ended(&input);
        assert_eq!(gauge.stats().datagrams, 5);
    }

    #[test]
    fn the_end_handles_what_had_arrived() {
        let (input, gauge, control, _pipeline) = watched(vec![Ok((100, false))]);
        let watch = Watch::start(&control).unwrap();
        watch.add(input);
        drop(watch);
        assert_eq!(gauge.stats().datagrams, 100);
        assert_eq!(gauge.failure_state(), (None, 0));
    }
}
