//! Waits until intents work, and shows on a terminal what becomes of them and of their devices.

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

/// Waits until all of `intents` work, or for `limit`. Changes come by the manager's stream; without it, the intents are read
/// again and again.
pub(super) fn wait(
    client: &Client,
    intents: &mut [IntentView],
    limit: Duration,
    shown: bool,
) -> Result<(), CliError> {
    let begin = Instant::now();
    let changes = follow(client);
    let mut lines = Lines {
        shown,
        ..Lines::default()
    };
    while !intents.iter().all(works) && begin.elapsed() < limit {
        let rest = limit.saturating_sub(begin.elapsed());
        match changes.recv_timeout(rest.min(POLL)) {
            Ok(ChangeView::Intent(state)) => {
                if let Some(intent) = intents.iter_mut().find(|intent| intent.name == state.name) {
                    lines.show(&state.name, &state.state, &state.text);
                    (intent.state, intent.text) = (state.state, state.text);
                }
            }
            Ok(ChangeView::Device(device)) => lines.device(&device, intents),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => read(client, intents)?,
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(rest.min(POLL));
                read(client, intents)?;
            }
        }
    }
    // The stream has states only.
    read(client, intents)
}

/// Waits until all devices have what they should have, or for `limit`. Returns whether they have.
pub(super) fn wait_for_devices(
    client: &Client,
    domain: &mut DomainView,
    limit: Duration,
    shown: bool,
) -> Result<bool, CliError> {
    let begin = Instant::now();
    let mut lines = Lines {
        shown,
        ..Lines::default()
    };
    let wanted = domain.stopped;
    loop {
        *domain = fetch(client, "/domain")?;
        // Somebody may have changed it meanwhile.
        if domain.stopped != wanted
            || (domain.in_sync == domain.devices && (wanted || !any_is_pending(client)?))
        {
            return Ok(domain.stopped == wanted);
        }
        if begin.elapsed() >= limit {
            return Ok(false);
        }
        for device in fetch::<DevicesView>(client, "/devices")?.devices {
            if device.state != "in_sync" || lines.last.contains_key(&device.name) {
                lines.show(
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
        thread::sleep(POLL);
    }
}

fn any_is_pending(client: &Client) -> Result<bool, CliError> {
    let intents: IntentsView = fetch(client, "/intents")?;
    Ok(intents.intents.iter().any(|intent| intent.state == "pending"))
}

fn read(client: &Client, intents: &mut [IntentView]) -> Result<(), CliError> {
    for intent in intents {
        *intent = fetch(client, &format!("/intents/{}", escape(&intent.name)))?;
    }
    Ok(())
}

/// Returns whether reports of the intent arrive.
pub(super) fn works(intent: &IntentView) -> bool {
    matches!(intent.state.as_str(), "seen" | "complete")
}

/// Follows the changes at the manager. The channel is disconnected if there is no stream.
fn follow(client: &Client) -> Receiver<ChangeView> {
    let (sender, changes) = mpsc::sync_channel(1_024);
    let client = client.clone();
    thread::spawn(move || {
        let Ok(stream) = client.stream("/domain/stream") else {
            return;
        };
        for message in stream {
            let Ok(message) = message else { return };
            // `shed` is no change; the intents are read again after a moment without changes.
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

/// Lines on the terminal: one for each new state.
#[derive(Default)]
struct Lines {
    shown: bool,
    /// The last state by name.
    last: BTreeMap<String, String>,
}

impl Lines {
    /// Shows the state of a device of one of the intents. A device that is in sync from the start is not
    /// worth a line.
    fn device(&mut self, device: &DeviceState, intents: &[IntentView]) {
        let concerns = intents.iter().any(|intent| intent.devices.contains(&device.name));
        if concerns && (device.state != "in_sync" || self.last.contains_key(&device.name)) {
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
        if !self.shown || self.last.get(name).is_some_and(|last| last == state) {
            return;
        }
        self.last.insert(name.to_owned(), state.to_owned());
        let state = Terminal::stderr().paint(tone(state), state);
        // Nothing to do if standard error is closed.
        let _ = writeln!(terminal::stderr(), "  {name:<12} {state}  {text}");
    }
}

/// The longest time between two looks at an intent.
const POLL: Duration = Duration::from_millis(200);
