//! Wrong times in captures, and rings of captures whose interfaces have different clocks.

use serde_json::{Value, json};

use super::cli_replay::{OfInterface, alternating, outcome, pcapng, replay, replay_files};
use crate::support::{FIRST_TS, Run, TempDir, hopwise, text};
use testkit::rng::Rng;

/// A second and an hour, ms.
const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;

/// Returns whether the clock of interface 1 is listed as ahead of that of interface 0 by about so much, ms.
fn is_ahead(clock: &Value, ahead: i64) -> bool {
    let difference = clock["ahead_ns"].as_i64().unwrap() / 1_000_000;
    clock["interface"] == 1 && clock["reference"] == 0 && difference.abs_diff(ahead) < 50
}

/// A capture file and the store of its replay, with a configuration in which flows expire after five seconds.
struct Stored {
    dir: TempDir,
}

impl Stored {
    fn new(capture: &[u8]) -> Self {
        let dir = TempDir::new();
        std::fs::write(dir.join("hopwise.toml"), "[collector]\nflow_timeout = \"5s\"\n").unwrap();
        std::fs::write(dir.join("capture.pcapng"), capture).unwrap();
        Self { dir }
    }

    /// Replays the capture with more arguments.
    fn replay(&self, extra: &[&str]) -> Run {
        let config = self.dir.join("hopwise.toml");
        let file = self.dir.join("capture.pcapng");
        replay(&[&["-c", text(&config)], extra, &[text(&file)]].concat())
    }

    /// Replays the capture into the store, and returns the result.
    fn replay_to_store(&self) -> Value {
        let store = self.dir.join("store");
        self.replay(&["--store", text(&store), "--json"]).json().remove(0)
    }

    fn query(&self, sql: &str) -> Vec<Value> {
        let store = self.dir.join("store");
        hopwise(["query", "--dir", text(&store), "--format", "json", sql]).json()
    }
}

#[test]
fn a_ring_whose_interfaces_have_different_clocks_is_merged_by_one_of_them() {
    for ahead in [37 * SECOND, -37 * SECOND, HOUR] {
        let all = alternating(ahead);
        let (expected, _, values) = replay_files(std::slice::from_ref(&all), &[0]);
        // The files begin with frames of either interface.
        for frames in [250, 251] {
            let ring: Vec<Vec<OfInterface>> = all.chunks(frames).map(<[_]>::to_vec).collect();
            for order in [[0, 1, 2], [2, 0, 1]] {
                let (found, text, counted) = replay_files(&ring, &order);
                assert_eq!(outcome(&found), outcome(&expected), "{ahead} {frames} {order:?}");
                assert_eq!(counted, values, "{ahead} {frames} {order:?}");
                assert!(found.get("overlapping").is_none(), "{found}");
                let clocks = found["clocks"].as_array().unwrap();
                assert!(
                    clocks.len() == 3 && clocks.iter().all(|clock| is_ahead(clock, ahead)),
                    "{clocks:?}"
                );
                assert!(text.contains("times are those of interface 0"), "{text}");
            }
        }
    }
}

#[test]
fn one_time_far_behind_changes_nothing_but_its_own_report() {
    let all = alternating(0);
    let (expected, ..) = replay_files(std::slice::from_ref(&all), &[0]);
    assert!(expected.get("ignored_times").is_none());
    for behind in [3 * SECOND, HOUR, 365 * 24 * HOUR] {
        // The second frame is the first one of its flow and node.
        // A first time that is only a little behind the next one may be right.
        let first = usize::from(behind <= 10 * SECOND);
        for wrong in [first, 1, 101, 150, 500, all.len() - 1] {
            let mut frames = all.clone();
            frames[wrong].1 -= behind;
            let stored = Stored::new(&pcapng(&frames));
            let found = stored.replay_to_store();
            assert_eq!(outcome(&found), outcome(&expected), "{behind} {wrong}");
            assert_eq!(found["ignored_times"], json!({"behind": 1}), "{behind} {wrong}");
            let sql = "SELECT min(ts) AS ts FROM events UNION ALL SELECT min(first_seen) FROM flows";
            let rows = stored.query(sql);
            assert!(
                rows.len() == 2 && rows.iter().all(|row| row["ts"].as_u64() >= Some(FIRST_TS)),
                "{behind} {wrong}: {rows:?}"
            );
            let printed = stored.replay(&[]).stdout;
            assert!(
                printed.contains("ignored times, more than 2 s behind the latest one: 1\n"),
                "{printed}"
            );
        }
    }
}

