//! The DTA translator against a model of memory, in simulated time: wire-formats 5.2, 5.5, 5.8 and 5.9.

mod artifact;
mod bursts;
mod congestion;
mod hostile;
mod model;
mod primitives;
mod refused;
mod sections;
mod sequences;
mod sketches;
mod triggers;
