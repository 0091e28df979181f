//! From intents to rules on switches, and back.
//!
//! An operator states what to watch; this crate decides what each device has to do, applies it in an order in which no INT
//! reaches a host, and measures whether it works. No I/O, no clock, no threads, no randomness: messages and `now` go in, requests
//! for drivers come out.
//!
//! In the order of the data:
//! - [`inventory`]: devices, ports, links, hosts, each fact with its origin; [`intent`]: the flows and metrics to watch.
//! - [`device`]: abstract rules, capabilities, and the messages by which drivers are used; [`flows`] and [`instruction`] are
//!   their parts.
//! - [`compile`]: computes the desired rules of each device from intents and inventory, or one sentence that says why it cannot.
//! - [`plan`]: the changes, before any is made.
//! - [`reconcile`]: applies the desired rules to devices, one safe change after another.
//! - [`lease`]: decides whether a manager on standby takes over.
//! - [`Manager`]: these joined, with ends of intents and changes of the topology.
//! - [`verify`]: checks by its reports whether an intent works; [`budget`]: keeps reports under a limit; [`drill_down`]: short-lived
//!   intents where a rule became true.
//!
//! The design, and why the order is safe: `docs/design/manager.md`.
//!
//! # Example
//! One switch with two hosts. The test plays the driver:
//! ```
//! use manager::device::{Answer, Request, Rules, State};
//! use manager::{Manager, ManagerSettings, intent, inventory};
//!
//! let inventory = inventory::read("devices = [{ name = \"leaf1\", ports = 2, edge = [1, 2] }]", "inventory.toml")?;
//! let intents = "intents = [{ name = \"web\", match = { dport = 80 }, watch = [\"hop_latency\"], mode = \"md\" }]";
//!
//! let mut manager = Manager::new(ManagerSettings::default());
//! manager.set_inventory(inventory, 0);
//! for intent in intent::read(intents, "intents.toml", 0)? {
//!     manager.add_intent(intent, 0)?;
//! }
//! manager.set_term(Some(1), 0); // from now on, this manager acts
//!
//! let mut rules = Rules::new();
//! let mut commands = Vec::new();
//! manager.poll(0, &mut commands);
//! while let Some(command) = commands.pop() {
//!     let answer = match command.request {
//!         Request::Claim(_) => Answer::Claimed,
//!         Request::Read => Answer::State(State { rules: rules.clone(), ..State::default() }),
//!         Request::Apply { changes, .. } => {
//!             // A switch that has just started has nothing to remove.
//!             rules.extend(changes.iter().map(|change| change.rule().clone()));
//!             Answer::Applied
//!         }
//!     };
//!     manager.answer(command.node, command.id, answer, 0);
//!     manager.poll(0, &mut commands);
//! }
//! assert_eq!(manager.devices()[0].phase.to_string(), "in_sync");
//! assert!(manager.intent("web").is_some_and(|status| status.installed));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod budget;
pub mod compile;
pub mod device;
pub mod drill_down;
pub mod driver;
pub mod flows;
pub mod instruction;
pub mod intent;
pub mod inventory;
pub mod lease;
mod manager;
pub mod plan;
pub mod reconcile;
pub mod rule_limits;
pub mod verify;

pub use self::manager::{ApplyMode, IntentStatus, Manager, ManagerSettings};
