//! Inputs of reports: UDP sockets, AF_XDP rings, packet sockets, and the detection program in the kernel. Each source is read
//! by its own thread. With one worker that thread also processes the datagrams; with several, it does the sequence accounting
//! and distributes them by inner flow (see [`crate::fanout`]).
//!
//! An [`Open`] opens its input at the start, and again when [`watch`] finds it broken; the input's counters continue.

pub mod device;
mod gauge;
mod reader;
mod udp;
pub mod watch;

use settings::listen::Listen;
use std::{
    fmt,
    sync::{Arc, Mutex, atomic::AtomicBool},
    thread::JoinHandle,
};

use nic::{receive::Counters, source::Source};

use crate::{
    capabilities,
    fanout::{Plan, Spreader},
    kernel::KernelRxSource,
    settings::{Capabilities, CollectSettings},
    watermarks::Watermark,
    worker::Worker,
};
pub use gauge::{InputGauge, Setup};
use reader::Reader;
use runtime::{control::Control, current::Current, lock::lock};
use terminal::CliError;
pub use udp::inside;

/// A packet source that one thread reads.
pub enum RxSource {
    /// A source of all datagrams to the input.
    Source(Box<dyn Source>),
    /// A source of the datagrams that the kernel program passed to user space.
    Kernel(Box<dyn KernelRxSource>),
}

impl fmt::Debug for RxSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxSource").finish_non_exhaustive()
    }
}

/// An input that has been opened.
pub struct Opened {
    /// Packet sources, each read by a thread.
    pub sources: Vec<RxSource>,
    /// The setup, for the API.
    pub setup: Setup,
    /// The check for failures that the threads do not notice.
    pub health: Box<dyn Check>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

/// Opens an input, at the start and after failures.
pub trait Open: Send {
    /// Opens the input.
    ///
    /// # Errors
    /// The cause and a remedy, in one sentence.
    fn open(&mut self) -> Result<Opened, String>;

    /// Returns whether reopening may find a faster receive path.
    fn could_be_better(&mut self) -> bool {
        false
    }
}

/// Health check of an open input, called each second.
pub trait Check: Send {
    /// Checks whether the input still works.
    /// # Errors
    /// The cause, in one sentence.
    fn check(&mut self) -> Result<(), String>;

    /// Returns the counters kept outside its sources (by the device or the XDP program), since it was opened.
    fn counters(&mut self) -> Counters {
        Counters::default()
    }
}

/// The health check of an input whose threads notice every failure.
#[derive(Debug)]
struct AlwaysHealthy;

impl Check for AlwaysHealthy {
    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The consumer of an input's datagrams.
#[derive(Clone, Debug)]
pub enum Dispatch {
    /// The receiving threads process datagrams themselves, with one worker that they share.
    Inline(Arc<Mutex<Worker>>),
    /// The receiving threads distribute datagrams to workers.
    Spread(Plan),
}

impl Dispatch {
    fn handler(&self) -> Handler {
        match self {
            Self::Inline(worker) => Handler::Inline(Arc::clone(worker)),
            Self::Spread(plan) => Handler::Spread(Box::new(Spreader::new(plan.clone()))),
        }
    }

    fn watermark(&self) -> Watermark {
        match self {
            Self::Inline(worker) => lock(worker).watermarks().add(),
            Self::Spread(plan) => plan.watermarks.add(),
        }
    }

