//! A network on this machine: hosts, links and switches in network namespaces, made from one file. The library of the program
//! `hopwise-lab`, which `hopwise lab` executes. Its switches and its collector are processes of `hopwise`.
//!
//! The order of the data: [`file`] is the topology file, `topology` the network it describes, `routes` the routes of the switches,
//! `plan` the `ip` commands, `configs` the configuration of each process, `managed` that of the manager. `up` and `down` create and remove a lab, `state` is its
//! state between commands, `remote` sends API requests to its processes. `traffic`, `fault` and `capture` operate on a running lab.
//!
//! All parts of the lab NAME can be found by its name: namespaces `hw-NAME-…`, the directory `/run/hopwise/lab-NAME`, and
//! processes that run in these namespaces or use a configuration file in this directory. So a lab can be removed even if the program
//! that created it has crashed.

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
