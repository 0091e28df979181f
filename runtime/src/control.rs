//! Messages to the main thread: from signals, the API, and failed threads.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

use detect::{Match, threshold::Override};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use terminal::CliError;

/// A message to the main thread.
#[derive(Debug)]
pub enum Message {
    /// Stop the program cleanly.
    Stop,
    /// Read the configuration again; send the result to the requester.
    Reload(Option<oneshot::Sender<Reloaded>>),
    /// Detect what intents ask for, in addition to what the configuration says.
    Detect(Arc<Asked>),
    /// A thread failed, for this reason: end with it as the error.
    Failed(String),
}

/// The rules and thresholds that intents ask the collector of this process to apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The rules of all intents.
    pub rules: Vec<AskedRule>,
    /// The thresholds of intents: of those that match a flow, the least applies.
    pub thresholds: Vec<(Match, Override)>,
}

/// The rule of an intent.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedRule {
    /// The name of the intent, which is that of the rule.
    pub name: String,
    /// The condition, as text in the language of rules.
    pub when: String,
    /// The flows to which the rule applies.
    pub flows: Vec<Match>,
}

/// The result of a reload: the changed settings that take effect only after a restart, or the errors of the new file, which then changes
/// nothing.
pub type Reloaded = Result<Vec<String>, String>;

/// The sending end of the channel to the main thread.
#[derive(Clone, Debug)]
pub struct Control {
    sender: Sender<Message>,
}

impl Control {
    /// Creates the channel to the main thread, and returns both ends.
    pub fn new() -> (Self, Receiver<Message>) {
        let (sender, receiver) = channel();
        (Self { sender }, receiver)
    }

    /// Stops the program cleanly.
    pub fn stop(&self) {
        self.send(Message::Stop);
    }

    /// Ends the program because a thread failed.
    pub fn failed(&self, reason: String) {
        self.send(Message::Failed(reason));
    }

    /// Reads the configuration again. Without an answer the program is about to end.
    pub fn reload(&self) -> oneshot::Receiver<Reloaded> {
        let (reply, result) = oneshot::channel();
        self.send(Message::Reload(Some(reply)));
        result
    }

    /// Detects what intents ask for, from soon on.
    pub fn detect(&self, asked: Arc<Asked>) {
        self.send(Message::Detect(asked));
    }

    /// Starts a thread. If it panics, the main thread ends the program: hopwise does not run without one of its threads.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle<()>, CliError> {
        let control = self.clone();
        let about = name.to_owned();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            // The thread's own data is dropped with it; the rest is shared through locks whose values stay valid.
            if std::panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
                control.failed(format!(
                    "the thread `{about}` has died; this is a fault in hopwise, please report it"
                ));
            }
        });
        thread.map_err(|error| CliError::io("cannot start a thread", error, "raise the limit on threads"))
    }

    /// Starts a thread that is stopped when the result is dropped: `work` gets the flag that asks it to end.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn spawn_stoppable(
        &self,
        name: &str,
        work: impl FnOnce(Arc<AtomicBool>) + Send + 'static,
    ) -> Result<StoppableThread, CliError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = self.spawn(name, move || work(stopped))?;
        Ok(StoppableThread {
            stop,
            thread: Some(thread),
        })
    }

    fn send(&self, message: Message) {
        // Fails only when the main thread no longer receives, because the program is ending.
        let _ = self.sender.send(message);
    }
}

/// A thread that ends when this is dropped.
#[derive(Debug)]
pub struct StoppableThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StoppableThread {
    /// Asks the thread to end, without waiting for it.
    pub fn request_stop(&self) {
        // Relaxed: the flag orders no other memory; joining the thread orders everything else.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Asks the thread to end, and waits until it has ended.
    pub fn stop(&mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for StoppableThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Turns SIGTERM, SIGINT and SIGHUP into messages, until the current runtime ends.
pub fn signals(control: &Control) {
    for (kind, reload) in [
        (SignalKind::terminate(), false),
        (SignalKind::interrupt(), false),
        (SignalKind::hangup(), true),
    ] {
        let control = control.clone();
        match signal(kind) {
            Ok(mut signals) => {
                tokio::spawn(async move {
                    while signals.recv().await.is_some() {
                        control.send(if reload {
                            Message::Reload(None)
                        } else {
                            Message::Stop
                        });
                    }
                });
            }
            Err(error) => tracing::warn!(%error, "cannot listen for a signal"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_death_of_a_thread_is_a_message() {
        let (control, messages) = Control::new();
        let thread = control.spawn("fragile", || panic!("on purpose")).unwrap();
        let Ok(Message::Failed(reason)) = messages.recv() else {
            panic!("no message")
        };
        assert_eq!(
            reason,
            "the thread `fragile` has died; this is a fault in hopwise, please report it"
        );
        thread.join().unwrap();
    }
}
