//! Replays frames with wrong times, or of interfaces whose clocks differ.

use std::path::PathBuf;

use nic::capture::LinkType;
use terminal::progress::Progress;

use super::*;
use crate::capture::{Merged, RingClocks, UnknownClock};

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
    let replayed = replay_times(&[START, START + SECOND, START + HOUR, 0, START + HOUR + SECOND]);
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

    /// Describes an Ethernet interface with a name of four bytes whose timestamps are ns.
    fn named_interface(&mut self, name: &[u8; 4]) {
        let name = u32::from_le_bytes(*name);
        self.block(1, &[1, 0, 0x0004_0002, name, 0x0001_0009, 9, 0], &[]);
    }

    /// Adds a frame, in a simple packet block if it has no time.
    fn frame(&mut self, interface: u32, ts: u64, frame: &[u8]) {
        if ts == 0 {
            return self.block(3, &[frame.len() as u32], frame);
        }
        let length = frame.len() as u32;
        let words = [interface, (ts >> 32) as u32, ts as u32, length, length];
        self.block(6, &words, frame);
    }
}

/// Results of several files.
struct Ring {
    replayed: Replayed<Ticks>,
    merged: Merged,
    unknown: Vec<UnknownClock>,
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
    let mut progress = Progress::new("", "frames", None).silenced(true);
    let RingClocks { offsets, unknown } = RingClocks::measure(&paths, &mut progress);
    for (path, offsets) in paths.iter().zip(&offsets) {
        replay.begin_with_offsets(path, offsets.clone());
    }
    let mut account = Account::default();
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
        unknown,
    }
}

