//! The commands, the configuration, the repository as a whole, and simulated fabrics with known ground truth: mostly without root.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "each test program uses a part")]
mod support;

mod program {
    mod alerts;
    mod bounds;
    mod cli_bench;
    mod cli_decode;
    mod cli_demo;
    mod cli_names;
    mod cli_replay;
    mod cli_replay_clocks;
    mod cli_replay_limits;
    mod cli_report;
    mod cli_vectors;
    mod config;
    mod dependencies;
    mod docs;
    mod doctor;
    mod ground_truth;
    mod layers;
    mod netbox;
    mod past;
    mod programs;
    mod schema_client;
    mod server;
    mod sf_truth;
    mod store_files;
    mod switch_filter;
    mod terminal;
    mod tls;
}
