//! Runs the fuzz bodies of `wire` over `vectors/` in every dialect, then over seeded mutations of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use testkit::rng::Rng;
use testkit::texts;
use testkit::vectors::{self, Vector};
use wire::{Dialect, Profile};

type Body = fn(&[u8], &Profile);

/// Mutations of each body when no time is given: a fixed number, so that every machine runs the same ones.
const MUTATIONS: u64 = 150_000;
/// The same for whole stages, which take longer.
const STAGE_MUTATIONS: u64 = 4_000;

/// Returns whether to continue: for `HOPWISE_FUZZ_SECONDS` if given, else up to `mutations`.
fn until(mutations: u64) -> impl Fn(u64) -> bool {
    let seconds = std::env::var("HOPWISE_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    move |count| end.map_or(count < mutations, |end| Instant::now() < end)
}

/// Runs `body`; on failure, prints how to reproduce it.
fn run(body: Body, bytes: &[u8], profile: &Profile, what: &str) {
    if catch_unwind(AssertUnwindSafe(|| body(bytes, profile))).is_err() {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{what}\nprofile: {}\nhex: {hex}", profile.dialect.name());
    }
}

/// Runs `body` over the inputs of `corpus/TARGET.txt`.
fn kept(target: &str, body: fn(&[u8])) {
    for input in texts::corpus(target) {
        if catch_unwind(|| body(&input)).is_err() {
            let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            panic!("corpus/{target}.txt: {hex}");
        }
    }
}

#[test]
fn inputs_that_coverage_found() {
    kept("reports", |input| fuzz::with_profile(input, fuzz::reports));
    kept("packet", |input| fuzz::with_profile(input, fuzz::packet));
    kept("headers", |input| fuzz::with_profile(input, fuzz::headers));
    kept("aggregate", |input| fuzz::with_profile(input, fuzz::aggregate));
    kept("dta", |input| fuzz::with_profile(input, fuzz::dta));
    kept("roce", |input| fuzz::with_profile(input, fuzz::roce));
    kept("memory", |input| fuzz::with_profile(input, fuzz::memory));
    kept("collect", |input| fuzz::with_profile(input, fuzz::collect));
    kept("time", |input| fuzz::with_profile(input, fuzz::time));
    kept("switch", |input| fuzz::with_profile(input, fuzz::switch));
    kept("intents", fuzz::intents);
    kept("rule", |input| fuzz::rule(input, &Profile::default()));
    kept("capture", nic::capture::fuzz::capture);
}

fn all_and_mutated(body: Body, seed: u64) {
    mutated(body, seed, vectors::all(), MUTATIONS);
}

fn mutated(body: Body, seed: u64, vectors: Vec<Vector>, mutations: u64) {
    for vector in &vectors {
        each_reading(vector, |bytes, profile| run(body, bytes, profile, &vector.name));
    }
    let (mut rng, mut count, go_on) = (Rng(seed), 0, until(mutations));
    while go_on(count) {
        for _ in 0..1000.min(mutations) {
            let vector = &vectors[rng.below(vectors.len())];
            let mut bytes = vector.bytes.clone();
            rng.corrupt(&mut bytes);
            let dialect = Dialect::ALL[rng.below(Dialect::ALL.len())];
            let profile = if rng.below(2) == 0 {
                vector.profile
            } else {
                Profile::new(dialect)
            };
            let what = format!("mutation {count} of {} under seed {seed:#x}", vector.name);
            run(body, &bytes, &profile, &what);
            count += 1;
        }
    }
    println!("{count} mutations");
}

/// A vector with its profile, and with every dialect.
fn each_reading(vector: &Vector, mut read: impl FnMut(&[u8], &Profile)) {
    read(&vector.bytes, &vector.profile);
    for dialect in Dialect::ALL {
        read(&vector.bytes, &Profile::new(dialect));
    }
}

#[test]
fn reports() {
    all_and_mutated(fuzz::reports, 1);
}

#[test]
fn packet() {
    all_and_mutated(fuzz::packet, 2);
}

#[test]
fn headers() {
    all_and_mutated(fuzz::headers, 3);
}

#[test]
fn aggregate() {
    all_and_mutated(fuzz::aggregate, 4);
}

#[test]
fn dta() {
    all_and_mutated(fuzz::dta, 5);
}

#[test]
fn roce() {
    all_and_mutated(fuzz::roce, 6);
}

#[test]
fn lldp() {
    all_and_mutated(fuzz::lldp, 12);
}

#[test]
fn memory() {
    all_and_mutated(fuzz::memory, 7);
}

#[test]
fn collect() {
    mutated(fuzz::collect, 8, vectors::all(), STAGE_MUTATIONS);
}

/// Histories of two to twelve vectors of one dialect, with a random step of the clock before each.
#[test]
fn time() {
    let vectors = vectors::all();
    let (mut rng, mut count, go_on) = (Rng(13), 0, until(STAGE_MUTATIONS));
    while go_on(count) {
        let profile = vectors[rng.below(vectors.len())].profile;
        let alike: Vec<&Vector> = vectors
            .iter()
            .filter(|vector| vector.profile.dialect == profile.dialect)
            .collect();
        let mut history = Vec::new();
        for part in 0..2 + rng.below(11) {
            if part > 0 {
                history.extend(fuzz::SEPARATOR);
            }
            history.push(rng.below(256) as u8);
            let mut bytes = alike[rng.below(alike.len())].bytes.clone();
            if rng.below(8) == 0 {
                rng.corrupt(&mut bytes);
            }
            history.extend(bytes);
        }
        run(fuzz::time, &history, &profile, &format!("history {count}"));
        count += 1;
    }
    println!("{count} histories");
}

#[test]
fn switch() {
    mutated(fuzz::switch, 9, vectors::all(), STAGE_MUTATIONS);
}

/// Rules of every form: their text is not in `vectors/`.
#[test]
fn rule() {
    let texts = [
        "max(hop_latency) > 3 or link_utilization > 0.000004",
        "hops > 2 and not loop",
        "flow_latency > 24us and (queue_occupancy > 100 or visits(3))",
        "sum(hop_latency) between 1ms and 2ms",
        "path changed or not (min(queue_congestion) <= 0x10)",
    ];
    let one = vectors::all().remove(0);
    let rules = texts.map(|text| Vector {
        name: text.into(),
        bytes: text.into(),
        ..one.clone()
    });
    mutated(fuzz::rule, 10, rules.into(), MUTATIONS);
}

/// Files of rules, as the driver `files` writes them and others edit them.
#[test]
fn pipeline_map() {
    texts::fuzz(
        fuzz::pipeline_map,
        13,
        &p4runtime::map::SHIPPED.map(|(_, text)| text.to_owned()),
    );
}

#[test]
fn filter() {
    let examples = [
        "src in 10.0.0.0/8 and (path ~ 1>*>?>2 or not kind in (drop, loss))",
        "flow_latency >= 1.5ms and port in (80, 8000-8999) and link_utilization < 12.5%",
        "rule ~ \"slow\" or node == spine or 10.0.0.1:80",
    ];
    texts::fuzz(fuzz::filter, 12, &examples.map(str::to_owned));
}

#[test]
fn rules_file() {
    let examples = [
        "# election 7.1\nencoding dscp=23 l4_checksum=update\nsession collector=[fd00::9]:9555\nsink port=1\nsource port=1\n",
        "instruction bit=2 # hop_latency\nforwarding\nencoding dscp=9 l4_checksum=zero\nencoding dscp=8 l4_checksum=leave\n",
        "filter src=10.0.0.0/8 dport=80 algorithm=per_hop metric=hop_latency threshold=20000\nask the operator #1\n",
        "watch dst=fd00::/16 sport=1-9 proto=6 dscp=10 mode=md bits=0xa000 hops=8 sample=1 drops=yes # node_id\n",
    ];
    texts::fuzz(fuzz::rules_file, 12, &examples.map(str::to_owned));
}

/// Path maps of gNMI.
#[test]
fn path_map() {
    let template = include_str!("../../manager/drivers/gnmi/maps/sonic-tam.toml");
    texts::fuzz(fuzz::path_map, 14, &[template.to_owned()]);
}

/// Files of intents: their text is not in `vectors/`.
#[test]
fn intents() {
    let examples = [
        r#"
[[intents]]
name = "storage"
match = { dst = ["10.20.0.0/16", "fd00:20::/32"], proto = "tcp", dport = ["3260", "8000-8999"], dscp = 10 }
both_directions = true
watch = ["hop_latency", "queue_occupancy", "link_utilization"]
mode = "auto"
sample = "1 in 1"
at = { edges = ["leaf*"], between = ["h1", "h9"] }
report = { thresholds = { hop_latency = "20us" }, rule = "max(queue_occupancy) > 50", filter = "per_hop" }
budget = "2000 reports/s"
until = "2h"
priority = 100
"#,
        r#"
intents = [
    { name = "all", watch = ["flow_path"], match = "all", mode = "md", until = "2033-05-18T03:33:20+01:00" },
    { name = "deep", watch = ["flow_latency"], match = { src = "10.0.0.1" }, mode = "postcard",
      report = { rule = "hops > 2", filter = "change", then = { watch = ["queue_congestion"], match = "this queue", for = "30s" } } },
]
"#,
        r#"
devices = [{ name = "a", ports = 2, node = 7, edge = [2], labels = ["x"] }, { name = "b", driver = "gnmi" }]
links = [{ between = ["a:1", "b:1"], mtu = 9000 }]
hosts = [{ name = "h", addresses = ["::ffff:10.0.0.1"], at = "a:2" }]
"#,
    ];
    texts::fuzz(fuzz::intents, 11, &examples.map(str::to_owned));
}
