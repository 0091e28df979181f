//! Driver for devices that somebody else configures: it writes the desired rules of a device as text files into a directory.
//!
//! - `desired.txt` contains all rules of the device, one per line, with a header that states election and version.
//! - `applied.txt` is a copy of it, made by the configuring party once the device has these rules. It is taken as the device's
//!   state: while it is missing or differs from `desired.txt`, the device is unconfirmed, and the manager takes no step that
//!   depends on it.
//!
//! A [`Format`] adds files in the device's format, which are written before `desired.txt`.
//!
//! With [`Confirm::Written`], rules count as applied once they are written. The order of steps is then not guaranteed.
#![forbid(unsafe_code)]

mod directory;
mod settings;
mod text;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manager::device::{Answer, Capabilities, Command, DeviceEvent, NodeId, Restart};
use manager::driver::Message;
use tokio::sync::mpsc;
use tokio::time;

pub use self::directory::{APPLIED, DESIRED, Directory};
pub use self::settings::{Confirm, Format, Rendered, Settings};
pub use self::text::{Content, parse_rule, rule_line};

/// Maximum number of queued commands. The manager sends one at a time, but sends again after a timeout.
const MAX_COMMANDS: usize = 4;
/// Interval between checks of the files.
const INTERVAL: Duration = Duration::from_millis(500);

/// Returns the assumed capabilities of a device behind files: a hopwise switch that keeps its rules, without sampling.
pub fn capabilities() -> Capabilities {
    Capabilities {
        joint_roles: false,
        sampling: false,
        restart: Restart::Keeps,
        ..Capabilities::default()
    }
}

/// A running driver. Dropping it stops its tasks.
#[derive(Debug)]
pub struct Driver {
    commands: mpsc::Sender<Command>,
    tasks: [tokio::task::AbortHandle; 2],
}

impl Driver {
    /// Starts the tasks of a driver on the current Tokio runtime. `emit` receives its messages.
    pub fn start(settings: Settings, emit: impl Fn(Message) + Clone + Send + Sync + 'static) -> Self {
        let (commands, queue) = mpsc::channel(MAX_COMMANDS);
        let node = settings.node;
        let directory = Arc::new(Mutex::new(Directory::new(settings)));
        let work = tokio::spawn(work(Arc::clone(&directory), queue, emit.clone()));
        let watch = tokio::spawn(watch(node, directory, emit));
        Self {
            commands,
            tasks: [work, watch].map(|task| task.abort_handle()),
        }
    }

    /// Queues a command. Returns `false` if too many commands are queued already.
    pub fn send(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

type Shared = Arc<Mutex<Directory>>;

/// Runs `work` on a thread for blocking I/O. Returns `None` if it panicked.
async fn blocking<T: Send + 'static>(
    directory: &Shared,
    work: impl FnOnce(&mut Directory) -> T + Send + 'static,
) -> Option<T> {
    let directory = Arc::clone(directory);
    let done = tokio::task::spawn_blocking(move || {
        work(&mut directory.lock().unwrap_or_else(PoisonError::into_inner))
    });
    done.await.ok()
}

/// Executes commands one at a time and emits the answers.
async fn work(directory: Shared, mut queue: mpsc::Receiver<Command>, emit: impl Fn(Message)) {
    while let Some(Command {
        node, id, request, ..
    }) = queue.recv().await
    {
        let answer = blocking(&directory, |directory| directory.execute(request)).await;
        let answer =
            answer.unwrap_or_else(|| Answer::Unreachable("the driver failed; please report it".to_owned()));
        emit(Message::Answer(node, id, answer));
    }
}

/// Reports changes of the files that this driver did not make.
async fn watch(node: NodeId, directory: Shared, emit: impl Fn(Message)) {
    loop {
        time::sleep(INTERVAL).await;
        if blocking(&directory, Directory::has_changed)
            .await
            .unwrap_or_default()
        {
            emit(Message::Event(node, DeviceEvent::Changed));
        }
    }
}
