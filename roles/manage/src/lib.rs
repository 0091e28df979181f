//! The role of a manager: intents in, rules on devices out. It has the manager's thread, the drivers of devices, the journal, the
//! settings and the view.
#![forbid(unsafe_code)]

#[cfg(test)]
mod for_tests;
pub mod program;
pub mod role;
pub mod settings;