/// Asserts that times are those of interface 0, and that each of two files names the other clock.
fn assert_one_clock(ring: &Ring) {
    let Ring {
        replayed,
        merged,
        unknown,
    } = ring;
    assert_eq!(*unknown, []);
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

/// A file of a ring with two interfaces, whose frames are given by interface and time of interface 0, ns since [`START`].
fn file_of_frames(frames: impl IntoIterator<Item = (u32, u64)>) -> Pcapng {
    let mut file = Pcapng::section();
    file.interface();
    file.interface();
    for (interface, at) in frames {
        let ahead = u64::from(interface) * AHEAD;
        file.frame(interface, START + at + ahead, &datagram(PORT));
    }
    file
}

/// The frames of a file of a ring, ten a second; `interface` says from which interface each is.
fn frames_of_file(index: u64, interface: impl Fn(u64) -> u32) -> impl Iterator<Item = (u32, u64)> {
    (0..FRAMES).map(move |frame| (interface(frame), (index * FRAMES + frame) * SECOND / 10))
}

#[test]
fn a_file_that_does_not_show_an_offset_gets_that_of_the_ring() {
    let by_turns = |frame: u64| (frame % 2) as u32;
    let only = |_: u64| 1;
    let one_after_the_other = |frame: u64| u32::from(frame >= FRAMES / 2);
    let first = || file_of_frames(frames_of_file(0, by_turns));
    let files = [first(), file_of_frames(frames_of_file(1, only))];
    assert_one_clock(&replay_ring("only", &files));
    let files = [first(), file_of_frames(frames_of_file(1, one_after_the_other))];
    assert_one_clock(&replay_ring("one-after-the-other", &files));
    // The file that shows it is the later one.
    let files = [
        file_of_frames(frames_of_file(0, only)),
        file_of_frames(frames_of_file(1, by_turns)),
    ];
    assert_one_clock(&replay_ring("later", &files));
}

#[test]
fn clocks_that_no_file_compares_are_unknown_and_keep_their_times() {
    let files = [0, 1].map(|index| file_of_frames(frames_of_file(index, |_| index as u32)));
    let Ring {
        replayed,
        merged,
        unknown,
    } = replay_ring("unknown", &files);
    let unknown: Vec<_> = unknown
        .iter()
        .map(|clock| (clock.file.file_name().unwrap().to_str(), clock.interface))
        .collect();
    assert_eq!(unknown, [(Some("1.pcapng"), 1)]);
    assert!(replayed.differences.is_empty() && merged.overlapping.is_empty());
    let last = START + (2 * FRAMES - 1) * SECOND / 10 + AHEAD;
    assert_eq!(replayed.output.0.last(), Some(&last));
}

#[test]
fn one_wrong_time_does_not_hide_the_difference_of_two_clocks() {
    for wrong in [0, 1, 2, 3, 20, 21, FRAMES - 2, FRAMES - 1] {
        for time in [START - HOUR, START + HOUR, 0] {
            let files = [0, 1].map(|index| {
                let mut file = Pcapng::section();
                file.interface();
                file.interface();
                for (frame, (interface, at)) in (0..).zip(frames_of_file(index, |frame| (frame % 2) as u32)) {
                    let right = START + at + u64::from(interface) * AHEAD;
                    let is_wrong = index == 1 && frame == wrong;
                    file.frame(interface, if is_wrong { time } else { right }, &datagram(PORT));
                }
                file
            });
            let mut ring = replay_ring("wrong", &files);
            let ignored = std::mem::take(&mut ring.replayed.ignored_times);
            assert_eq!(
                ignored.ahead + ignored.behind + ignored.absent,
                1,
                "{wrong} {time}: {ignored:?}"
            );
            assert_one_clock(&ring);
        }
    }
}

/// The first or the last time of either file of a ring is wrong, or there is none.
#[test]
fn one_wrong_time_at_an_edge_of_a_file_moves_nothing() {
    for (of_file, at_frame) in [(0, 0), (0, FRAMES - 1), (1, 0), (1, FRAMES - 1)] {
        for time in [
            START - HOUR,
            START - 60 * SECOND,
            START + 60 * SECOND,
            START + HOUR,
            0,
        ] {
            let files = [0, 1].map(|index| {
                let mut file = Pcapng::section();
                file.interface();
                for (frame, (_, at)) in (0..).zip(frames_of_file(index, |_| 0)) {
                    let is_wrong = (index, frame) == (of_file, at_frame);
                    file.frame(0, if is_wrong { time } else { START + at }, &datagram(PORT));
                }
                file
            });
            let Ring { replayed, merged, .. } = replay_ring("edge", &files);
            let name = format!("file {of_file} frame {at_frame} {time}");
            assert!(merged.overlapping.is_empty(), "{name}: {:?}", merged.overlapping);
            let IgnoredTimes {
                ahead,
                behind,
                absent,
            } = replayed.ignored_times;
            assert_eq!(ahead + behind + absent, 1, "{name}: {:?}", replayed.ignored_times);
            let ticks = &replayed.output.0;
            let last = START + 2 * FRAMES * SECOND / 10;
            assert!(
                ticks.is_sorted() && ticks[0] >= START && ticks[ticks.len() - 1] < last,
                "{name}"
            );
        }
    }
}

#[test]
fn frames_without_a_time_at_the_start_count_with_the_first_that_has_one() {
    for count in [1, 5, 60] {
        let mut times = vec![0; count];
        times.extend([START, START + SECOND, START + 2 * SECOND]);
        let replayed = replay_times(&times);
        assert_eq!(replayed.ignored_times.absent, count as u64);
        assert!(replayed.output.0.iter().all(|ts| *ts >= START), "{count}");
    }
    // A capture without any time is replayed at time 0.
    let replayed = replay_times(&[0; 200]);
    assert_eq!(replayed.ignored_times, IgnoredTimes::default());
}

#[test]
fn interfaces_of_a_later_section_are_known_by_their_names() {
    let sections = |names: [[&[u8; 4]; 2]; 2]| {
        let mut files = [Pcapng::default(), Pcapng::default()];
        for (index, file) in (0..).zip(&mut files) {
            for (part, names) in (0..).zip(names) {
                file.0.extend(Pcapng::section().0);
                names.iter().for_each(|name| file.named_interface(name));
                let frames = frames_of_file(index, |frame| (frame % 2) as u32);
                for (interface, at) in frames.skip(part * FRAMES as usize / 2).take(FRAMES as usize / 2) {
                    // The clock of eth1 is ahead, whatever its number.
                    let is_ahead = names[interface as usize] == b"eth1";
                    let ahead = if is_ahead { AHEAD } else { 0 };
                    file.frame(interface, START + at + ahead, &datagram(PORT));
                }
            }
        }
        files
    };
    for (name, second) in [("same", [b"eth0", b"eth1"]), ("exchanged", [b"eth1", b"eth0"])] {
        assert_one_clock(&replay_ring(name, &sections([[b"eth0", b"eth1"], second])));
    }
}

#[test]
fn two_times_behind_are_a_step_unless_the_second_is_further_behind() {
    let before = [START, START + SECOND];
    let after = [START + 2 * SECOND, START + 3 * SECOND];
    let replay = |times: [u64; 2]| replay_times(&[&before[..], &times, &after].concat());
    // The first one counts at the time before it, the second sets the clock back.
    let set_back = replay([START - HOUR, START - HOUR + SECOND]);
    assert_eq!(set_back.ignored_times.behind, 1);
    assert!(set_back.output.0.contains(&(START - HOUR + SECOND)));
    let wrong = replay([START - HOUR, START - 2 * HOUR]);
    assert_eq!(wrong.ignored_times.behind, 2);
    assert!(wrong.output.0.is_sorted() && wrong.output.0[0] >= START);
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
