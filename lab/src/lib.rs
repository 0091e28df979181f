//! Library of `hopwise-lab`: a network of hosts, links and switches in namespaces of this machine, from one topology file.
//! Switches and collector of a lab are `hopwise` processes.
//!
//! Modules, in the order of the data:
//! - `file` declares the topology file, `load` reads it into a `topology`;
//! - `routes` computes the routes, `plan` the `ip` commands, `configs` the configuration of each process, `managed`
//!   the manager's part;
//! - `up` and `down` create and remove a lab, `state` keeps its state between commands;
//! - `remote` calls the APIs of the processes; `traffic`, `fault` and `capture` work on a running lab.
//!
//! Every part of a lab can be found by the lab's name: the namespaces `hw-NAME-…`, the directory `/run/hopwise/lab-NAME`, and
//! the processes that run in these namespaces or use a configuration file in this directory. So a lab can be removed even if
//! the program that created it has crashed.

#![forbid(unsafe_code)]

mod bmv2;
mod capture;
mod command;
mod conditions;
mod configs;
mod down;
mod exec;
mod fault;
mod file;
mod load;
mod managed;
mod plan;
mod remote;
mod restart;
mod routes;
mod state;
mod tables;
mod topology;
mod traffic;
mod up;

pub use command::{Args, run};
