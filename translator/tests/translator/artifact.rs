//! The artifact's packets, and the memory that 5.2 describes, byte for byte.

use translator::{Accept, Config, Reason, StoreEntry};
use wire::dta::hash::Family;
use wire::dta::layout::{Geometry, Ring};

use crate::model::{MS, World, config, sender};
use crate::primitives::hex;

/// The artifact's stores: all with ID 0, and list 3.
fn stores() -> Vec<StoreEntry> {
    let (slots, family) = (1 << 16, Family::Artifact);
    let ring = Ring {
        entry_len: 4,
        entries: 16,
        batch: 4,
        tagged: false,
    };
    let lists = Geometry::Append {
        lists: 4,
        first_list: 0,
        ring,
    };
    vec![
        StoreEntry::new(
            0,
            0,
            Geometry::KeyWrite {
                slots,
                data_len: 4,
                family,
            },
        ),
        StoreEntry {
            swapped: true,
            ..StoreEntry::new(1, 0, lists)
        },
        StoreEntry::new(2, 0, Geometry::KeyIncrement { slots, family }),
        StoreEntry::new(
            3,
            0,
            Geometry::Postcarding {
                slots,
                hops: 5,
                family,
            },
        ),
    ]
}

fn world() -> World {
    World::of(Config {
        accept: Accept::Artifact,
        ..config(stores())
    })
}

/// CRC-32 with a polynomial in normal form, a bit at a time; 5.2 and 5.6.
fn crc(polynomial: u32, bytes: &[u8]) -> u32 {
    let polynomial = polynomial.reverse_bits();
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ polynomial
            } else {
                crc >> 1
            }
        })
    })
}

const IEEE: u32 = 0x04c1_1db7;

#[test]
fn a_key_write_in_both_forms() {
    for packet in ["0100020a 00000100 00029a", "012a4002 0a000001 0000029a"] {
        let mut world = world();
        world.send_bytes(sender(1), 0, &hex(packet));
        let slot = hex("67512d79 0000029a");
        let offsets: Vec<u64> = world.memory.log.iter().map(|done| done.offset).collect();
        assert_eq!(offsets, [13863 * 8, 1713 * 8]);
        let body = world.memory.body(0);
        assert_eq!(
            (&body[13863 * 8..][..8], &body[1713 * 8..][..8]),
            (&slot[..], &slot[..])
        );
        assert_eq!(
            body.iter().filter(|byte| **byte != 0).count(),
            12,
            "nothing else is written"
        );
    }
}

#[test]
fn key_writes_of_any_key_against_the_definition() {
    let mut world = world();
    let mut expected = vec![0; 8 << 16];
    for n in 0..500u32 {
        let key = n.wrapping_mul(0x9e37_79b9).to_be_bytes();
        let copies = 1 + (n % 4) as u8;
        let report = [&[1, 0, copies][..], &key, &n.to_be_bytes()].concat();
        world.send_bytes(sender(1), 0, &report);
        let reversed: Vec<u8> = key.iter().rev().copied().collect();
        for copy in 0..copies {
            let slot = crc(IEEE, &[&reversed[..], &[copy]].concat()) as usize & 0xffff;
            let data = [crc(IEEE, &reversed).to_le_bytes(), n.to_be_bytes()].concat();
            expected[slot * 8..][..8].copy_from_slice(&data);
        }
    }
    assert!(world.memory.body(0) == expected);
}

