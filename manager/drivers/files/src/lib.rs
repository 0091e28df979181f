//! The driver of devices that somebody else configures: it writes what a device should have into a directory.
//!
//! - `desired.txt` has all rules of the device, a line each, and a header with election and version.
//! - `applied.txt` is a copy of it, made by whoever configures the device when the device has these rules. It is the state of the
//!   device: without it, or while it differs from `desired.txt`, the device is unconfirmed, and the manager takes no step that
//!   depends on this one.
//!
//! A [`Format`] adds files in the form that the device reads, written before `desired.txt`.
//!
//! With [`Confirm::Written`], what is written counts as what the device has. Then the order of steps is not guaranteed.
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

/// What a device behind files is taken to be able to do: all that a hopwise switch can, and that its rules survive a restart.
pub fn capabilities() -> Capabilities {
    Capabilities {
        joint_roles: false,
        sampling: false,
        restart: Restart::Keeps,
        ..Capabilities::default()
    }
}

/// A driver.
#[derive(Debug)]
pub struct Driver {
    commands: mpsc::Sender<Command>,
    tasks: [tokio::task::AbortHandle; 2],
}

impl Driver {
    /// Starts the tasks of a driver on the current runtime. `tell` gets what it reports.
    pub fn start(settings: Settings, tell: impl Fn(Message) + Clone + Send + Sync + 'static) -> Self {
        let (commands, queue) = mpsc::channel(MAX_COMMANDS);
        let node = settings.node;
        let directory = Arc::new(Mutex::new(Directory::new(settings)));
        let work = tokio::spawn(work(Arc::clone(&directory), queue, tell.clone()));
        let watch = tokio::spawn(watch(node, directory, tell));
        Self {
            commands,
            tasks: [work, watch].map(|task| task.abort_handle()),
        }
    }

    /// Hands over a command. `false`: it still has too many.
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

async fn work(directory: Shared, mut queue: mpsc::Receiver<Command>, tell: impl Fn(Message)) {
    while let Some(Command {
        node, id, request, ..
    }) = queue.recv().await
    {
        let answer = blocking(&directory, |directory| directory.execute(request)).await;
        let failed = || Answer::Unreachable("the driver failed; please report it".to_owned());
        tell(Message::Answer(node, id, answer.unwrap_or_else(failed)));
    }
}

/// Reports when the files change without the driver's doing.
async fn watch(node: NodeId, directory: Shared, tell: impl Fn(Message)) {
    loop {
        time::sleep(INTERVAL).await;
        if blocking(&directory, Directory::has_changed)
            .await
            .unwrap_or_default()
        {
            tell(Message::Event(node, DeviceEvent::Changed));
        }
    }
}

/// Commands that wait for a driver; the core sends one at a time, and again after a timeout.
const MAX_COMMANDS: usize = 4;
/// Between two looks at the files.
const INTERVAL: Duration = Duration::from_millis(500);
