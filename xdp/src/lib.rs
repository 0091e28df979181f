//! The kernel's part of hopwise, in C, compiled to objects that are embedded here; and what Rust must know of the maps they
//! share with user space.
//!
//! The programs use nothing but the interface that the kernel promises to keep ([`struct xdp_md`], helpers, map types), so
//! one object loads on every kernel that has them: no compiler and no headers are needed where hopwise runs.
//!
//! | object | program | what it does |
//! | --- | --- | --- |
//! | [`STEER`] | `hopwise_steer` | sends datagrams to telemetry ports to AF_XDP sockets, passes everything else |
//! | [`DETECT`] | `hopwise_detect` | decodes and detects in the kernel, passes datagrams with a significant change to user space |
//! | [`RDMA`] | `hopwise_rdma` | answers RoCEv2: remote writes into memory that user space has mapped |
//! | [`RDMA_COST`] | `hopwise_rdma_cost` | what answering costs: for measuring, never attached |
//! | [`COST`] | `hopwise_cost` | what detection costs: for measuring, never attached |
//! | [`DECODE`] | `hopwise_decode` | the decoder of the one above, alone: for tests, never attached |
//!
//! The decoder (`parse.h` and what it is made of) says of every frame what the `wire` crate says of it: the same reports, in
//! the collector's units, or the same refusals in the same order. What it cannot hold it leaves to user space, and marks it
//! so: a report of more than 16 hops. What it does not take at all is the kernel's business, counted by reason: frames that
//! are no telemetry, IP fragments, frames of more than 16 KiB.
#![forbid(unsafe_code)]

pub mod detect;
pub mod rdma;

pub use self::detect::{
    Counters, FLOW_HOPS, FlowEntry, HopEntry, LevelEntry, PORTS_LEN, PROFILE_LEN, Reason, Record, Sizes,
    StreamEntry, Tables, Units, ports, profile,
};

/// Keeps an object where its words are aligned.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

macro_rules! object {
    ($name:literal) => {{
        static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name)));
        &OBJECT.0
    }};
}

/// The steering program of AF_XDP.
pub static STEER: &[u8] = object!("steer.bpf.o");
/// The generator of [`nic::load::LiveFrames`], for measurements.
pub static BENCH: &[u8] = object!("generate.bpf.o");
/// Detection in the kernel.
pub static DETECT: &[u8] = object!("detect.bpf.o");
/// Detection on frames that it changes itself, and the changes alone: `hopwise_cost`, `hopwise_cost_only`. For measuring,
/// never attached: see `detect/detect_cost.bpf.c`.
pub static COST: &[u8] = object!("detect_cost.bpf.o");
/// The decoder alone.
pub static DECODE: &[u8] = object!("decode.bpf.o");
/// The RoCEv2 responder: see [`rdma`].
pub static RDMA: &[u8] = object!("rdma.bpf.o");
/// The responder on frames that lie ready, and putting them there alone: `hopwise_rdma_cost`, `hopwise_rdma_only`; and a sender
/// of them, `hopwise_rdma_send`. For measuring, never attached: see `rdma/rdma_cost.bpf.c`.
pub static RDMA_COST: &[u8] = object!("rdma_cost.bpf.o");
