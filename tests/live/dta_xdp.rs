//! The collector's memory in the kernel (`[collector.memory] mode = "xdp"`): a translator in one namespace, the memory in another,
//! RoCEv2 over a link between them. Needs root and `ip`; otherwise skipped.

use std::{
    fs,
    net::UdpSocket,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nic::netns::{Pair, within};
use serde_json::{Value, json};
use wire::dta::{Base, Operation, Priority, Report};

use crate::support::roles::{FLOW, STORES, flow, path_of};
use crate::support::server::{self, Server};
use crate::support::{Run, TempDir, hex, hopwise, schema, skipped, text};

/// The memory's configuration, on the device of the far end.
fn collector(directory: &Path, family: usize, interface: &str) -> String {
    let address = |port: u16| std::net::SocketAddr::new(Pair::FAR[family], port);
    format!(
        "collector.listen = [\"udp://127.0.0.1:0\"]\napi.listen = \"127.0.0.1:0\"\nstore.dir = \"store\"\nstore.commit_every = \"50ms\"\n\
         [collector.memory]\nmode = \"xdp\"\ninterface = \"{interface}\"\nlisten = \"{}\"\nexchange = \"{}\"\ndirectory = \"{}\"\n{STORES}",
        address(4791),
        address(18_515),
        directory.display()
    )
}

fn translator(family: usize) -> String {
    let exchange = std::net::SocketAddr::new(Pair::FAR[family], 18_515);
    format!(
        "api.listen = \"127.0.0.1:0\"\n[translator]\nlisten = \"127.0.0.1:40040\"\ncontrol_port = 0\n\
         [[translator.collectors]]\nexchange = \"{exchange}\"\n"
    )
}

/// Two namespaces with a link; otherwise reports the test as skipped.
fn pair() -> Option<Pair> {
    let pair = Pair::create();
    let pair = pair
        .map_err(|error| skipped(&format!("memory in the kernel: needs root ({error})")))
        .ok()?;
    // A veth accepts frames from the other end's program only if it polls (NAPI), which GRO enables.
    pair.near
        .run(|| nic::device::set_offload(Pair::DEVICE, "rx-gro", true))
        .unwrap()
        .unwrap();
    Some(pair)
}

/// A reporter beside the translator.
struct Reporter {
    socket: UdpSocket,
    sequence: u16,
}

impl Reporter {
    fn new(pair: &Pair) -> Self {
        let socket = pair.near.run(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        Self { socket, sequence: 0 }
    }

    fn send(&mut self, immediate: bool, operation: Operation<'_>) {
        self.sequence += 1;
        let (essential, priority) = (true, Priority::Medium);
        let base = Base {
            immediate,
            essential,
            priority,
            sequence: self.sequence,
            reporter: 7,
        };
        let mut bytes = [0; 2048];
        let length = Report { base, operation }.emit(&mut bytes).unwrap();
        self.socket.send_to(&bytes[..length], "127.0.0.1:40040").unwrap();
    }

    /// A path, a loss (with an immediate), and three fetch-adds.
    fn report(&mut self, first: u32) {
        let data = path_of(first);
        self.send(
            false,
            Operation::KeyWrite {
                copies: 2,
                store: 1,
                key: &flow(),
                data: &data,
            },
        );
        let entry = hex("0a0000010a00000204d2005006 00000065 07");
        self.send(
            true,
            Operation::Append {
                list: 2,
                entry_len: 18,
                entries: &entry,
            },
        );
        for _ in 0..3 {
            let key = [10, 0, 0, 1];
            self.send(
                false,
                Operation::KeyIncrement {
                    copies: 2,
                    store: 2,
                    delta: 500,
                    key: &key,
                },
            );
        }
    }
}

/// The answer of the API at `path` once `done` is true for it.
fn wait(server: &Server, path: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let view = server.json(path);
        if done(&view) {
            return view;
        }
        assert!(begun.elapsed() < server::TIMEOUT, "never {what}: {view:#}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the translator has completed this many reports and all operations are acknowledged.
fn done(stage: &Server, reports: u64) {
    wait(stage, "/api/v1/translator", "all done", |view| {
        let (dta, link) = (view, &view["collectors"][0]);
        let done = dta["completed"]
            .as_object()
            .unwrap()
            .values()
            .map(|n| n.as_u64().unwrap())
            .sum::<u64>();
        done == reports
            && dta["entries"]["buffered"] == 0
            && link["unacknowledged"] == 0
            && link["state"] == "up"
    });
}

/// The command inside the collector's namespace.
fn ask(pair: &Pair, args: &[&str]) -> Run {
    within(pair.far.name(), || hopwise(args)).unwrap()
}

fn get(pair: &Pair, from: &[&str]) -> String {
    let run = ask(pair, &[&["get", "paths", FLOW], from].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.stdout
}

/// The memory reports that the kernel executed everything, and the counters balance.
fn all_in_the_kernel(keeper: &Server) -> Value {
    let view = wait(keeper, "/api/v1/dta", "balanced", |view| view["balanced"] == true);
    assert_eq!(
        (&view["mode"], &view["xdp"]["up"]),
        (&json!("xdp"), &json!(true)),
        "{view:#}"
    );
    assert_eq!(
        (&view["dropped"], &view["refused"]),
        (&json!({}), &json!({})),
        "{view:#}"
    );
    assert_eq!(
        (&view["xdp"]["packets"], &view["datagrams"]),
        (&view["packets"], &json!(0)),
        "{view:#}"
    );
    assert_eq!(view["xdp"]["responses_unsent"], 0, "{view:#}");
    assert_eq!(view["links"][0]["reliable"], "ready");
    view
}

fn start(pair: &Pair, directory: &Path, family: usize) -> Server {
    let config = collector(directory, family, Pair::DEVICE);
    Server::start_raw_within(pair.far.name(), &config).unwrap_or_else(|error| panic!("{error}"))
}

fn memory(of: &TempDir) -> PathBuf {
    of.join("memory")
}

#[test]
fn reports_are_written_by_the_kernel_and_asked_as_ever() {
    let Some(pair) = pair() else { return };
    for family in 0..2 {
        let directory = TempDir::new();
        let keeper = start(&pair, &memory(&directory), family);
        let stage = Server::start_raw_within(pair.near.name(), &translator(family)).unwrap();
        wait(&stage, "/api/v1/translator", "connected", |view| {
            view["collectors"][0]["state"] == "up"
        });
        let mut reporter = Reporter::new(&pair);
        reporter.report(11);
        done(&stage, 5);

        let view = all_in_the_kernel(&keeper);
        // Six additions (three reports with two copies each), two copies of a path, one batch.
        assert_eq!(
            (&view["fetch_adds"], &view["missing"]),
            (&6.into(), &0.into()),
            "{view:#}"
        );
        assert!(
            view["packets"].as_u64().unwrap() >= 9 && view["acks"] != 0,
            "{view:#}"
        );
        // The immediate was received as in user space, and the entry became an event.
        wait(&keeper, "/api/v1/dta", "reported", |view| {
            view["events"]["immediates"] == 1 && view["events"]["entries"] == 1
        });
        let events = wait(&keeper, "/api/v1/events?kind=drop", "reported", |view| {
            view["events"][0].is_object()
        });
        assert_eq!(events["events"][0]["node"], 101, "{events:#}");
        let url = format!("http://{}", keeper.api);
        let api = ["--api", url.as_str()];
        assert_eq!(get(&pair, &api), "[11,12,13,14,15]  (2 of 2 copies)\n");
        let count = ask(&pair, &[&["count", "bytes", "10.0.0.1"], &api[..]].concat());
        assert!(
            count.stdout.starts_with("1,500  "),
            "{}{}",
            count.stdout,
            count.stderr
        );
        let tail = ask(&pair, &[&["tail", "2"], &api[..]].concat());
        assert!(
            tail.stdout.contains("src=10.0.0.1"),
            "{}{}",
            tail.stdout,
            tail.stderr
        );
        // The files are old while the kernel has the memory, and old entries emit no events.
        let run = ask(
            &pair,
            &["get", "paths", FLOW, "--directory", text(&memory(&directory))],
        );
        assert_eq!(run.code, Some(2), "{}", run.stdout);
        assert!(
            run.stderr.contains("in the kernel") && run.stderr.contains("--api"),
            "{}",
            run.stderr
        );
        let document = keeper.json("/api/v1/openapi.json");
        let path = &document["paths"]["/api/v1/dta"]["get"]["responses"]["200"];
        schema::check(
            &document,
            &path["content"]["application/json"]["schema"],
            &keeper.json("/api/v1/dta"),
            "dta",
        );
        let (metrics, packets) = (keeper.get("/metrics").body, &view["packets"]);
        for line in [
            format!("hopwise_memory_xdp_packets_total {packets}\n"),
            format!("hopwise_memory_packets_total {packets}\n"),
            "hopwise_memory_xdp_up 1\n".to_owned(),
            "hopwise_memory_fetch_adds_total 6\n".to_owned(),
        ] {
            assert!(metrics.contains(&line), "{line} in {metrics}");
        }
        stops_and_comes_back(&pair, (&stage, keeper), &mut reporter, (&directory, family));
    }
}

/// A clean stop saves everything; after a crash the state of the last clean stop is restored.
fn stops_and_comes_back(
    pair: &Pair,
    (stage, keeper): (&Server, Server),
    reporter: &mut Reporter,
    (directory, family): (&TempDir, usize),
) {
    let memory = memory(directory);
    let (status, _files) = keeper.stop();
    assert!(status.success());
    assert_eq!(
        get(pair, &["--directory", text(&memory)]),
        "[11,12,13,14,15]  (2 of 2 copies)\n"
    );
    assert!(!memory.join("in-kernel").exists());

    let keeper = start(pair, &memory, family);
    let url = format!("http://{}", keeper.api);
    assert_eq!(get(pair, &["--api", &url]), "[11,12,13,14,15]  (2 of 2 copies)\n");
    // Another process cannot use the same memory, neither in the kernel nor as files.
    let other = collector(&memory, 1 - family, Pair::DEVICE);
    let files = other
        .replace("\"xdp\"", "\"socket\"")
        .replace("interface = \"veth0\"\n", "");
    for other in [other, files] {
        let error = Server::start_raw_within(pair.far.name(), &other)
            .map(|server| server.id())
            .unwrap_err();
        assert!(
            error.contains("another hopwise process has the memory"),
            "{error}"
        );
    }
    wait(&keeper, "/api/v1/dta", "linked", |view| {
        view["links"][0]["up"] == true
    });
    reporter.report(21);
    done(stage, 10);
    all_in_the_kernel(&keeper);
    assert_eq!(get(pair, &["--api", &url]), "[21,22,23,24,25]  (2 of 2 copies)\n");
    keeper.signal("-KILL");
    drop(keeper);

    // Writes since the last stop are lost; a message reports it.
    assert_eq!(
        get(pair, &["--directory", text(&memory)]),
        "[11,12,13,14,15]  (2 of 2 copies)\n"
    );
    let config = collector(&memory, family, Pair::DEVICE);
    let keeper = Server::start_raw_within(pair.far.name(), &config).unwrap();
    let url = format!("http://{}", keeper.api);
    assert_eq!(get(pair, &["--api", &url]), "[11,12,13,14,15]  (2 of 2 copies)\n");
    keeper.stop();
}

#[test]
fn an_interface_that_disappears_and_returns_is_opened_again() {
    let Some(pair) = pair() else { return };
    let directory = TempDir::new();
    let keeper = start(&pair, &memory(&directory), 0);
    let stage = Server::start_raw_within(pair.near.name(), &translator(0)).unwrap();
    let mut reporter = Reporter::new(&pair);
    wait(&keeper, "/api/v1/dta", "linked", |view| {
        view["links"][0]["up"] == true
    });
    reporter.report(11);
    done(&stage, 5);
    pair.far.ip(&["link", "delete", Pair::DEVICE]).unwrap();
    let gone = wait(&keeper, "/api/v1/dta", "noticed", |view| {
        view["xdp"]["up"] == false
    });
    assert!(gone["xdp"]["message"].is_string(), "{gone:#}");
    pair.link().unwrap();
    pair.near
        .run(|| nic::device::set_offload(Pair::DEVICE, "rx-gro", true))
        .unwrap()
        .unwrap();
    wait(&keeper, "/api/v1/dta", "taken again", |view| {
        view["xdp"]["up"] == true
    });
    reporter.report(21);
    done(&stage, 10);
    let url = format!("http://{}", keeper.api);
    assert_eq!(
        get(&pair, &["--api", &url]),
        "[21,22,23,24,25]  (2 of 2 copies)\n"
    );
    // Packets that arrived without the program went to the socket, and were dropped there: only one responder tracks the sequence.
    let view = keeper.json("/api/v1/dta");
    assert_eq!(view["balanced"], true, "{view:#}");
}

#[test]
fn a_failed_save_at_the_stop_is_reported_with_exit_code_1() {
    let Some(pair) = pair() else { return };
    let directory = TempDir::new();
    let memory = memory(&directory);
    let keeper = start(&pair, &memory, 0);
    // The temporary file is written beside the store's file, which is impossible here.
    fs::create_dir(memory.join("paths.begun")).unwrap();
    keeper.signal("-TERM");
    let line = keeper.log_line("the store `paths` is lost");
    assert!(
        line.contains("paths.region cannot be written")
            && line.contains("check that this user may write there"),
        "{line}"
    );
    let (status, _files) = keeper.stop();
    assert_eq!(status.code(), Some(1));
    assert!(memory.join("losses.region").exists() && !memory.join("paths.region").exists());
}

#[test]
fn an_obstacle_is_reported_and_there_is_no_fallback() {
    let Some(pair) = pair() else { return };
    let directory = TempDir::new();
    let at = memory(&directory);
    let refused = |namespace: &str, config: &str, words: &[&str]| {
        let error = Server::start_raw_within(namespace, config)
            .map(|server| server.id())
            .unwrap_err();
        for word in words {
            assert!(error.contains(word), "{word} in {error}");
        }
        assert!(!at.join("in-kernel").exists(), "{error}");
    };
    let far = pair.far.name();
    let advice = "or set mode = \"socket\"";
    refused(
        far,
        &collector(&at, 0, "nope0"),
        &["the interface nope0 cannot be used", advice],
    );
    let without = format!("{far} setpriv --bounding-set=-all --inh-caps=-all");
    refused(
        &without,
        &collector(&at, 0, Pair::DEVICE),
        &["CAP_BPF", "CAP_PERFMON", advice],
    );
    pair.far.ip(&["link", "set", Pair::DEVICE, "down"]).unwrap();
    refused(
        far,
        &collector(&at, 0, Pair::DEVICE).replace("10.97.0.2", "127.0.0.2"),
        &["on an interface"],
    );
    pair.far.ip(&["link", "set", Pair::DEVICE, "up"]).unwrap();
    // A translator on the same machine would never be received.
    let keeper = start(&pair, &at, 0);
    let stage = Server::start_raw_within(far, &translator(0)).unwrap();
    stage.log_line("sends to itself comes by no interface");
    drop((stage, keeper));
}
