//! The eBPF programs of hopwise: written in C, compiled to objects that are embedded here; and the Rust side of the maps that
//! they share with user space.
//!
//! The programs use only the kernel's stable interface ([`struct xdp_md`], helpers, map types), so one object loads on every
//! kernel that has them, and hopwise needs no compiler and no headers at run time.
//!
//! | object | program | what it does |
//! | --- | --- | --- |
//! | [`STEER`] | `hopwise_steer` | sends datagrams to telemetry ports to AF_XDP sockets, passes everything else |
//! | [`DETECT`] | `hopwise_detect` | decodes and detects in the kernel, passes datagrams with significant changes on |
//! | [`RDMA`] | `hopwise_rdma` | RoCEv2 responder: remote writes into memory that user space has mapped |
//! | [`RDMA_COST`] | `hopwise_rdma_cost` | measures the cost of the responder; never attached |
//! | [`COST`] | `hopwise_cost` | measures the cost of detection; never attached |
//! | [`DECODE`] | `hopwise_decode` | the decoder of `hopwise_detect` alone: for tests, never attached |
//!
//! The decoder (`parse.h` and the other `parse_*.h`) gives the same result for every frame as the `wire` crate: the same
//! reports, in the collector's units, or the same refusals in the same order. It marks reports of more than 16 hops as
//! undecided and leaves them to user space. It passes frames without telemetry, IP fragments and frames of more than 16 KiB to
//! the network stack, counted by reason.
#![forbid(unsafe_code)]

mod bytes;
pub mod detect;
pub mod rdma;

pub use self::detect::{
    Counters, FLOW_HOPS, FlowEntry, HopEntry, MetricEntry, PORTS_LEN, PROFILE_LEN, Reason, Record, Sizes,
    StreamEntry, Tables, Units, ports, profile,
};

/// Aligns an object to eight bytes.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

macro_rules! object {
    ($name:literal) => {{
        static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name)));
        &OBJECT.0
    }};
}

/// The steering program for AF_XDP.
pub static STEER: &[u8] = object!("steer.bpf.o");
/// The generator of [`nic::load::LiveFrames`], for measurements.
pub static BENCH: &[u8] = object!("generate.bpf.o");
/// The program for detection in the kernel.
pub static DETECT: &[u8] = object!("detect.bpf.o");
/// Detection on generated frames (`hopwise_cost`), and their generation alone (`hopwise_cost_only`). For measurements, never
/// attached: see `detect/detect_cost.bpf.c`.
pub static COST: &[u8] = object!("detect_cost.bpf.o");
/// The decoder alone, without detection, for tests.
pub static DECODE: &[u8] = object!("decode.bpf.o");
/// The RoCEv2 responder; see [`rdma`].
pub static RDMA: &[u8] = object!("rdma.bpf.o");
/// The responder on prepared frames (`hopwise_rdma_cost`), copying them alone (`hopwise_rdma_only`), and a sender of them
/// (`hopwise_rdma_send`). For measurements, never attached: see `rdma/rdma_cost.bpf.c`.
pub static RDMA_COST: &[u8] = object!("rdma_cost.bpf.o");
