//! The driver of devices that somebody else configures: it writes the desired rules of a device into a directory.
//!
//! - `desired.txt` has all rules of the device, a line each, and a header with election and version.
//! - `applied.txt` is a copy of it, made by whoever configures the device when the device has these rules. It is the state of the device:
//!   without it, or while it differs from `desired.txt`, the device is unconfirmed, and the manager takes no step that depends on this one.
//!
//! A [`Format`] adds files in the form that the device reads, written before `desired.txt`.
//!
//! With [`Confirm::Written`], the desired rules count as those of the device. Then the order of steps is not guaranteed.
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
pub use self::text::{Content, line, rule};

/// Returns the assumed capabilities of a device behind files: all that a hopwise switch can do, and its rules survive a restart.
pub fn capabilities() -> Capabilities {
    Capabilities {
        joint_roles: false,
        sampling: false,
        restart: Restart::Keeps,
        ..Capabilities::default()
    }
}

/// The tasks of a driver, which stop when it is dropped.
#[derive(Debug)]
pub struct Driver {
    commands: mpsc::Sender<Command>,
    tasks: [tokio::task::AbortHandle; 2],
}

impl Driver {
    /// Starts the tasks of a driver on the current runtime. `emit` receives its messages.
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

    /// Queues a command. Returns `false` if too many are queued already.
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

/// Runs `work` on a thread that may wait for the disk.
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

/// Reports changes of the files that the driver did not make.
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

/// Upper limit of the commands that wait for a driver; the core sends one at a time, and again after a timeout.
const MAX_COMMANDS: usize = 4;
/// Time between two checks of the files.
const INTERVAL: Duration = Duration::from_millis(500);
