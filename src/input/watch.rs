//! Inputs that can go away and come back: an interface is deleted, its queues change in number, somebody replaces the program
//! on it. One thread looks after all of them: it asks each second whether each still works, closes one that does not, and
//! opens it again, less and less often until that succeeds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{Check, Work};
use crate::{control::Control, error::CliError};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Before the first try to open an input again; twice as long before each further one, up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(500);
/// Between two tries, at most.
const LONGEST: Duration = Duration::from_secs(8);

/// An input that is looked after.
pub(crate) struct Watched {
    opener: Box<dyn super::Open>,
    work: Work,
    state: State,
}

enum State {
    Open(Open),
    /// Tried again at this moment, or after so long if that fails.
    Closed(Instant, Duration),
}

/// What is open of an input.
pub(super) struct Open {
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) health: Box<dyn Check>,
}

/// The thread that looks after the inputs. It ends, and closes them, when this is dropped or [`Watch::stop`] is called.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Looks after these inputs.
    ///
    /// # Errors
    /// The system has no thread for us.
    pub(crate) fn start(mut inputs: Vec<Watched>, control: &Control) -> Result<Self, CliError> {
        let (stop, stopped) = channel();
        let shared = control.clone();
        let thread = control.spawn("inputs", move || watch(&mut inputs, &stopped, &shared))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Ends the reading: what had arrived is handled.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been told by then.
            let _ = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

fn watch(inputs: &mut [Watched], stopped: &Receiver<()>, control: &Control) {
    loop {
        let now = Instant::now();
        let due = inputs.iter().map(|input| input.due(now)).min().unwrap_or(LOOK);
        match stopped.recv_timeout(due) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
        inputs.iter_mut().for_each(|input| input.look(Instant::now(), control));
    }
    // All are told first, so that they empty their rings at the same time.
    for input in &mut *inputs {
        if let State::Open(open) = &input.state {
            // Relaxed: the flag carries nothing but itself; joining the threads orders everything else.
            open.stop.store(true, Ordering::Relaxed);
        }
    }
    inputs.iter_mut().for_each(Watched::end);
}

impl Watched {
    pub(super) fn new(opener: Box<dyn super::Open>, work: Work, open: Open) -> Self {
        Self { opener, work, state: State::Open(open) }
    }

    /// How long from `now` until it must be looked at.
    fn due(&self, now: Instant) -> Duration {
        match &self.state {
            State::Open(_) => LOOK,
            State::Closed(at, _) => at.saturating_duration_since(now).min(LOOK),
        }
    }

    fn look(&mut self, now: Instant, control: &Control) {
        match &mut self.state {
            State::Open(open) => {
                let failed = self.work.gauge.failure().map_or_else(|| open.health.check(), Err);
                if let Err(why) = failed {
                    tracing::error!("{}: {why}; opening it again", self.name());
                    self.close(why, now);
                } else if self.opener.could_be_better() {
                    let why = "the interface has changed".to_owned();
                    tracing::info!("{}: {why}; opening it again", self.name());
                    self.close(why, now);
                }
            }
            State::Closed(at, _) if *at > now => {}
            State::Closed(_, waited) => {
                let next = (*waited * 2).min(LONGEST);
                self.open(now, next, control);
            }
        }
    }

    fn name(&self) -> String {
        self.work.gauge.setup().listen
    }

    /// Ends its threads; the next try comes soon.
    fn close(&mut self, why: String, now: Instant) {
        self.end();
        self.work.gauge.closed(why);
        self.state = State::Closed(now + SHORTEST, SHORTEST);
    }

    fn end(&mut self) {
        if let State::Open(open) = &mut self.state {
            // Relaxed: as above.
            open.stop.store(true, Ordering::Relaxed);
            for thread in open.threads.drain(..) {
                // A thread that panicked has said so already.
                let _ = thread.join();
            }
        }
    }

    fn open(&mut self, now: Instant, wait: Duration, control: &Control) {
        let opened = self.opener.open().and_then(|opened| {
            let (stop, setup) = (Arc::default(), opened.setup);
            let threads =
                self.work.start(opened.intakes, &stop, control).map_err(|error| error.to_string())?;
            Ok((Open { threads, stop, health: opened.health }, setup))
        });
        match opened {
            Ok((open, setup)) => {
                tracing::info!("{}: open again, {}", setup.listen, setup.sentence());
                self.work.gauge.opened(setup);
                self.state = State::Open(open);
            }
            Err(why) => {
                let (known, _) = self.work.gauge.trouble();
                // Once is enough, however often it is tried.
                if known.as_ref() != Some(&why) {
                    tracing::error!("{}: {why}; trying again", self.name());
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
        f.debug_struct("Watched").field("input", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, net::SocketAddr, sync::Mutex};

    use nic::source::{Packet, Source, Stats};

    use super::*;
    use crate::{
        config::{Settings, build, sections::Policy},
        input::{Hands, InputGauge, Intake, Opened, Setup},
        live::Hub,
        pipeline::{Config, Pipeline},
        worker::Core,
    };

    /// Hands out one datagram, then nothing, or fails.
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
            take(&[Packet { data: &[0; 4], source, received: 1, truncated: false }]);
            Ok(1)
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

    /// Opens as its script says: how many datagrams come, and whether the source fails after them; or not at all.
    struct Script(VecDeque<Result<(u64, bool), String>>);

    impl super::super::Open for Script {
        fn open(&mut self) -> Result<Opened, String> {
            let (left, fails) =
                self.0.pop_front().unwrap_or_else(|| Err("the script has ended".to_owned()))?;
            let source = Once { left, fails, stats: Stats::default() };
            let setup = Setup { listen: "xdp://test".to_owned(), kind: "once", ..Setup::default() };
            Ok(Opened { intakes: vec![Intake::Source(Box::new(source))], setup, health: Box::new(Well) })
        }
    }

    struct Well;

    impl Check for Well {
        fn check(&mut self) -> Result<(), String> {
            Ok(())
        }
    }

    /// An input of this script, open, with what it needs to live.
    fn watched(script: Vec<Result<(u64, bool), String>>) -> (Watched, Arc<InputGauge>, Control, Pipeline) {
        let control = Control::new().0;
        let hub = Arc::new(Hub::new(1, 1, std::collections::BTreeMap::new()));
        let config = Config { batch: 1024, queue: 1, policy: Policy::Shed, store: None };
        let pipeline = Pipeline::new(config, hub, control.clone());
        let config = build::collector(&Settings::default(), 1, 0).unwrap();
        let outlet = pipeline.outlet().unwrap();
        let (core, _) = Core::new(collector::Collector::new(config), outlet, Arc::from([]), None);
        let mut opener = Script(script.into());
        let opened = super::super::Open::open(&mut opener).unwrap();
        let gauge = Arc::new(InputGauge::new(&opened.setup, true));
        let hands = Hands::Inline(Arc::new(Mutex::new(core)));
        let work = Work { gauge: Arc::clone(&gauge), hands, listener: 0 };
        let stop = Arc::default();
        let threads = work.start(opened.intakes, &stop, &control).unwrap();
        let open = Open { threads, stop, health: opened.health };
        (Watched::new(Box::new(opener), work, open), gauge, control, pipeline)
    }

    /// Waits until the threads of the input have ended by themselves.
    fn ended(input: &Watched) {
        let State::Open(open) = &input.state else { panic!("closed") };
        while open.threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_input_that_fails_is_opened_again_and_its_counters_go_on() {
        let refused = || Err("no such interface".to_owned());
        let (mut input, gauge, control, _pipeline) =
            watched(vec![Ok((3, true)), refused(), refused(), Ok((2, true))]);
        ended(&input);
        let start = Instant::now();
        input.look(start, &control);
        let why = "open /run/netns/hopwise-none: No such file or directory (os error 2)";
        assert_eq!(gauge.trouble(), (Some(why.to_owned()), 0));
        assert_eq!(gauge.stats().datagrams, 3);
        // Tried after half a second, then after one more, then after two more.
        let mut tried = Vec::new();
        for tenths in 1..=40 {
            input.look(start + Duration::from_millis(100 * tenths), &control);
            let now = gauge.trouble();
            if tried.last().is_none_or(|(_, last)| *last != now) {
                tried.push((tenths, now));
            }
        }
        let closed = |why: &str| (Some(why.to_owned()), 0);
        assert_eq!(tried[..], [(1, closed(why)), (5, closed("no such interface")), (35, (None, 1))]);
        ended(&input);
        assert_eq!(gauge.stats().datagrams, 5);
    }

    #[test]
    fn the_end_handles_what_had_arrived() {
        let (input, gauge, control, _pipeline) = watched(vec![Ok((100, false))]);
        let mut watch = Watch::start(vec![input], &control).unwrap();
        watch.stop();
        assert_eq!(gauge.stats().datagrams, 100);
        assert_eq!(gauge.trouble(), (None, 0));
    }
}
