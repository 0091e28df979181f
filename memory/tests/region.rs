//! Regions: nothing outside is touched, and the bytes written are read back, by this process and by others.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memory::{Access, OutOfRange, Pages, Region};

/// A path that no other test uses; removed with the guard.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("hopwise-region-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn every_length_at_every_offset_comes_back_and_touches_nothing_else() {
    let region = Region::anonymous(4096, false).unwrap();
    let bytes: Vec<u8> = (1..=80).collect();
    for at in 0..17_u64 {
        for len in 0..=bytes.len() {
            region.zero(0..256).unwrap();
            region.write(at, &bytes[..len]).unwrap();
            let mut all = [0xa5; 256];
            region.read(0, &mut all).unwrap();
            let end = at as usize + len;
            assert_eq!(all[at as usize..end], bytes[..len], "{at} {len}");
            assert!(
                all[..at as usize]
                    .iter()
                    .chain(&all[end..])
                    .all(|byte| *byte == 0),
                "{at} {len}"
            );
            assert!(region.is(at, &bytes[..len]));
            if len > 0 {
                let mut other = bytes[..len].to_vec();
                other[len - 1] ^= 1;
                assert!(!region.is(at, &other), "{at} {len}");
            }
        }
    }
}

#[test]
fn head_last_writes_what_write_writes() {
    let region = Region::anonymous(4096, false).unwrap();
    let bytes: Vec<u8> = (1..=80).collect();
    for len in 0..=bytes.len() {
        region.zero(0..256).unwrap();
        region.write_head_last(64, &bytes[..len]).unwrap();
        let mut all = [0xa5; 256];
        region.read(0, &mut all).unwrap();
        assert_eq!(all[64..64 + len], bytes[..len], "{len}");
        assert!(
            all[..64].iter().chain(&all[64 + len..]).all(|byte| *byte == 0),
            "{len}"
        );
    }
    assert_eq!(
        region.write_head_last(60, &bytes),
        Err(OutOfRange),
        "not a multiple of 8"
    );
    assert_eq!(region.write_head_last(4096 - 72, &bytes), Err(OutOfRange));
}

