//! From intents to rules on switches, and back.
#![forbid(unsafe_code)]

pub mod budget;
pub mod compile;
pub mod device;
pub mod drill_down;
pub mod flows;
pub mod instruction;
pub mod intent;
pub mod inventory;
mod manager;
pub mod plan;
pub mod reconcile;
pub mod verify;

pub use self::manager::{ApplyMode, IntentStatus, Manager, ManagerSettings};