#[test]
fn entries_are_little_endian_in_a_bare_ring() {
    let mut world = world();
    // List 3 in the plain form, then more of it; batches of four.
    world.send_bytes(sender(1), 0, &hex("0200 00000003 deadbeef"));
    for n in 1..20u32 {
        world.send_bytes(
            sender(1),
            0,
            &[&hex("0200 00000003")[..], &n.to_be_bytes()].concat(),
        );
        assert_eq!(world.memory.log.len(), (n as usize + 1) / 4);
    }
    let body = world.memory.body(1);
    let words: Vec<u32> = body[3 * 64..]
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect();
    // One pass over the ring: no slot was written twice in a row, no batch was lost.
    assert_eq!(words, [16, 17, 18, 19, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert!(body[..3 * 64].iter().all(|byte| *byte == 0));
}

#[test]
fn the_byte_order_of_entries_follows_the_layout_of_the_report() {
    // The lists are not configured as the artifact's.
    let mut stores = stores();
    stores[1].swapped = false;
    let mut world = World::of(Config {
        accept: Accept::Both,
        ..config(stores)
    });
    world.send_bytes(sender(1), 0, &hex("0200 00000003 deadbeef"));
    world.send_bytes(sender(1), 0, &hex("12100000 00000007 00000003 00040100 deadbeef"));
    // The report waits for credit in local memory, and is parsed again.
    world.memory.room[0] = rdma::transport::Credit::NONE;
    world.send_bytes(sender(1), 0, &hex("0201 40 00000003 cafef00d"));
    world.send_bytes(sender(1), 0, &hex("0202 40 00000003 cafef00d"));
    world.memory.room[0] = rdma::transport::Credit::UNLIMITED;
    world.pass(2 * MS);
    assert_eq!(
        world.memory.body(1)[3 * 64..][..16],
        hex("efbeadde deadbeef 0df0feca 0df0feca")
    );
}

#[test]
fn entries_in_tagged_blocks_are_as_in_the_report() {
    let mut stores = stores();
    let ring = Ring {
        entry_len: 4,
        entries: 16,
        batch: 1,
        tagged: true,
    };
    let lists = Geometry::Append {
        lists: 4,
        first_list: 0,
        ring,
    };
    stores[1] = StoreEntry::new(1, 0, lists);
    let mut world = World::of(Config {
        accept: Accept::Artifact,
        ..config(stores)
    });
    world.send_bytes(sender(1), 0, &hex("0200 00000000 deadbeef"));
    assert_eq!(world.memory.body(1)[..4], hex("deadbeef"));
}

#[test]
fn counters_are_added_to_in_the_same_slots() {
    let mut world = world();
    for _ in 0..3 {
        world.send_bytes(sender(1), 0, &hex("0300020a 00000100 00000000 000005"));
    }
    let body = world.memory.body(2);
    for slot in [13863, 1713] {
        assert_eq!(body[slot * 8..][..8], 15u64.to_le_bytes());
    }
    assert_eq!(body.iter().filter(|byte| **byte != 0).count(), 2);
}

#[test]
fn postcards_are_masked_words() {
    let polynomials = [0x1e12_a700, 0x65b9_6595, 0x49cf_878b, 0x3651_8f0d, 0x7a40_a908];
    let key = [10, 0, 0, 1];
    let mut world = world();
    for (hop, value) in [(2u8, 200u32), (1, 100), (5, 500), (3, 300)] {
        world.send_bytes(
            sender(1),
            0,
            &[&[4, 0][..], &key, &[hop], &value.to_be_bytes()].concat(),
        );
    }
    assert_eq!(world.memory.done(), []);
    world.send_bytes(
        sender(1),
        0,
        &[&[4, 0][..], &key, &[4], &400u32.to_be_bytes()].concat(),
    );
    let at = (crc(IEEE, &key) & 0xffff) as usize * 32;
    let words: Vec<u8> = (0..5)
        .flat_map(|hop| (((hop as u32 + 1) * 100) ^ crc(polynomials[hop], &key)).to_be_bytes())
        .collect();
    let done = world.memory.done();
    assert_eq!(
        (done.len(), done[0].offset, &done[0].data),
        (1, at as u64, &words)
    );
    // Early: a missing hop is 0.
    world.send_bytes(sender(1), 0, &hex("0400 0a000002 02 000000c8"));
    world.pass(10 * MS);
    let key = [10, 0, 0, 2];
    let masked = 200u32 ^ crc(polynomials[1], &key);
    let done = world.memory.done();
    assert_eq!(
        done[0].data,
        [[0; 4], masked.to_be_bytes(), [0; 4], [0; 4], [0; 4]].concat()
    );
}

#[test]
fn sequences_of_eight_bits_and_the_artifacts_nack() {
    let mut world = world();
    let report = |sequence: u8| [&[1, sequence, 0x40][..], &hex("02 0a000001 0000029a")].concat();
    for sequence in [0xfe, 0xff, 0, 1, 3] {
        world.send_bytes(sender(1), 0, &report(sequence));
    }
    assert_eq!(world.mail.0, [(sender(1), 0, vec![1, 0x80])]);
    for sequence in [1, 2, 3, 0x83] {
        world.send_bytes(sender(1), 0, &report(sequence));
    }
    // The sender's address identifies the reporter: another address has its own sequence.
    world.send_bytes(sender(2), 0, &report(77));
    let stats = world.stats();
    assert_eq!((stats.sequences.accepted, stats.sequences.reporters), (7, 2));
    assert_eq!(
        (world.dropped(Reason::Gap), world.dropped(Reason::Duplicate)),
        (1, 2)
    );
}

#[test]
fn layouts_that_are_not_accepted_are_refused() {
    let artifact = hex("0100020a 00000100 00029a");
    let v1 = hex("12900000 00000007 00000003 00040100 a0a1a2a3");
    for (accept, done, not_accepted) in [(Accept::V1, 1, 1), (Accept::Both, 2, 0), (Accept::Artifact, 1, 0)] {
        let mut world = World::of(Config {
            accept,
            ..config(stores())
        });
        world.send_bytes(sender(1), 0, &artifact);
        world.send_bytes(sender(1), 0, &v1);
        assert_eq!(
            (world.done(), world.dropped(Reason::NotAccepted)),
            (done, not_accepted),
            "{accept:?}"
        );
        assert_eq!(
            world.stats().reports.unreadable.iter().sum::<u64>(),
            2 - done - not_accepted
        );
    }
}

#[test]
fn immediates_are_delivered_in_both_forms() {
    for packet in ["0180020a 00000100 00029a", "01008002 0a000001 0000029a"] {
        let mut world = world();
        world.send_bytes(sender(1), 0, &hex(packet));
        let immediates: Vec<Option<u32>> = world.memory.done().iter().map(|done| done.immediate).collect();
        assert_eq!(immediates, [None, Some(0x1000_0000)]);
    }
}
