//! The manager role: turns intents into INT rules on devices. It contains the manager's thread, the drivers of devices, the
//! journal, the settings and the view for the API.
#![forbid(unsafe_code)]

#[cfg(test)]
mod for_tests;
pub mod program;
pub mod role;
pub mod settings;
