//! Replays frames with wrong times, or of interfaces whose clocks differ.

use std::path::PathBuf;

use nic::capture::LinkType;
use terminal::progress::Progress;

use super::*;
use crate::capture::Merged;

/// Time of the first frame, ns.
const START: u64 = 1_700_000_000 * SECOND;
const HOUR: u64 = 3_600 * SECOND;
/// Time by which the clock of interface 1 is ahead, ns.
const AHEAD: u64 = 37 * SECOND;
/// Number of frames in a file.
const FRAMES: u64 = 40;
const PORT: u16 = 5_000;

/// The times of the ticks, ns.
#[derive(Default)]
struct Ticks(Vec<u64>);

impl Output for Ticks {}

impl ReplayOutput for Ticks {
    fn ticked(&mut self, _: &Collector, now: u64) {
        self.0.push(now);
    }
}

fn new_replay() -> Replay<Ticks> {
    let options = Options {
        speed: Speed::Max,
        ports: vec![PORT],
        aggregate_ports: AggregatePorts([].into()),
    };
    Replay::new(collector::Config::default(), Ticks::default(), options)
}

/// A frame with an empty datagram.
fn datagram(dst_port: u16) -> Vec<u8> {
    let [high, low] = dst_port.to_be_bytes();
    let mut frame = vec![0; 12];
    frame.extend([8, 0]);
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x10, 0, high, low, 0, 8, 0, 0]);
    frame
}

/// Replays frames of one interface at the given times, ns.
fn replay_times(times: &[u64]) -> Replayed<Ticks> {
    let data = datagram(PORT);
    let frames = times.iter().map(|ts| Frame {
        ts: *ts,
        data: &data,
        link: LinkType::Ethernet,
        length: data.len() as u32,
        truncated: false,
        interface: 0,
    });
    let mut replay = new_replay();
    replay.begin(Path::new("none"));
    let mut account = Account::default();
    replay.add(frames, &mut account);
    assert_eq!(account.datagrams, times.len() as u64);
    replay.finish()
}

#[test]
fn a_frame_without_a_time_does_not_confirm_the_time_before_it() {
    let replayed = replay_times(&[
        START,
        START + SECOND,
        START + HOUR,
        0,
        START + 2 * SECOND,
        START + 3 * SECOND,
    ]);
    let expected = IgnoredTimes {
        ahead: 1,
        behind: 0,
        absent: 1,
    };
    assert_eq!(replayed.ignored_times, expected);
    assert_eq!(replayed.output.0.iter().max(), Some(&(START + 3 * SECOND)));
    assert!(replayed.output.0.is_sorted());
}

#[test]
fn after_a_pause_and_a_frame_without_a_time_the_next_time_is_used() {
    let replayed = replay_times(&[START, START + HOUR, 0, START + HOUR + SECOND]);
    let expected = IgnoredTimes {
        ahead: 1,
        behind: 0,
        absent: 1,
    };
    assert_eq!(replayed.ignored_times, expected);
    assert_eq!(replayed.output.0.last(), Some(&(START + HOUR + SECOND)));
    assert!(!replayed.has_unconfirmed_end);
}

/// A pcapng file in the making.
#[derive(Default)]
struct Pcapng(Vec<u8>);

impl Pcapng {
    fn section() -> Self {
        let mut file = Self::default();
        file.block(0x0a0d_0d0a, &[0x1a2b_3c4d, 1, u32::MAX, u32::MAX], &[]);
        file
    }

    fn block(&mut self, kind: u32, words: &[u32], data: &[u8]) {
        let body = 4 * words.len() + data.len().next_multiple_of(4);
        let length = 12 + body as u32;
        let end = self.0.len() + 8 + body;
        self.0.extend([kind, length].map(u32::to_le_bytes).concat());
        self.0.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.0.extend(data);
        self.0.resize(end, 0);
        self.0.extend(length.to_le_bytes());
    }

    /// Describes an Ethernet interface whose timestamps are ns.
    fn interface(&mut self) {
        self.block(1, &[1, 0, 0x0001_0009, 9, 0], &[]);
    }

