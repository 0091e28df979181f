//! Driver, queues, rings and offloads of an interface, from the same ioctls that `ethtool` uses.
//!
//! A command and its reply share one buffer of 32-bit words that begins with the command's number (linux/ethtool.h).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::netlink::text;
use super::{Feature, Level, Offloads, Queues};
use crate::error::Error;
use crate::sys;

/// The ethtool ioctl of linux/sockios.h.
const SIOCETHTOOL: u32 = 0x8946;
/// The string set with the names of the offloads (`ETH_SS_FEATURES`).
const SS_FEATURES: u32 = 4;
/// Bytes of a string in a string set.
const STRING: usize = 32;

/// Ethtool commands of linux/ethtool.h.
mod command {
    pub(crate) const GDRVINFO: u32 = 0x03;
    pub(crate) const GRINGPARAM: u32 = 0x10;
    pub(crate) const GSTRINGS: u32 = 0x1b;
    pub(crate) const GSSET_INFO: u32 = 0x37;
    pub(crate) const GFEATURES: u32 = 0x3a;
    pub(crate) const SFEATURES: u32 = 0x3b;
    pub(crate) const GCHANNELS: u32 = 0x3c;
    pub(crate) const SCHANNELS: u32 = 0x3d;
}

/// An interface, with a socket for the ioctls.
#[derive(Debug)]
pub(crate) struct Ethtool {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Ethtool {
    pub(crate) fn open(interface: &str) -> Result<Self, Error> {
        let mut name = [0; libc::IFNAMSIZ];
        // The last byte stays zero, which terminates the name.
        for (slot, byte) in name[..libc::IFNAMSIZ - 1].iter_mut().zip(interface.bytes()) {
            *slot = byte as libc::c_char;
        }
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let socket = socket.map_err(Error::failed("socket", interface))?;
        Ok(Self { socket, name })
    }

