//! The measurement manager: turns an operator's intents into rules on switches, and verifies the effect.
//!
//! An operator states which flows to measure. This crate computes the rules of each device, applies them in an order in which
//! no INT reaches a host, and checks by the reports whether it works. It has no I/O, clock, threads or randomness: driver
//! messages and the time `now` go in, requests to drivers come out.
//!
//! Modules in the order of the data:
//! - [`inventory`]: devices, ports, links and hosts, each fact with its origin. [`intent`]: the flows and metrics to measure.
//! - [`device`]: device-independent rules, capabilities, and the messages exchanged with drivers. [`flows`] and
//!   [`instruction`] define parts of the rules.
//! - [`compile`]: computes the desired rules of each device from intents and inventory, or refuses an intent with a fix.
//! - [`plan`]: shows the changes before any is made.
//! - [`reconcile`]: applies the desired rules to the devices, one safe change after another.
//! - [`lease`]: decides whether a standby manager takes over.
//! - [`Manager`]: combines these, and handles expiring intents and changes of the topology.
//! - [`verify`]: checks by the reports whether an intent works. [`budget`]: keeps the reports within limits. [`drill_down`]:
//!   installs short-lived intents where a rule became true.
//!
//! `docs/design/manager.md` describes the design, and why the order of changes is safe.
//!
//! # Example
//! One switch with two hosts; the loop plays the driver:
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

pub use self::manager::{ApplyMode, DryRun, IntentStatus, Manager, ManagerSettings};
