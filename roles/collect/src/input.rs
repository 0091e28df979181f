//! Inputs of reports: sockets and rings, each read by its own thread. With one worker the thread does the work itself; with
//! several it does the sequence accounting, while datagrams are still in order, and distributes them by inner flow.
//!
//! An input is opened by its [`Open`] at the start, and again when [`watch`] finds that it no longer works; its counters
//! continue.

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

/// Something that one thread reads.
pub enum RxSource {
    /// All datagrams to this input.
    Source(Box<dyn Source>),
    /// The datagrams that the kernel program passed to user space.
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
    /// Checks whether it still works.
    pub health: Box<dyn Check>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

/// Opens an input, at the start and after failures.
pub trait Open: Send {
    /// Opens it.
    ///
    /// # Errors
    /// The cause and a remedy, in one sentence.
    fn open(&mut self) -> Result<Opened, String>;

    /// Whether another attempt may find a better receive path.
    fn could_be_better(&mut self) -> bool {
        false
    }
}

/// Checked each second: whether an open input still works.
pub trait Check: Send {
    /// # Errors
    /// The cause, in one sentence.
    fn check(&mut self) -> Result<(), String>;

    /// Counters outside its sources, since it was opened.
    fn counters(&mut self) -> Counters {
        Counters::default()
    }
}

/// An input whose own thread notices every failure.
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
    /// The receiving threads themselves, with a collector that they share.
    Inline(Arc<Mutex<Worker>>),
    /// Workers, to which datagrams are distributed.
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

    /// Runs timers and queries while nothing is received. Workers do this themselves.
    fn poll(&self) {
        if let Self::Inline(worker) = self {
            poll(worker, true);
        }
    }
}

/// Runs due work, and queries if the worker has `caught_up` with its input. Returns how long to wait for datagrams at most, ms.
/// Locking the worker may take a while, so the time is read after it.
fn poll(worker: &Mutex<Worker>, caught_up: bool) -> u32 {
    let mut worker = lock(worker);
    let now = nic::time::now();
    let until = worker.watermarks().time(now);
    worker.poll(now, until);
    worker.serve(caught_up)
}

/// The processing of a receiving thread.
#[derive(Debug)]
enum Handler {
    Inline(Arc<Mutex<Worker>>),
    Spread(Box<Spreader>),
}

/// An open input without a reader.
pub struct Input {
    opened: Opened,
    opener: Option<Box<dyn Open>>,
    gauge: Arc<InputGauge>,
    listener: u16,
    /// The entry of `[collector] listen` that it is a part of.
    entry: usize,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").finish_non_exhaustive()
    }
}

/// Opens the inputs of the configuration, in order.
///
/// # Errors
/// The first that cannot be opened; the message says what to do.
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

    /// Returns the number of the input as a listener.
    pub fn listener(&self) -> u16 {
        self.listener
    }

    /// The entry of `[collector] listen` that it is a part of.
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// Starts the input's threads if it needs no supervision; else returns the input for its supervisor.
    ///
    /// # Errors
    /// The system refuses a thread.
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

    /// Whether it needs supervision.
    pub fn is_watched(&self) -> bool {
        self.opener.is_some()
    }
}

/// An input with its reader.
pub enum Reading {
    /// Read by these threads, until `stop` is set and all datagrams received until then are processed.
    Threads(Vec<JoinHandle<()>>),
    /// A supervised input, for [`watch::Watch::add`].
    Watched(Box<watch::Watched>),
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").finish_non_exhaustive()
    }
}

/// The context for reading an input, kept over reopenings.
struct Work {
    gauge: Arc<InputGauge>,
    dispatch: Dispatch,
    listener: u16,
    capabilities: Capabilities,
}

impl Work {
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
