//! Facts about the host: its name, and a random seed.

/// Returns the host name of this machine, or an empty text if it has none.
pub fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Returns a random number that senders cannot guess, for seeding hashes.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
