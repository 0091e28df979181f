//! The store: crashes, retention, round trips and SQL. One binary, because linking each file by itself takes longer than its tests.

mod check;
mod crash;
mod damage;
mod faults;
mod first_values;
mod follower;
mod history;
mod keeping;
mod losses;
mod path_use;
mod queues;
mod retention;
mod round_trip;
mod spans;
mod sql;
mod taken;
mod traffic;
