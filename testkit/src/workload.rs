//! Synthetic workloads of the benchmarks, which tests use too: the same input every time.

pub mod aggregator;
pub mod collector;
pub mod rdma;
pub mod switch;
pub mod translator;
