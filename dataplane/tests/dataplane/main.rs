//! The switch, its filters and SF-INT, against vectors and ground truth. One binary, because linking each file by itself takes longer than its tests.

mod filter;
mod ground_truth;
mod mixed;
mod reader;
mod sf;
mod switch_vectors;
mod walk;