    /// # Safety
    /// `words` begins with a command, and is as long as the kernel's reply to it.
    unsafe fn call(&self, words: &mut [u32]) -> io::Result<()> {
        let data = libc::__c_anonymous_ifr_ifru {
            ifru_data: words.as_mut_ptr().cast(),
        };
        let mut request = libc::ifreq {
            ifr_name: self.name,
            ifr_ifru: data,
        };
        // SAFETY: the kernel follows the request's pointer to `words`, which the caller made long enough and which is
        // exclusively ours through the call.
        sys::check(unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) })
            .map(drop)
    }

    /// Runs a command with a reply of `N` words, and returns the reply.
    ///
    /// # Safety
    /// `N` words are as long as the kernel's reply.
    unsafe fn query<const N: usize>(&self, command: u32) -> io::Result<[u32; N]> {
        let mut words = [0; N];
        words[0] = command;
        // SAFETY: guaranteed by the caller.
        unsafe { self.call(&mut words) }.map(|()| words)
    }

    /// Returns the driver and the bus address.
    pub(crate) fn driver(&self) -> Option<(String, Option<String>)> {
        // SAFETY: `ethtool_drvinfo` is the command, five texts of 32 bytes, 12 reserved bytes and five numbers: 196 bytes.
        let words = unsafe { self.query::<49>(command::GDRVINFO) }.ok()?;
        driver(&bytes(&words))
    }

    /// Returns the number of receive descriptors per queue.
    pub(crate) fn rx_ring(&self) -> Option<Level> {
        // SAFETY: `ethtool_ringparam` is nine words.
        unsafe { self.query(command::GRINGPARAM) }.ok().and_then(rx_ring)
    }

    pub(crate) fn queues(&self) -> Option<Queues> {
        // SAFETY: `ethtool_channels` is nine words.
        unsafe { self.query(command::GCHANNELS) }.ok().map(queues)
    }

    /// Returns every offload that the kernel knows, with its name.
    pub(crate) fn features(&self) -> Option<Vec<(String, Feature)>> {
        let names = self.names().ok()?;
        let blocks = names.len().div_ceil(32);
        let mut words = vec![0; 2 + blocks * 4];
        words[0] = command::GFEATURES;
        words[1] = blocks as u32;
        // SAFETY: two words plus four per block; the kernel writes no more blocks than the second word says.
        unsafe { self.call(&mut words) }.ok()?;
        Some(features(names, &words[2..]))
    }

    /// Returns the names of the offloads; the position is the bit.
    fn names(&self) -> io::Result<Vec<String>> {
        // Command, reserved, mask of string sets (64 bits), one count.
        let mut words = [command::GSSET_INFO, 0, 1 << SS_FEATURES, 0, 0];
        // SAFETY: `ethtool_sset_info` is four words, plus one for each set asked for.
        unsafe { self.call(&mut words) }?;
        let count = words[4] as usize;
        let mut words = vec![0; 3 + count * STRING / 4];
        words[..3].copy_from_slice(&[command::GSTRINGS, SS_FEATURES, count as u32]);
        // SAFETY: three words and the strings. Their number is a constant of the running kernel, which just reported it.
        unsafe { self.call(&mut words) }?;
        Ok(bytes(&words[3..]).chunks_exact(STRING).map(text).collect())
    }

    pub(crate) fn set_feature(&self, name: &str, on: bool) -> io::Result<()> {
        let names = self.names()?;
        let bit = names.iter().position(|known| known == name).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "this kernel knows no such offload")
        })?;
        let blocks = names.len().div_ceil(32);
        let mut words = vec![0; 2 + blocks * 2];
        words[0] = command::SFEATURES;
        words[1] = blocks as u32;
        // Per block: the mask of changes, and the new values.
        words[2 + bit / 32 * 2] = 1 << (bit % 32);
        words[3 + bit / 32 * 2] = u32::from(on) << (bit % 32);
        // SAFETY: two words and two per block, as the second word says.
        unsafe { self.call(&mut words) }
    }

    pub(crate) fn set_queues(&self, rx: u32, tx: u32) -> io::Result<()> {
        // SAFETY: `ethtool_channels` is nine words.
        let mut words = unsafe { self.query::<9>(command::GCHANNELS) }?;
        words[0] = command::SCHANNELS;
        // `rx_count` and `tx_count`.
        words[5] = rx;
        words[6] = tx;
        // SAFETY: as above.
        unsafe { self.call(&mut words) }
    }
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Parses `ethtool_drvinfo`: the driver's name follows the command, the bus follows two more texts.
fn driver(bytes: &[u8]) -> Option<(String, Option<String>)> {
    // Devices without a bus report an empty string, or "N/A".
    Some((name_at(bytes, 4)?, name_at(bytes, 100).filter(|bus| bus != "N/A")))
}

fn name_at(bytes: &[u8], at: usize) -> Option<String> {
    bytes
        .get(at..at + STRING)
        .map(text)
        .filter(|name| !name.is_empty())
}

/// Parses `ethtool_ringparam`: the maxima (receive, mini, jumbo, transmit), then the current values. Drivers without rings
/// report zeros.
fn rx_ring(words: [u32; 9]) -> Option<Level> {
    Some(level(&words, 1)).filter(|level| level.max > 0)
}

/// Returns the maximum at `at`, and its current value four words later.
fn level(words: &[u32; 9], at: usize) -> Level {
    Level {
        now: words[at + 4],
        max: words[at],
    }
}

/// Parses `ethtool_channels`: the maxima (receive, transmit, other, combined), then the current values.
fn queues(words: [u32; 9]) -> Queues {
    Queues {
        rx: level(&words, 1),
        tx: level(&words, 2),
        combined: level(&words, 4),
    }
}

/// Combines the names with the bits of the blocks; unused bits have empty names.
fn features(names: Vec<String>, words: &[u32]) -> Vec<(String, Feature)> {
    let named = names.into_iter().enumerate().filter(|(_, name)| !name.is_empty());
    named
        .filter_map(|(bit, name)| Some((name, feature(words, bit)?)))
        .collect()
}

