//! Waits until intents work or devices are in sync, and prints each change of state on a terminal.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use super::{super::remote::fetch, tone};
use manage_role::role::view::{ChangeView, DeviceState, DevicesView, DomainView, IntentView, IntentsView};
use net::client::{Client, escape};
use terminal::{CliError, Terminal};

/// Maximum interval between two reads of an intent.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until all `intents` work, or for `limit`: by the manager's event stream or, without it, by polling.
pub(super) fn wait(
    client: &Client,
    intents: &mut [IntentView],
    limit: Duration,
    is_enabled: bool,
) -> Result<(), CliError> {
    let begin = Instant::now();
    let changes = follow(client);
    let mut log = StateLog {
        is_enabled,
        ..StateLog::default()
    };
    while !intents.iter().all(has_reports) && begin.elapsed() < limit {
        let remaining = limit.saturating_sub(begin.elapsed());
        match changes.recv_timeout(remaining.min(POLL_INTERVAL)) {
            Ok(ChangeView::Intent(state)) => {
                if let Some(intent) = intents.iter_mut().find(|intent| intent.name == state.name) {
                    log.show(&state.name, &state.state, &state.text);
                    (intent.state, intent.text) = (state.state, state.text);
                }
            }
            Ok(ChangeView::Device(device)) => log.device(&device, intents),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => refresh(client, intents)?,
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(remaining.min(POLL_INTERVAL));
                refresh(client, intents)?;
            }
        }
    }
    // The stream carries states only; read the rest.
    refresh(client, intents)
}

/// Waits until all devices are in sync and no intent is pending, or for `limit`. Returns whether that was reached.
pub(super) fn wait_for_devices(
    client: &Client,
    domain: &mut DomainView,
    limit: Duration,
    is_enabled: bool,
) -> Result<bool, CliError> {
    let begin = Instant::now();
    let mut log = StateLog {
        is_enabled,
        ..StateLog::default()
    };
    let is_stop = domain.stopped;
    loop {
        *domain = fetch(client, "/domain")?;
        // Somebody else may have started or stopped INT meanwhile, so that the wanted state is never reached.
        if domain.stopped != is_stop
            || (domain.in_sync == domain.devices && (is_stop || !any_is_pending(client)?))
        {
            return Ok(domain.stopped == is_stop);
        }
        if begin.elapsed() >= limit {
            return Ok(false);
        }
        for device in fetch::<DevicesView>(client, "/devices")?.devices {
            if device.state != "in_sync" || log.printed.contains_key(&device.name) {
                log.show(
                    &device.name,
                    &device.state,
                    if device.text == device.state {
                        ""
                    } else {
                        &device.text
                    },
                );
            }
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn any_is_pending(client: &Client) -> Result<bool, CliError> {
    let intents: IntentsView = fetch(client, "/intents")?;
    Ok(intents.intents.iter().any(|intent| intent.state == "pending"))
}

fn refresh(client: &Client, intents: &mut [IntentView]) -> Result<(), CliError> {
    for intent in intents {
        *intent = fetch(client, &format!("/intents/{}", escape(&intent.name)))?;
    }
    Ok(())
}

/// Returns whether reports of the intent have arrived.
pub(super) fn has_reports(intent: &IntentView) -> bool {
    matches!(intent.state.as_str(), "seen" | "complete")
}

/// Follows the manager's event stream on a thread. The channel is disconnected if there is no stream.
fn follow(client: &Client) -> Receiver<ChangeView> {
    let (sender, changes) = mpsc::sync_channel(1_024);
    let client = client.clone();
    thread::spawn(move || {
        let Ok(stream) = client.stream("/domain/stream") else {
            return;
        };
        for message in stream {
            let Ok(message) = message else { return };
            // `shed` (the server dropped messages) is not a change; the poll after a pause catches up.
            let Ok(change) = serde_json::from_str(&message.data) else {
                continue;
            };
            if sender.send(change).is_err() {
                return;
            }
        }
    });
    changes
}

/// Prints one line on the terminal for each new state.
#[derive(Default)]
struct StateLog {
    is_enabled: bool,
    /// Last printed state by name of the intent or device.
    printed: BTreeMap<String, String>,
}

impl StateLog {
    /// Prints the state of a device that one of the intents uses. A device that was in sync from the start gets no line.
    fn device(&mut self, device: &DeviceState, intents: &[IntentView]) {
        let is_used = intents.iter().any(|intent| intent.devices.contains(&device.name));
        if is_used && (device.state != "in_sync" || self.printed.contains_key(&device.name)) {
            self.show(
                &device.name,
                &device.state,
                if device.text == device.state {
                    ""
                } else {
                    &device.text
                },
            );
        }
    }

    fn show(&mut self, name: &str, state: &str, text: &str) {
        if !self.is_enabled || self.printed.get(name).is_some_and(|last| last == state) {
            return;
        }
        self.printed.insert(name.to_owned(), state.to_owned());
        let state = Terminal::stderr().paint(tone(state), state);
        // Nothing to do if standard error is closed.
        let _ = writeln!(terminal::stderr(), "  {name:<12} {state}  {text}");
    }
}
