//! The commands that run the daemon, and the one that writes what packagers need from the definitions of all commands.

pub(crate) mod console;
pub(crate) mod demo;
pub(crate) mod generate;
pub(crate) mod outlet;
pub(crate) mod programs;
pub(crate) mod run;