    /// Runs timers and queries while the input is closed. Workers with a queue do this themselves.
    fn poll(&self) {
        if let Self::Inline(worker) = self {
            poll(worker, true);
        }
    }
}

/// Runs due work, and queries if the worker has `caught_up` with its input. Returns the maximum time to wait, ms.
fn poll(worker: &Mutex<Worker>, caught_up: bool) -> u32 {
    let mut worker = lock(worker);
    // Read the time after locking, which may take a while.
    let now = nic::time::now();
    let until = worker.watermarks().time(now);
    worker.poll(now, until);
    worker.serve(caught_up)
}

/// The processing of one receiving thread.
#[derive(Debug)]
enum Handler {
    Inline(Arc<Mutex<Worker>>),
    Spread(Box<Spreader>),
}

/// An open input whose threads have not started.
pub struct Input {
    opened: Opened,
    opener: Option<Box<dyn Open>>,
    gauge: Arc<InputGauge>,
    listener: u16,
    /// The index of the `[collector] listen` entry that it belongs to.
    entry: usize,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").finish_non_exhaustive()
    }
}

/// Opens all configured inputs, in order.
///
/// # Errors
/// The first input that cannot be opened; the message suggests a fix.
pub fn open(active_config: &Arc<Current<CollectSettings>>) -> Result<Vec<Input>, CliError> {
    let settings = active_config.get();
    let mut inputs = Vec::new();
    for (entry, listen) in settings.collector.listen.iter().enumerate() {
        let first = inputs.len();
        match listen {
            Listen::Udp(address) => inputs.push(udp::input(*address, &settings.collector, inputs.len())?),
            Listen::UdpAny(port) => udp::both_families(*port, &settings.collector, &mut inputs)?,
            Listen::Xdp { interface, ports } => {
                inputs.push(device::input(interface, ports, active_config, inputs.len())?);
            }
        }
        inputs
            .iter_mut()
            .skip(first)
            .for_each(|input: &mut Input| input.entry = entry);
    }
    Ok(inputs)
}

impl Input {
    fn new(listener: usize, opened: Opened, opener: Option<Box<dyn Open>>) -> Self {
        // More than 65,536 sockets exceed the default limit of open files.
        let listener = u16::try_from(listener).unwrap_or(u16::MAX);
        let gauge = Arc::new(InputGauge::new(&opened.setup, opener.is_some()));
        Self {
            opened,
            opener,
            gauge,
            listener,
            entry: 0,
        }
    }

    /// Returns the input's counters for display.
    pub fn gauge(&self) -> Arc<InputGauge> {
        Arc::clone(&self.gauge)
    }

    /// Returns the input's index, which identifies it as a listener in results.
    pub fn listener(&self) -> u16 {
        self.listener
    }

    /// Returns the index of the `[collector] listen` entry that it belongs to.
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// Starts the threads of an input that needs no supervision; returns any other input for its supervisor.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn read(
        self,
        dispatch: Dispatch,
        capabilities: Capabilities,
        stop: &Arc<AtomicBool>,
        control: &Control,
    ) -> Result<Reading, CliError> {
        let work = Work {
            gauge: self.gauge,
            dispatch,
            listener: self.listener,
            capabilities,
        };
        match self.opener {
            None => Ok(Reading::Threads(work.start(
                self.opened.sources,
                stop,
                control,
            )?)),
            Some(opener) => Ok(Reading::Watched(Box::new(watch::Watched::new(
                opener,
                work,
                self.opened,
            )))),
        }
    }

    /// Returns whether the input needs supervision.
    pub fn is_watched(&self) -> bool {
        self.opener.is_some()
    }
}

/// An input after [`Input::read`].
pub enum Reading {
    /// The input's threads, which run until `stop` is set and all datagrams received until then are processed.
    Threads(Vec<JoinHandle<()>>),
    /// A supervised input, for [`watch::Watch::add`].
    Watched(Box<watch::Watched>),
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").finish_non_exhaustive()
    }
}

/// The context for reading an input, which survives reopening.
struct Work {
    gauge: Arc<InputGauge>,
    dispatch: Dispatch,
    listener: u16,
    capabilities: Capabilities,
}

impl Work {
    /// Starts a reader thread for each source.
    fn start(
        &self,
        sources: Vec<RxSource>,
        stop: &Arc<AtomicBool>,
        control: &Control,
    ) -> Result<Vec<JoinHandle<()>>, CliError> {
        let mut threads = Vec::new();
        for (index, source) in sources.into_iter().enumerate() {
            let reader = Reader {
                source,
                handler: self.dispatch.handler(),
                watermark: self.dispatch.watermark(),
                listener: self.listener,
                meter: self.gauge.meter(),
                ends_on_error: self.gauge.is_watched(),
                latest: None,
                clock: nic::time::now,
            };
            let name = format!("input-{}-{index}", self.listener);
            let stop = Arc::clone(stop);
            let ends_on_error = reader.ends_on_error;
            let capabilities = self.capabilities;
            threads.push(control.spawn(&name, move || {
                if ends_on_error {
                    capabilities::drop_to_reading(capabilities);
                }
                reader.run(&stop);
            })?);
        }
        Ok(threads)
    }
}
