//! Benchmark of the store. It prints insertion rates and query latencies as text.
//!
//! * `store-bench DIR EVENTS FLOWS [insert|ask]` inserts a stream of events and times the common queries.
//! * `store-bench DIR day HOURS [insert|ask]` stores HOURS hours of a network and times queries over time spans.
//!
//! `insert` or `ask` runs only that half.
#![allow(clippy::unwrap_used, reason = "a tool for developers")]

mod day;
mod insert;

use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args[2] == "day" {
        return measure_day(
            Path::new(&args[1]),
            args[3].parse().unwrap(),
            args.get(4).map(String::as_str),
        );
    }
    let dir = Path::new(&args[1]);
    let events = args[2].parse().unwrap();
    let flows = args[3].parse().unwrap();
    let what = args.get(4).map(String::as_str);
    if what != Some("ask") {
        let figures = insert::insert(dir, events, flows).unwrap();
        let cpu = figures.cpu.unwrap_or_default();
        println!(
            "{events} events, {flows} flows: {:.0} events/s, {:.0} events per core second, {} rollups, {} bytes, wall {:?}, cpu {cpu:?}, of all threads {:?}",
            events as f64 / figures.wall.as_secs_f64(),
            events as f64 / cpu.as_secs_f64(),
            figures.rollups,
            figures.bytes,
            figures.wall,
            figures.all_cpu,
        );
    }
    if what != Some("insert") {
        for asked in insert::run_queries(dir, events).unwrap() {
            println!(
                "{:60} {:6} rows, first {:?}, again {:?}",
                asked.name, asked.rows, asked.first, asked.again
            );
        }
    }
}

fn measure_day(dir: &Path, hours: u64, what: Option<&str>) {
    if what != Some("ask") {
        let start = std::time::Instant::now();
        let events = day::insert(dir, hours * 60).unwrap();
        println!("{hours} hours, {events} events: {:?}", start.elapsed());
    }
    if what != Some("insert") {
        for asked in day::run_queries(dir, hours * 60).unwrap() {
            let [least, median, most] = asked.again.map(|time| time.as_secs_f64() * 1e3);
            let cpu = asked.cpu.as_secs_f64() * 1e3;
            println!(
                "{:60} {:6} rows, first {:.1} ms, again {median:.1} ms ({least:.1} to {most:.1}), processor {cpu:.1} ms",
                asked.name,
                asked.rows,
                asked.first.as_secs_f64() * 1e3
            );
        }
    }
}