#[test]
fn one_time_far_behind_keeps_the_order_of_a_ring() {
    let all = alternating(0);
    let (expected, _, values) = replay_files(std::slice::from_ref(&all), &[0]);
    // The second and the third frame of the second file, and the last one of the first file.
    for wrong in [251, 252, 249] {
        let mut frames = all.clone();
        frames[wrong].1 -= HOUR;
        let ring: Vec<Vec<OfInterface>> = frames.chunks(250).map(<[_]>::to_vec).collect();
        let (found, _, counted) = replay_files(&ring, &[0, 1, 2]);
        assert_eq!(outcome(&found), outcome(&expected), "{wrong}");
        assert_eq!(counted, values, "{wrong}");
        assert_eq!(found["ignored_times"], json!({"behind": 1}), "{wrong}");
    }
}

#[test]
fn a_last_time_far_ahead_is_not_used_and_said_to_be_unconfirmed() {
    let mut frames = alternating(0);
    let (found, text, _) = replay_files(std::slice::from_ref(&frames), &[0]);
    assert!(found.get("unconfirmed_end").is_none() && !text.contains("the last report is"));
    let events = found["events"].clone();
    frames.last_mut().unwrap().1 += HOUR;
    let (found, text, _) = replay_files(&[frames], &[0]);
    assert_eq!(found["unconfirmed_end"], json!(true));
    assert_eq!(found["ignored_times"], json!({"ahead": 1}));
    assert_eq!(found["events"], events);
    assert!(
        text.contains("the last report is more than 10 s later than all others"),
        "{text}"
    );
}

#[test]
fn reports_without_a_time_count_with_those_before_them() {
    let all = alternating(0);
    let (expected, ..) = replay_files(std::slice::from_ref(&all), &[0]);
    let mut bytes = pcapng(&all[..200]);
    for (_, _, frame) in &all[200..202] {
        bytes.extend(simple_packet_block(frame));
    }
    bytes.extend(pcapng(&all[202..]));
    let stored = Stored::new(&bytes);
    let found = stored.replay_to_store();
    assert_eq!(found["ignored_times"], json!({"absent": 2}), "{found}");
    assert_eq!(found["events"]["expired"], expected["events"]["expired"]);
    let sql = "SELECT min(ts) AS first, max(ts) AS last FROM rollups WHERE interval = 1";
    let rows = stored.query(sql);
    let last = FIRST_TS + 19_000_000_000;
    assert_eq!(rows, [json!({"first": FIRST_TS, "last": last})]);
}

#[test]
fn each_report_is_counted_once_however_the_clock_is_set() {
    for seed in 0..12 {
        let mut random = Rng(seed);
        let mut offset = 0;
        let mut frames = alternating(0);
        for frame in &mut frames {
            if random.below(100) == 0 {
                let step = [3 * SECOND, 30 * SECOND, HOUR][random.below(3)];
                offset += if random.below(3) == 0 { step } else { -step };
            }
            frame.1 += offset;
        }
        let found = Stored::new(&pcapng(&frames)).replay_to_store();
        let counted = |list: &str| -> u64 {
            let rows = found[list].as_array().unwrap();
            rows.iter().map(|row| row["reports"].as_u64().unwrap()).sum()
        };
        assert_eq!(found["reports"], json!(frames.len()), "{seed}");
        assert_eq!(counted("flows"), frames.len() as u64, "{seed}");
        assert_eq!(counted("paths"), frames.len() as u64, "{seed}");
    }
}

#[test]
fn an_interface_whose_clock_no_file_shows_is_named() {
    let all = alternating(37 * SECOND);
    let of = |interface: u32, from: usize| -> Vec<OfInterface> {
        let frames = all[from..from + 300].iter();
        frames.filter(|frame| frame.0 == interface).cloned().collect()
    };
    let files = [of(0, 0), of(1, 300)];
    let dir = TempDir::new();
    let paths = [0, 1].map(|index| dir.join(&format!("{index}.pcapng")));
    for (path, frames) in paths.iter().zip(&files) {
        std::fs::write(path, pcapng(frames)).unwrap();
    }
    let sentence = "1.pcapng: the clock of interface 1 cannot be compared with those of the other interfaces; times are used as they are\n";
    let run = replay(&["--json", text(&paths[0]), text(&paths[1])]);
    assert!(run.stderr.ends_with(sentence), "{}", run.stderr);
    let found = run.json().remove(0);
    assert_eq!(
        found["unknown_clocks"],
        json!([{"file": text(&paths[1]), "interface": 1}])
    );
    let run = replay(&[text(&paths[0]), text(&paths[1])]);
    assert!(run.stdout.contains(sentence), "{}", run.stdout);
}

/// A block of pcapng with a frame and no time.
fn simple_packet_block(frame: &[u8]) -> Vec<u8> {
    let padded = frame.len().next_multiple_of(4);
    let length = 16 + padded as u32;
    let mut block = [3, length, frame.len() as u32].map(u32::to_le_bytes).concat();
    block.extend(frame);
    block.resize(12 + padded, 0);
    block.extend(length.to_le_bytes());
    block
}
