//! Where reports come in: sockets and rings, each read by a thread of its own. With one worker the thread does the work
//! itself; with several it accounts for sequence numbers, where all are still in order, and spreads the datagrams by their
//! inner flow.
//!
//! An input is opened by its [`Open`], at the start and, where [`watch`] finds that it no longer works, again; its figures
//! go on over that.

pub(crate) mod device;
mod gauge;
mod reader;
mod udp;
pub(crate) mod watch;

use std::{
    sync::{Arc, Mutex, atomic::AtomicBool},
    thread::JoinHandle,
};

use nic::{ladder::Counters, source::Source};

use crate::{
    config::{sections::Rights, values::Listen},
    control::Control,
    fanout::{Plan, Spreader},
    in_force::InForce,
    kernel::KernelIntake,
    lock::lock,
    rights,
    worker::Core,
};
pub(crate) use gauge::{InputGauge, Setup};
use reader::Reader;
use terminal::CliError;

/// Something that one thread reads.
pub(crate) enum Intake {
    /// Every datagram that was sent to us.
    Source(Box<dyn Source>),
    /// Those that the kernel did not deal with itself.
    Kernel(Box<dyn KernelIntake>),
}

/// An input that is open.
pub(crate) struct Opened {
    /// What to read, each by a thread.
    pub(crate) intakes: Vec<Intake>,
    /// What to show of it.
    pub(crate) setup: Setup,
    /// Does it still work?
    pub(crate) health: Box<dyn Check>,
}

/// How an input is opened, again and again.
pub(crate) trait Open: Send {
    /// Opens it.
    ///
    /// # Errors
    /// One sentence: why not, and what to do.
    fn open(&mut self) -> Result<Opened, String>;

    /// Is another try likely to end better than what is open now?
    fn could_be_better(&mut self) -> bool {
        false
    }
}

/// Asked each second whether an open input still works.
pub(crate) trait Check: Send {
    /// # Errors
    /// One sentence: what happened.
    fn check(&mut self) -> Result<(), String>;

    /// What happened outside its sources, since it was opened.
    fn counters(&mut self) -> Counters {
        Counters::default()
    }
}

/// What nothing can happen to that its own thread does not notice.
#[derive(Debug)]
struct AlwaysWell;

impl Check for AlwaysWell {
    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Who gets what an input receives.
#[derive(Clone, Debug)]
pub(crate) enum Hands {
    /// The receiving threads themselves, with a collector that they share.
    Inline(Arc<Mutex<Core>>),
    /// Workers, over which it is spread.
    Spread(Plan),
}

impl Hands {
    fn handler(&self) -> Handler {
        match self {
            Self::Inline(core) => Handler::Inline(Arc::clone(core)),
            Self::Spread(plan) => Handler::Spread(Box::new(Spreader::new(plan.clone()))),
        }
    }

    /// What is due, while nothing is received: time goes on, and questions are answered. Workers do it by themselves.
    fn turn(&self) {
        if let Self::Inline(core) = self {
            turn(core);
        }
    }
}

/// Does what is due. It may take a while to get hold of the core, so the time is that after it.
fn turn(core: &Mutex<Core>) {
    let mut core = lock(core);
    core.turn(nic::time::now());
}

/// What a receiving thread does with its datagrams.
#[derive(Debug)]
enum Handler {
    Inline(Arc<Mutex<Core>>),
    Spread(Box<Spreader>),
}

/// An input that is open and that nobody reads yet.
pub(crate) struct Input {
    opened: Opened,
    opener: Option<Box<dyn Open>>,
    gauge: Arc<InputGauge>,
    listener: u16,
}

/// Opens the inputs of the configuration, in order.
///
/// # Errors
/// The first that cannot be opened; the message says what to do.
pub(crate) fn open(in_force: &Arc<InForce>) -> Result<Vec<Input>, CliError> {
    let settings = in_force.settings();
    let mut inputs = Vec::new();
    for listen in &settings.collector.listen {
        match listen {
            Listen::Udp(address) => inputs.push(udp::input(*address, &settings.collector, inputs.len())?),
            Listen::UdpAny(port) => udp::both_families(*port, &settings.collector, &mut inputs)?,
            Listen::Xdp { interface, ports } => {
                inputs.push(device::input(interface, ports, in_force, inputs.len())?);
            }
        }
    }
    Ok(inputs)
}

impl Input {
    fn new(listener: usize, opened: Opened, opener: Option<Box<dyn Open>>) -> Self {
        // A configuration with 65,536 sockets is beyond what any kernel lets one process open by default.
        let listener = u16::try_from(listener).unwrap_or(u16::MAX);
        let gauge = Arc::new(InputGauge::new(&opened.setup, opener.is_some()));
        Self { opened, opener, gauge, listener }
    }

    /// Its figures.
    pub(crate) fn gauge(&self) -> Arc<InputGauge> {
        Arc::clone(&self.gauge)
    }

    /// Its number.
    pub(crate) fn listener(&self) -> u16 {
        self.listener
    }

    /// Its threads, if nobody needs to look after it; else itself, for who does.
    ///
    /// # Errors
    /// The system has no thread for us.
    pub(crate) fn read(
        self,
        hands: Hands,
        rights: Rights,
        stop: &Arc<AtomicBool>,
        control: &Control,
    ) -> Result<Reading, CliError> {
        let work = Work { gauge: self.gauge, hands, listener: self.listener, rights };
        match self.opener {
            None => Ok(Reading::Threads(work.start(self.opened.intakes, stop, control)?)),
            Some(opener) => Ok(Reading::Watched(Box::new(watch::Watched::new(opener, work, self.opened)))),
        }
    }

    /// Must somebody look after it?
    pub(crate) fn is_watched(&self) -> bool {
        self.opener.is_some()
    }
}

/// An input that is read, or about to be.
pub(crate) enum Reading {
    /// Read by these threads, until `stop` is set and what had arrived by then is handled.
    Threads(Vec<JoinHandle<()>>),
    /// To be given to [`watch::Watch::add`].
    Watched(Box<watch::Watched>),
}

/// What reading an input takes, whenever it is opened.
struct Work {
    gauge: Arc<InputGauge>,
    hands: Hands,
    listener: u16,
    rights: Rights,
}

impl Work {
    fn start(
        &self,
        intakes: Vec<Intake>,
        stop: &Arc<AtomicBool>,
        control: &Control,
    ) -> Result<Vec<JoinHandle<()>>, CliError> {
        let mut threads = Vec::new();
        for (index, intake) in intakes.into_iter().enumerate() {
            let reader = Reader {
                intake,
                handler: self.hands.handler(),
                listener: self.listener,
                meter: self.gauge.meter(),
                gives_up: self.gauge.is_watched(),
            };
            let (name, stop) = (format!("input-{}-{index}", self.listener), Arc::clone(stop));
            let (gives_up, rights) = (reader.gives_up, self.rights);
            threads.push(control.spawn(&name, move || {
                if gives_up {
                    rights::reading(rights);
                }
                reader.run(&stop);
            })?);
        }
        Ok(threads)
    }
}
