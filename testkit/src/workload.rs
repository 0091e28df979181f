//! Synthetic workloads for the benchmarks and for tests. They are deterministic: the same input every time.

pub mod aggregator;
pub mod collector;
pub mod rdma;
pub mod switch;
pub mod translator;
