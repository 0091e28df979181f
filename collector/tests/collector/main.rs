//! The collector from datagrams to events, rollups and counters. One binary, because linking each file by itself takes longer than its tests.

mod access;
mod aggregates;
mod bounds;
mod captures;
mod drops;
mod events;
mod expiring;
mod fabric;
mod filter;
mod ioam;
mod load;
mod paths;
mod postcards;
mod profiles;
mod relief;
mod replicas;
mod rules;
mod sf_run;
mod signals;
mod time;
mod topology;
mod views;