#[test]
fn writes_of_five_to_seven_bytes_are_atomic() {
    /// Changes to be observed, and the maximum of loads: the writer may have to wait to be scheduled.
    const CHANGES: u32 = 20_000;
    const LOOKS: u32 = 100_000_000;
    for len in 5..8 {
        let region = Arc::new(Region::anonymous(4096, false).unwrap());
        // The bytes after them must not change.
        region.write(64, &[0xee; 8]).unwrap();
        region.write_head_last(64, &[0; 7][..len]).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut value = 0_u8;
                while !stop.load(Ordering::Relaxed) {
                    value = value.wrapping_add(1);
                    region.write_head_last(64, &[value; 7][..len]).unwrap();
                }
            });
            let mut changes = 0;
            let mut before = 0;
            for _ in 0..LOOKS {
                let seen = region.load_u64(64).unwrap().to_ne_bytes();
                changes += u32::from(seen[0] != before);
                before = seen[0];
                if changes == CHANGES {
                    break;
                }
                if seen[..len].iter().any(|byte| *byte != seen[0]) || seen[len..] != [0xee; 8][len..] {
                    stop.store(true, Ordering::Relaxed);
                    panic!("{len}: {seen:x?}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_first_piece_leaves_its_head_out() {
    let region = Region::anonymous(4096, false).unwrap();
    region.write(0, &[0x11; 64]).unwrap();
    region.write_headless(8, &[0x22; 16]).unwrap();
    let mut all = [0; 40];
    region.read(0, &mut all).unwrap();
    assert_eq!(
        all,
        *[[0x11; 8], [0; 8], [0x22; 8], [0x22; 8], [0x11; 8]].as_flattened()
    );
    assert_eq!(
        region.write_headless(12, &[0]),
        Err(OutOfRange),
        "not a multiple of 8"
    );
    assert_eq!(region.write_headless(4088, &[0]), Err(OutOfRange));
    assert_eq!(region.write_headless(u64::MAX - 7, &[]), Err(OutOfRange));
}

#[test]
fn a_copy_with_its_crc_is_the_copy_and_the_crc() {
    let region = Region::anonymous(4096, false).unwrap();
    let bytes: Vec<u8> = (0..100).map(|i: u32| (i * 73 + 5) as u8).collect();
    region.write(3, &bytes).unwrap();
    for len in 0..=bytes.len() {
        for covered in [0, 1, 7, 8, len / 2, len, len + 9] {
            let mut out = [0xa5; 101];
            let crc = region.read_with_crc_32c(3, &mut out[..len], covered).unwrap();
            assert_eq!((&out[..len], out[len]), (&bytes[..len], 0xa5), "{len} {covered}");
            let expected = memory::crc_32c_update(u32::MAX, &bytes[..covered.min(len)]).map(|state| !state);
            assert_eq!(crc, expected, "{len} {covered}");
        }
    }
    assert_eq!(region.read_with_crc_32c(4090, &mut [0; 7], 7), Err(OutOfRange));
}

#[test]
fn the_last_byte_is_inside_and_the_next_is_not() {
    let region = Region::anonymous(4096, false).unwrap();
    assert_eq!(region.len(), 4096);
    assert_eq!(region.write(4095, &[7]), Ok(()));
    assert_eq!(region.write(4096, &[7]), Err(OutOfRange));
    assert_eq!(region.write(4095, &[7, 7]), Err(OutOfRange));
    assert_eq!(
        region.write(u64::MAX, &[7, 7]),
        Err(OutOfRange),
        "an offset that overflows"
    );
    assert_eq!(region.write(4096, &[]), Ok(()), "nothing, at the end");
    assert_eq!(region.read(4090, &mut [0; 7]), Err(OutOfRange));
    assert_eq!(region.fetch_add(4088, 1), Ok(7 << 56));
    assert_eq!(region.fetch_add(4096, 1), Err(OutOfRange));
    assert_eq!(region.fetch_add(4084, 1), Err(OutOfRange), "not a multiple of 8");
    assert_eq!(region.load_u32(4094), Err(OutOfRange), "not a multiple of 4");
    assert_eq!(region.load_u64(u64::MAX - 7), Err(OutOfRange));
    assert_eq!(region.zero(4000..4097), Err(OutOfRange));
    assert_eq!(region.zero(std::ops::Range { start: 8, end: 4 }), Err(OutOfRange));
    assert!(!region.is(4096, &[7]));
    for at in [0, 4095, 4096, u64::MAX] {
        region.prefetch(at);
        region.prefetch_write(at);
    }
}

#[test]
fn numbers_are_native_and_add_modulo_two_to_the_64() {
    let region = Region::anonymous(4096, false).unwrap();
    region.store_u64(8, u64::MAX).unwrap();
    assert_eq!(region.fetch_add(8, 6), Ok(u64::MAX));
    assert_eq!(region.load_u64(8), Ok(5));
    region.store_u32(20, 0x0102_0304).unwrap();
    assert_eq!(region.load_u32(20), Ok(0x0102_0304));
    let mut bytes = [0; 4];
    region.read(20, &mut bytes).unwrap();
    assert_eq!(bytes, 0x0102_0304_u32.to_ne_bytes());
}

#[test]
fn a_file_is_shared_and_stays() {
    let scratch = Scratch::new("file");
    let region = Region::create_file(&scratch.0, 5000).unwrap();
    assert_eq!(region.len(), 8192, "whole pages");
    region.write(4999, b"here").unwrap();
    let other = Region::open_read_only(&scratch.0).unwrap();
    assert!(other.is(4999, b"here"));
    region.fetch_add(4096, 3).unwrap();
    assert_eq!(other.load_u64(4096), Ok(3), "what one writes the other sees");
    assert_eq!(
        Region::create_file(&scratch.0, 1).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    region.sync().unwrap();
    drop((region, other));
    let again = Region::open_file(&scratch.0).unwrap();
    assert!(again.is(4999, b"here"), "a restart keeps it");
    assert_eq!(again.write(0, b"x"), Ok(()));
}

#[test]
fn a_read_only_region_refuses_every_write() {
    let scratch = Scratch::new("read-only");
    drop(Region::create_file(&scratch.0, 4096).unwrap());
    let region = Region::open_read_only(&scratch.0).unwrap();
    assert!(!region.is_writable());
    assert_eq!(region.write(0, b"x"), Err(OutOfRange));
    assert_eq!(region.write_head_last(0, b"0123456789"), Err(OutOfRange));
    assert_eq!(region.fetch_add(0, 1), Err(OutOfRange));
    assert_eq!(region.store_u32(0, 1), Err(OutOfRange));
    assert_eq!(region.store_u64(0, 1), Err(OutOfRange));
    assert_eq!(region.zero(0..8), Err(OutOfRange));
    assert_eq!(region.load_u64(0), Ok(0));
    region.prefetch_write(0);
    region.populate().unwrap();
}

#[test]
fn invalid_regions_are_refused() {
    let scratch = Scratch::new("bad");
    assert_eq!(
        Region::anonymous(0, false).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        Region::anonymous(u64::MAX, true).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        Region::open_file(&scratch.0).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        Region::create_file(&scratch.0, 0).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert!(!scratch.0.exists());
    Region::create_file(&scratch.0, 1 << 55).unwrap_err();
    assert!(!scratch.0.exists(), "no space: nothing is left behind");
    std::fs::write(&scratch.0, b"").unwrap();
    assert_eq!(
        Region::open_read_only(&scratch.0).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn a_descriptor_can_be_mapped_and_closed() {
    let scratch = Scratch::new("fd");
    std::fs::write(&scratch.0, [1; 8192]).unwrap();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&scratch.0)
        .unwrap();
    let region = Region::from_fd(file.as_fd(), 4096, 4096, Access::ReadWrite).unwrap();
    drop(file);
    region.write(0, &[2]).unwrap();
    drop(region);
    let bytes = std::fs::read(&scratch.0).unwrap();
    assert_eq!((bytes[4095], bytes[4096], bytes[4097]), (1, 2, 1));
}

#[test]
fn large_pages_are_requested_and_reported() {
    let region = Region::anonymous(8 << 20, true).unwrap();
    region.populate().unwrap();
    region.write((8 << 20) - 1, &[9]).unwrap();
    assert!(region.is((8 << 20) - 1, &[9]));
    match region.pages() {
        Pages::Huge2M => assert_eq!(region.huge_bytes().unwrap(), region.len()),
        // The kernel need not have any free.
        Pages::Transparent => assert!(region.huge_bytes().unwrap() <= region.len()),
        Pages::Small => assert_eq!(region.huge_bytes().unwrap(), 0),
    }
    let small = Region::anonymous(8 << 20, false).unwrap();
    assert_eq!(small.pages(), Pages::Small);
}

/// Each record begins with its number and is filled with it: a reader that finds the same head before and after must find
/// only that number in between.
#[test]
fn a_reader_of_head_last_records_never_takes_a_mixture_for_one() {
    let region = Arc::new(Region::anonymous(4096, false).unwrap());
    let done = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let region = Arc::clone(&region);
        let done = Arc::clone(&done);
        move || {
            for number in 1..100_000_u64 {
                let record = [number; 128].map(u64::to_ne_bytes);
                region.write_head_last(128, record.as_flattened()).unwrap();
            }
            done.store(true, Ordering::Release);
        }
    });
    let mut whole = 0_u64;
    while !done.load(Ordering::Acquire) || whole == 0 {
        let head = region.load_u64(128).unwrap();
        let mut rest = [0; 127 * 8];
        region.read(136, &mut rest).unwrap();
        std::sync::atomic::fence(Ordering::Acquire);
        if head == 0 || region.load_u64(128) != Ok(head) {
            continue;
        }
        whole += 1;
        assert!(
            rest.chunks(8).all(|word| word == head.to_ne_bytes()),
            "{head}: {rest:?}"
        );
    }
    writer.join().unwrap();
}
