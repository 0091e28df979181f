//! Control channel of the process: signals, the API and failed threads send messages to the main thread, which stops, reloads
//! or changes detection.

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
    /// Reload the configuration and send the result to the requester.
    Reload(Option<oneshot::Sender<Reloaded>>),
    /// Apply the detection rules and thresholds of intents in addition to the configuration.
    Detect(Arc<IntentDetection>),
    /// A thread failed for this reason; the program ends with it as the error.
    Failed(String),
}

/// Rules and thresholds that intents add to the collector in this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntentDetection {
    /// The rules of all intents.
    pub rules: Vec<IntentRule>,
    /// Thresholds of all intents. If several match a flow, the lowest applies.
    pub thresholds: Vec<(Match, Override)>,
}

/// The rule of an intent.
#[derive(Clone, Debug, PartialEq)]
pub struct IntentRule {
    /// Name of the intent and of the rule.
    pub name: String,
    /// Condition in the rule language.
    pub when: String,
    /// The flows to which the rule applies.
    pub flows: Vec<Match>,
}

/// Result of a reload: the changed settings that need a restart, or the errors of the new file, which then has no effect.
pub type Reloaded = Result<Vec<String>, String>;

/// Sending end of the channel to the main thread.
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

    /// Requests a reload. If the result never arrives, the program is about to end.
    pub fn reload(&self) -> oneshot::Receiver<Reloaded> {
        let (reply, result) = oneshot::channel();
        self.send(Message::Reload(Some(reply)));
        result
    }

    /// Replaces the rules and thresholds of intents.
    pub fn detect(&self, intents: Arc<IntentDetection>) {
        self.send(Message::Detect(intents));
    }

    /// Starts a thread. If it panics, the main thread ends the program.
    ///
    /// # Errors
    /// The system cannot create another thread.
    pub fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle<()>, CliError> {
        let control = self.clone();
        let thread_name = name.to_owned();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            // The thread's own data is dropped; shared data is behind locks whose values stay valid.
            if std::panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
                control.failed(format!(
                    "the thread `{thread_name}` has died; this is a fault in hopwise, please report it"
                ));
            }
        });
        thread.map_err(|error| CliError::io("cannot start a thread", error, "raise the limit on threads"))
    }

    /// Starts a thread that runs until the result is dropped. `work` receives the stop flag and must poll it.
    ///
    /// # Errors
    /// The system cannot create another thread.
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
        // Fails only if the main thread no longer receives because the program is ending.
        let _ = self.sender.send(message);
    }
}

/// Handle of a thread that stops when the handle is dropped.
#[derive(Debug)]
pub struct StoppableThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StoppableThread {
    /// Asks the thread to end, without waiting for it.
    pub fn request_stop(&self) {
        // Relaxed, because the flag orders no other memory; joining the thread does.
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

/// Turns SIGTERM and SIGINT into stop messages and SIGHUP into a reload, until the current runtime ends.
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
