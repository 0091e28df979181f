//! A network on this machine: hosts, links and switches in network namespaces, made from one file.
//!
//! The order of the data: [`file`] is what a person writes, `topology` what it means, `routes` the way of each packet,
//! `plan` what `ip` must do, `configs` the configuration of each process; `up` and `down` make and remove it, `state` is what
//! is known of a lab between two commands, `remote` how its processes are asked. `traffic`, `fault` and `capture` are
//! what one does with it.
//!
//! Everything of the lab NAME is found by its name alone: namespaces `hw-NAME-…`, the directory `/run/hopwise/lab-NAME`,
//! and processes that run in the former or were started with a configuration file in the latter. So it can be removed
//! whatever became of the program that made it.

#![forbid(unsafe_code)]

mod capture;
mod command;
mod conditions;
mod configs;
mod down;
mod exec;
mod fault;
mod file;
mod load;
mod plan;
mod program;
mod remote;
mod routes;
mod state;
mod topology;
mod traffic;
mod up;

pub use command::{Args, run};
pub use load::check;
pub use program::Program;