/// Returns the state of an offload. Each block of 32 has four words: available, requested, active, never changed.
fn feature(words: &[u32], bit: usize) -> Option<Feature> {
    let block = words.get(bit / 32 * 4..)?.first_chunk::<4>()?;
    let [available, _, active, never_changed] = block.map(|word| word >> (bit % 32) & 1 == 1);
    Some(Feature {
        on: active,
        fixed: !available || never_changed,
    })
}

/// Returns the offloads that matter to a receiver.
pub(crate) fn offloads(features: &[(String, Feature)]) -> Offloads {
    Offloads {
        lro: named(features, "rx-lro"),
        gro: named(features, "rx-gro"),
        gro_hw: named(features, "rx-gro-hw"),
        gro_list: named(features, "rx-gro-list"),
        udp_gro_forwarding: named(features, "rx-udp-gro-forwarding"),
        rx_vlan: named(features, "rx-vlan-hw-parse"),
        ntuple: named(features, "rx-ntuple-filter"),
    }
}

fn named(features: &[(String, Feature)], name: &str) -> Option<Feature> {
    let found = features.iter().find(|(known, _)| known == name);
    found.map(|(_, feature)| *feature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_and_its_bus() {
        let info = |name: &str, bus: &str| {
            let mut bytes = vec![0; 196];
            bytes[4..4 + name.len()].copy_from_slice(name.as_bytes());
            bytes[100..100 + bus.len()].copy_from_slice(bus.as_bytes());
            driver(&bytes)
        };
        let expected = ("ixgbe".to_owned(), Some("0000:01:00.0".to_owned()));
        assert_eq!(info("ixgbe", "0000:01:00.0"), Some(expected));
        assert_eq!(info("veth", ""), Some(("veth".to_owned(), None)));
        assert_eq!(info("bonding", "N/A"), Some(("bonding".to_owned(), None)));
        assert_eq!(info("", ""), None);
        assert_eq!(driver(&[1; 20]), None);
    }

    #[test]
    fn rings_and_queues_now_and_at_most() {
        assert_eq!(
            rx_ring([0x10, 4096, 0, 0, 4096, 512, 0, 0, 256]),
            Some(Level { now: 512, max: 4096 })
        );
        assert_eq!(rx_ring([0x10, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        let expected = Queues {
            rx: Level { now: 1, max: 2 },
            tx: Level { now: 3, max: 4 },
            combined: Level { now: 5, max: 63 },
        };
        assert_eq!(queues([0x3c, 2, 4, 1, 63, 1, 3, 1, 5]), expected);
        let rxs = [([2, 0], 2), ([0, 5], 5), ([1, 4], 5)];
        for ([rx, combined], all) in rxs {
            let level = |now| Level { now, max: 8 };
            let queues = Queues {
                rx: level(rx),
                tx: level(0),
                combined: level(combined),
            };
            assert_eq!(queues.receiving(), all);
        }
    }

    #[test]
    fn offloads_by_their_bit_in_any_block() {
        let mut names = vec![String::new(); 40];
        for (bit, name) in [
            (1, "rx-gro"),
            (15, "rx-lro"),
            (33, "rx-gro-hw"),
            (34, "rx-vlan-hw-parse"),
        ] {
            names[bit] = name.to_owned();
        }
        // Available, requested, active, never changed; twice.
        let words = [1 << 1, 0, 1 << 1 | 1 << 15, 0, 0b110, 0, 0b010, 0b100];
        let expected = Offloads {
            gro: Some(Feature {
                on: true,
                fixed: false,
            }),
            lro: Some(Feature {
                on: true,
                fixed: true,
            }),
            gro_hw: Some(Feature {
                on: true,
                fixed: false,
            }),
            rx_vlan: Some(Feature {
                on: false,
                fixed: true,
            }),
            ..Offloads::default()
        };
        assert_eq!(offloads(&features(names.clone(), &words)), expected);
        // Blocks that the kernel does not have are unknown.
        let first = Offloads {
            gro_hw: None,
            rx_vlan: None,
            ..expected
        };
        assert_eq!(offloads(&features(names, &words[..4])), first);
    }
}
