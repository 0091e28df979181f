//! The commands that run the daemon: `run`, `console`, `outlet` and `demo`. Also `generate`, which needs the definitions of
//! all commands, and the commands that execute other programs. All other commands are in the crate `cli`.

pub(crate) mod console;
pub(crate) mod demo;
pub(crate) mod generate;
pub(crate) mod outlet;
pub(crate) mod programs;
pub(crate) mod run;