    fn frame(&mut self, interface: u32, ts: u64, frame: &[u8]) {
        let length = frame.len() as u32;
        let words = [interface, (ts >> 32) as u32, ts as u32, length, length];
        self.block(6, &words, frame);
    }
}

/// Results of several files.
struct Ring {
    replayed: Replayed<Ticks>,
    merged: Merged,
}

fn replay_ring(name: &str, files: &[Pcapng]) -> Ring {
    let dir = std::env::temp_dir().join(format!("hopwise-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let paths: Vec<PathBuf> = (0..files.len())
        .map(|index| dir.join(format!("{index}.pcapng")))
        .collect();
    for (path, file) in paths.iter().zip(files) {
        std::fs::write(path, &file.0).unwrap();
    }
    let mut replay = new_replay();
    let offsets = ClockOffsets::measure_each(&paths);
    for (path, offsets) in paths.iter().zip(&offsets) {
        replay.begin_with_offsets(path, offsets.clone());
    }
    let mut account = Account::default();
    let mut progress = Progress::new("", "frames", None).silenced(true);
    let merged = capture::merged(
        &paths,
        &offsets,
        &mut account,
        &mut progress,
        |file, account, run| {
            replay.resume(file);
            replay.add(run.frames(), account);
        },
    );
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(account.frames, files.len() as u64 * FRAMES);
    Ring {
        replayed: replay.finish(),
        merged,
    }
}

/// Asserts that times are those of interface 0, and that each of two files names the other clock.
fn assert_one_clock(ring: &Ring) {
    let Ring { replayed, merged } = ring;
    assert!(merged.errors.is_empty());
    assert!(merged.overlapping.is_empty(), "{:?}", merged.overlapping);
    let differences = &replayed.differences;
    assert_eq!(differences.len(), 2, "{differences:?}");
    for difference in differences {
        assert_eq!(difference.interfaces, [0, 1]);
        assert!(difference.ahead.abs_diff(AHEAD as i64) < SECOND, "{difference:?}");
    }
    assert_eq!(replayed.ignored_times, IgnoredTimes::default());
    let last = START + 2 * FRAMES * SECOND / 10;
    assert!(replayed.output.0.iter().all(|ts| *ts < last + SECOND));
}

/// Frames of a file of a ring, ten a second, from interfaces 0 and 1 in turn. Interface 0 has datagrams to `first_port`, and
/// interface 1 is described before frame `described`.
fn file_of_ring(index: u64, first_port: u16, described: u64) -> Pcapng {
    let mut file = Pcapng::section();
    file.interface();
    for frame in 0..FRAMES {
        if frame == described {
            file.interface();
        }
        let ts = START + (index * FRAMES + frame) * SECOND / 10;
        if frame > described && frame % 2 == 1 {
            file.frame(1, ts + AHEAD, &datagram(PORT));
        } else {
            file.frame(0, ts, &datagram(first_port));
        }
    }
    file
}

#[test]
fn a_reference_without_telemetry_is_named() {
    let files = [0, 1].map(|index| file_of_ring(index, PORT + 1, 0));
    assert_one_clock(&replay_ring("reference", &files));
}

#[test]
fn clocks_of_interfaces_that_a_file_describes_late_are_compared() {
    let files = [0, 1].map(|index| file_of_ring(index, PORT, FRAMES / 2));
    assert_one_clock(&replay_ring("late", &files));
}

#[test]
fn at_full_speed_nothing_waits_and_at_tenfold_a_tenth() {
    let mut pace = Pace {
        speed: Speed::Max,
        begin: None,
    };
    assert!(!pace.is_early(0) && !pace.is_early(u64::MAX));
    let mut pace = Pace {
        speed: Speed::Times(10.0),
        begin: None,
    };
    assert!(!pace.is_early(5_000_000_000));
    let due = pace.time_until(605_000_000_000);
    assert!(
        due > Some(Duration::from_secs(50)) && due <= Some(Duration::from_secs(60)),
        "{due:?}"
    );
}
