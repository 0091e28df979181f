//! The software end of RoCEv2: what an RDMA card does for remote writes and additions, without the card.
//!
//! No socket, clock or thread: frames go in, memory changes, answers come out. Reliable and unreliable connections; writes
//! of any length, with or without an immediate value, sends of one packet, fetch-and-add. Reading and swapping are not
//! offered: nobody needs them here, and what is not there cannot be abused.
//!
//! Nothing that comes from the network is believed. A packet is read and checked without knowledge of connections by
//! [`wire::roce::Packet::parse`] (lengths, padding, version, partition, ICRC); then against its queue pair (peer, transport, sequence),
//! and every address against its region. A packet that fails anywhere changes no byte. What was counted adds up:
//! [`Stats::is_balanced`].
//!
//! The rules are those of the InfiniBand specification, volume 1, chapter 9; where it leaves a choice, that of Linux's
//! `rdma_rxe`. A late packet of an unreliable connection that begins a message is executed, as there.

mod config;
mod pair;
mod regions;
mod responder;
mod serve;
mod stats;
mod work;

pub use config::{
    Config, ConfigError, Order, PairConfig, PairError, RegisterError, Registered, Registration, Rights,
};
pub use pair::PairState;
pub use responder::Responder;
pub use stats::{Reason, Stats};

use wire::roce::Path;

/// A write with an immediate value was completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// On which queue pair.
    pub pair: u32,
    /// The value.
    pub immediate: u32,
    /// The region's number ([`Registration::region`]) and where in it the message begins; none for an empty message.
    pub place: Option<(u16, u64)>,
    /// Bytes written.
    pub len: u32,
}

/// What a responder has to say. Nothing of it may wait.
pub trait Out {
    /// A frame for the other end, to be sent along this path. A UDP socket sends what stands behind the UDP header.
    fn answer(&mut self, path: &Path, frame: &[u8]);
    /// A write with an immediate value.
    fn complete(&mut self, _completion: &Completion) {}
    /// A message that was sent to us, on this queue pair.
    fn sent(&mut self, _pair: u32, _message: &[u8]) {}
}

/// Numbers that look like no sequence (the finisher of SplitMix64).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
