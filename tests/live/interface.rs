//! Interfaces as inputs: the whole program in a network namespace, reports from the other end of a link. Needs root and `ip`;
//! tests that cannot run are reported as skipped.

use std::net::SocketAddr;

use nic::{bpf::Ids, netns::Pair, udp::Sender};
use serde_json::{Value, json};

use crate::support::server::{self, Server, assert_balanced, dropped, report, stage};
use crate::support::skipped;

/// The port of reports.
const PORT: u16 = 32766;

/// Two namespaces with a link; otherwise reports the test as skipped.
fn pair() -> Option<Pair> {
    let pair = Pair::create();
    pair.map_err(|error| skipped(&format!("interfaces: network namespaces need root ({error})")))
        .ok()
}

/// Sends datagrams from one end of the link to the other, over IPv4 or IPv6.
fn send(pair: &Pair, family: usize, datagrams: &[Vec<u8>]) {
    let (from, to) = (
        SocketAddr::new(Pair::NEAR[family], 0),
        SocketAddr::new(Pair::FAR[family], PORT),
    );
    let mut sender = pair.near.run(|| Sender::connect(from, to)).unwrap().unwrap();
    for burst in datagrams.chunks(32) {
        let burst: Vec<&[u8]> = burst.iter().map(Vec::as_slice).collect();
        assert_eq!(sender.send_burst(&burst).unwrap(), burst.len());
        // A link has a short queue.
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
}

/// Valid and invalid reports, with sequence gaps; their contents do not depend on the receive time.
fn mixed() -> Vec<Vec<u8>> {
    let good = report(0, 1, [1, 2, 3]);
    let mut datagrams: Vec<Vec<u8>> = (0..2_000)
        .map(|seq| report(seq, (seq % 50) as u16, [1, 2, seq * 1_000]))
        .collect();
    datagrams.extend((0..good.len()).map(|length| good[..length].to_vec()));
    datagrams.extend((0..300_u32).map(|seed| (0..seed).map(|i| (seed * 31 + i * 7) as u8).collect()));
    datagrams.extend(
        (2_000..2_500)
            .filter(|seq| seq % 10 != 0)
            .map(|seq| report(seq, 1, [1, 2, 3])),
    );
    datagrams
}

/// All results of the program, except those that depend on the time: timestamps, and which missing numbers already count
/// as lost.
fn conclusions(server: &Server, status: &Value) -> Value {
    let events = server
        .query(
            "SELECT kind, metric, flow, node, interface, queue, value, previous, threshold, path, count(*) FROM events \
             WHERE kind <> 'loss' GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10",
        )
        .json();
    let mut sources = status["sources"].clone();
    for source in sources.as_array_mut().unwrap() {
        source
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name != "last_seen" && name != "lost");
    }
    json!({
        "events": events["rows"],
        "decode": stage(status, "decode"),
        "state": stage(status, "state"),
        "refused": status["refused"],
        "sources": sources,
    })
}

/// The elements of a list or an object, as text.
fn lines(value: &Value) -> Vec<String> {
    match value {
        Value::Array(list) => list.iter().map(Value::to_string).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect(),
        other => vec![other.to_string()],
    }
}

/// The one input of a status.
fn input(status: &Value) -> &Value {
    assert_eq!(status["inputs"].as_array().unwrap().len(), 1, "{status:#}");
    &status["inputs"][0]
}

#[test]
fn an_interface_gives_the_same_answers_as_a_socket() {
    same_answers("");
}

#[test]
fn the_kernels_program_gives_the_same_answers_as_a_socket() {
    same_answers("collector.xdp.mode = \"kernel\"");
}

fn same_answers(mode: &str) {
    let Some(pair) = pair() else { return };
    let datagrams = mixed();
    for family in 0..2 {
        let ways = [
            (format!("udp://{}", SocketAddr::new(Pair::FAR[family], PORT)), ""),
            ("xdp://veth0".to_owned(), mode),
        ];
        let mut expected = None;
        let [socket, (kind, concluded)] = ways.map(|(listen, extra)| {
            let server = Server::start_within(pair.far.name(), &listen, extra).unwrap();
            send(&pair, family, &datagrams);
            let status = server.settled(datagrams.len() as u64);
            assert_balanced(&status);
            // Events of the kernel arrive a moment later than its counters.
            let (mut concluded, start) = (conclusions(&server, &status), std::time::Instant::now());
            while expected
                .as_ref()
                .is_some_and(|expected: &Value| expected["events"] != concluded["events"])
                && start.elapsed() < server::TIMEOUT
            {
                concluded = conclusions(&server, &server.json("/api/v1/status"));
            }
            expected.get_or_insert_with(|| concluded.clone());
            (input(&status)["kind"].as_str().unwrap().to_owned(), concluded)
        });
        assert!(
            socket.1["events"].as_array().unwrap().len() > 100,
            "{:#}",
            socket.1
        );
        for (part, expected) in socket.1.as_object().unwrap() {
            // The kernel counts refusals by reason, not by sender.
            if part == "sources" && kind.starts_with("kernel") {
                continue;
            }
            let (expected, found) = (lines(expected), lines(&concluded[part]));
            let missing: Vec<_> = expected.iter().filter(|line| !found.contains(line)).collect();
            let more: Vec<_> = found.iter().filter(|line| !expected.contains(line)).collect();
            assert_eq!((missing, more), (Vec::new(), Vec::new()), "{part} by {kind}");
        }
    }
}

/// The settings of detection in the kernel.
const KERNEL: &str = "collector.xdp.mode = \"kernel\"";

#[test]
fn answers_about_the_past_say_when_their_reports_are_samples() {
    let Some(pair) = pair() else { return };
    for mode in ["", KERNEL] {
        let server = Server::start_within(pair.far.name(), "xdp://veth0", mode).unwrap();
        let status = server.json("/api/v1/status");
        let samples = input(&status)["kind"].as_str().unwrap().starts_with("kernel");
        if mode == KERNEL && !samples {
            return skipped("samples: the kernel's program does not run here");
        }
        assert_eq!(samples, mode == KERNEL);
        let past = "from=2026-11-21T14:00Z&to=2026-11-21T14:10Z";
        for (route, has_reports) in [
            ("activity", true),
            ("flows", true),
            ("nodes", true),
            ("paths/uses", true),
            ("traffic", true),
            ("losses", false),
        ] {
            let answer = server.get(&format!("/api/v1/{route}?{past}"));
            let note = answer.headers.contains("are based on samples");
            assert_eq!(
                (answer.status, note),
                (200, samples && has_reports),
                "{mode} {route}"
            );
        }
        let events = server.get(&format!("/api/v1/traffic?measure=events&{past}"));
        let now = server.get("/api/v1/flows");
        for answer in [events, now] {
            assert!(!answer.headers.contains("samples"), "{mode}: {answer:?}");
        }
    }
}

/// Reports of thirty flows whose values change randomly, mostly within their thresholds.
fn wandering(seqs: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    let one = |seq: u32| {
        let step = |by: u32| 500_000 + (seq.wrapping_mul(2_654_435_761) >> 16) % 40_000 * by;
        report(seq, (seq % 30) as u16, [step(1), step(2), 7_000])
    };
    seqs.map(one).collect()
}

#[test]
fn thresholds_that_change_while_it_runs_give_the_same_answers() {
    let Some(pair) = pair() else { return };
    let thresholds = |hop: u32| {
        format!(
            "[thresholds]\nhop_latency = {hop}\nflow_latency = {hop}\nqueue_occupancy = {}\n",
            hop / 1_000
        )
    };
    let mut expected = None;
    let answers = ["", KERNEL].map(|mode| {
        let listen = "collector.listen = [\"xdp://veth0\"]";
        let server = Server::start_within(
            pair.far.name(),
            "xdp://veth0",
            &format!("{mode}\n{}", thresholds(10_000)),
        );
        let server = server.unwrap();
        for (at, hop) in [(0, None), (1, Some(60_000)), (2, Some(20_000)), (3, Some(90_000))] {
            if let Some(hop) = hop {
                server.reconfigure(&format!("{listen}\n{mode}\n{}", thresholds(hop)));
                server.signal("-HUP");
                server.log_line("configuration reloaded");
            }
            send(&pair, 0, &wandering(at * 1_500..(at + 1) * 1_500));
            server.settled(u64::from(at + 1) * 1_500);
        }
        let mut concluded = conclusions(&server, &server.settled(6_000));
        let start = std::time::Instant::now();
        loop {
            std::thread::sleep(std::time::Duration::from_millis(200));
            let again = conclusions(&server, &server.json("/api/v1/status"));
            // Events of the kernel must equal the others; wait until both are complete.
            let settled = match &expected {
                Some(events) => *events == again["events"],
                None => again == concluded,
            };
            if settled || start.elapsed() > server::TIMEOUT {
                expected.get_or_insert_with(|| again["events"].clone());
                break again;
            }
            concluded = again;
        }
    });
    let [user, kernel] = &answers;
    assert!(user["events"].as_array().unwrap().len() > 1_000);
    for part in ["events", "decode"] {
        assert_eq!(lines(&kernel[part]), lines(&user[part]), "{part}");
    }
}

#[test]
fn several_workers_share_an_interface() {
    let Some(pair) = pair() else { return };
    let server = Server::start_within(
        pair.far.name(),
        "xdp://veth0",
        "collector.workers = 3\ncollector.worker_queue = \"1 GiB\"",
    )
    .unwrap();
    let datagrams: Vec<_> = (0..6_000_u32)
        .filter(|seq| seq % 100 != 50)
        .map(|seq| report(seq, (seq % 1_000) as u16, [1, 2, 3]))
        .collect();
    send(&pair, 0, &datagrams);
    let status = server.settled(datagrams.len() as u64);
    assert_balanced(&status);
    let busy = status["workers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|worker| worker["reports"] != 0)
        .count();
    assert_eq!((busy, dropped(&status, "fanout")), (3, 0), "{status:#}");
    // The receiving workers count missing numbers, whatever queue the datagrams arrived on.
    server.wait_for("60 lost", |status| {
        stage(status, "network")["drops"]["lost"] == 60
    });
}

#[test]
fn an_interface_that_goes_and_comes_back_is_read_again_and_the_counters_go_on() {
    goes_and_comes_back("");
}

#[test]
fn the_kernels_program_comes_back_with_its_interface_and_the_counters_go_on() {
    goes_and_comes_back("collector.xdp.mode = \"kernel\"");
}

fn goes_and_comes_back(mode: &str) {
    let Some(pair) = pair() else { return };
    let server = Server::start_within(
        pair.far.name(),
        "xdp://veth0",
        &format!("collector.xdp.lowest = \"packet\"\n{mode}"),
    )
    .unwrap();
    let first = server.wait_for("started", |status| input(status)["up"] == true);
    let kind = input(&first)["kind"].clone();
    let datagrams: Vec<_> = (0..500).map(|seq| report(seq, 1, [1, 2, 3])).collect();
    send(&pair, 0, &datagrams);
    server.settled(500);
    pair.far.ip(&["link", "delete", "veth0"]).unwrap();
    let gone = server.wait_for("down", |status| input(status)["up"] == false);
    assert!(input(&gone)["message"].is_string(), "{gone:#}");
    assert_eq!(input(&gone)["datagrams"], 500);
    pair.link().unwrap();
    // An interface is created before it is set up; in between it may be read by a slower receive path.
    let back = server.wait_for("up again", |status| {
        input(status)["up"] == true && input(status)["kind"] == kind
    });
    assert!(input(&back)["reopened"].as_u64() >= Some(1), "{back:#}");
    let more: Vec<_> = (500..1_000).map(|seq| report(seq, 1, [1, 2, 3])).collect();
    send(&pair, 0, &more);
    let status = server.settled(1_000);
    assert_balanced(&status);
    assert_eq!(
        (
            &input(&status)["datagrams"],
            stage(&status, "network")["drops"]["lost"].as_u64()
        ),
        (&json!(1_000), Some(0))
    );
}

#[test]
fn an_interface_that_appears_later_is_opened_when_it_appears() {
    let Some(pair) = pair() else { return };
    pair.far
        .ip(&["link", "set", "veth0", "name", "veth1"])
        .unwrap_or_default();
    pair.far.ip(&["link", "delete", "veth0"]).unwrap_or_default();
    pair.far.ip(&["link", "delete", "veth1"]).unwrap_or_default();
    let server = Server::start_within(pair.far.name(), "xdp://veth0", "").unwrap();
    let without = server.wait_for("started", |status| input(status)["up"] == true);
    assert_eq!(input(&without)["kind"], "udp");
    let reason = input(&without)["tried"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("there is no interface `veth0`"), "{reason}");
    pair.link().unwrap();
    // Until it is set up, it may be read by a slower receive path for a moment.
    server.wait_for("opened again", |status| {
        input(status)["up"] == true && input(status)["kind"] == "xdp-native"
    });
    let datagrams: Vec<_> = (0..100).map(|seq| report(seq, 1, [1, 2, 3])).collect();
    send(&pair, 1, &datagrams);
    assert_balanced(&server.settled(100));
}

#[test]
fn an_attached_program_forces_a_slower_rx_path_until_it_is_detached() {
    let Some(pair) = pair() else { return };
    let put = || {
        let object = nic::bpf::Object::load(xdp::STEER, &nic::bpf::LoadOptions::default())?;
        let index = nic::device::facts(Pair::DEVICE)?.unwrap().index;
        let attachment = object.attach("hopwise_steer", index, nic::bpf::Mode::Native)?;
        Ok::<_, nic::Error>((object, attachment))
    };
    let foreign = match pair.far.run(put).unwrap() {
        Ok(foreign) => foreign,
        Err(error) => return skipped(&format!("a program that is already there: {error}")),
    };
    let refused = Server::start_within(
        pair.far.name(),
        "xdp://veth0",
        "collector.xdp.lowest = \"native\"",
    );
    let error = refused.map(|_| ()).unwrap_err();
    assert!(
        error.contains("xdp-native") && error.contains("another"),
        "{error}"
    );

    let server = Server::start_within(pair.far.name(), "xdp://veth0", "").unwrap();
    let status = server.json("/api/v1/status");
    let tried: Vec<_> = input(&status)["tried"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tried| tried["rx_path"].as_str().unwrap())
        .collect();
    assert_eq!(
        (&input(&status)["kind"], tried),
        (
            &json!("packet"),
            vec!["xdp-zerocopy", "xdp-native", "xdp-generic"]
        )
    );
    assert!(
        input(&status)["tried"][1]["reason"]
            .as_str()
            .unwrap()
            .contains("another"),
        "{status:#}"
    );
    send(
        &pair,
        0,
        &(0..300).map(|seq| report(seq, 1, [1, 2, 3])).collect::<Vec<_>>(),
    );
    server.settled(300);
    drop(foreign);
    let up = server.wait_for("climbed", |status| input(status)["kind"] == "xdp-native");
    assert_eq!(
        (&input(&up)["reopened"], input(&up)["queues"].as_u64()),
        (&json!(1), Some(1))
    );
    send(
        &pair,
        0,
        &(300..600)
            .map(|seq| report(seq, 1, [1, 2, 3]))
            .collect::<Vec<_>>(),
    );
    let status = server.settled(600);
    assert_balanced(&status);
    assert_eq!(dropped(&status, "network"), 0, "{status:#}");
}

#[test]
fn an_interface_with_another_number_of_queues_is_read_again() {
    let Ok(pair) = Pair::with_queues(2) else {
        return skipped("queues: network namespaces need root");
    };
    // Both ends: a veth runs programs in its driver only if it has a receive queue for each transmit queue of the other end.
    for end in [&pair.near, &pair.far] {
        end.run(|| nic::device::set_queues(Pair::DEVICE, 1, 1))
            .unwrap()
            .unwrap();
    }
    let server = Server::start_within(pair.far.name(), "xdp://veth0", "").unwrap();
    let kind = input(&server.json("/api/v1/status"))["kind"].clone();
    if let Err(error) = pair
        .far
        .run(|| nic::device::set_queues(Pair::DEVICE, 2, 2))
        .unwrap()
    {
        return skipped(&format!("queues that change while they are read: {error}"));
    }
    let status = server.wait_for("read again", |status| input(status)["reopened"] == 1);
    assert_eq!(
        (&input(&status)["kind"], &input(&status)["queues"]),
        (&kind, &json!(2))
    );
    send(
        &pair,
        0,
        &(0..300).map(|seq| report(seq, 1, [1, 2, 3])).collect::<Vec<_>>(),
    );
    assert_balanced(&server.settled(300));
}

#[test]
fn under_overload_every_frame_is_accounted_for() {
    let Some(pair) = pair() else { return };
    for lowest in ["udp", "native"] {
        let extra = format!(
            "collector.xdp.frames = 64\ncollector.receive_buffer = \"64 KiB\"\ncollector.xdp.lowest = \"{lowest}\""
        );
        let Ok(server) = Server::start_within(pair.far.name(), "xdp://veth0", &extra) else {
            return skipped("overload: there is no AF_XDP here");
        };
        let datagrams: Vec<_> = (0..5_000)
            .map(|seq| report(seq, (seq % 10) as u16, [1, 2, 3]))
            .collect();
        // A stopped program is the slowest possible reader.
        server.signal("-STOP");
        send(&pair, 0, &datagrams[..4_000]);
        server.signal("-CONT");
        server.wait_for("awake", |status| {
            stage(status, "kernel")["out"].as_u64() > Some(0)
        });
        send(&pair, 0, &datagrams[4_000..]);
        let status = server.wait_for("accounted for", |status| stage(status, "nic")["in"] == 5_000);
        assert_balanced(&status);
        let lost = dropped(&status, "kernel") + dropped(&status, "nic");
        assert!(lost > 0, "{status:#}");
        // The missing numbers were all dropped here: the network lost nothing.
        server.wait_for("no loss of the network's", |status| {
            dropped(status, "network") == 0
        });
    }
}

#[test]
fn under_overload_the_kernels_program_accounts_for_every_frame() {
    let Some(pair) = pair() else { return };
    let extra = format!("{KERNEL}\ncollector.xdp.ring = \"64 KiB\"");
    let server = Server::start_within(pair.far.name(), "xdp://veth0", &extra).unwrap();
    if input(&server.json("/api/v1/status"))["kind"] != "kernel-native" {
        return skipped("overload of the kernel's program: it does not run here");
    }
    let steady: Vec<_> = (0..3_000)
        .map(|seq| report(seq, (seq % 10) as u16, [1, 2, 3]))
        .collect();
    send(&pair, 0, &steady[..100]);
    server.settled(100);
    // Reports without a change do not reach user space.
    server.signal("-STOP");
    send(&pair, 0, &steady[100..]);
    server.signal("-CONT");
    let status = server.settled(3_000);
    assert_balanced(&status);
    assert_eq!(
        (dropped(&status, "kernel"), dropped(&status, "network")),
        (0, 0),
        "{status:#}"
    );
    // Reports with a change fill the ring.
    let changes: Vec<_> = (3_000..7_000)
        .map(|seq| report(seq, 1, [1, 2, seq * 100_000]))
        .collect();
    server.signal("-STOP");
    send(&pair, 0, &changes);
    server.signal("-CONT");
    let status = server.wait_for("accounted for", |status| stage(status, "kernel")["in"] == 7_000);
    let drops = &stage(&status, "kernel")["drops"];
    assert!(drops["ring_full"].as_u64() > Some(1_000), "{status:#}");
    // They are not missing: the numbers were received.
    let status = server.wait_for("passed to user space", |status| {
        stage(status, "kernel")["out"] == stage(status, "decode")["in"]
    });
    assert_balanced(&status);
    assert_eq!(dropped(&status, "network"), 0, "{status:#}");
}

/// Programs and maps that a process has open.
fn capabilities(process: u32) -> Ids {
    let mut ids = Ids {
        programs: Vec::new(),
        maps: Vec::new(),
    };
    for file in std::fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap_or_default();
        for (name, list) in [("prog_id:", &mut ids.programs), ("map_id:", &mut ids.maps)] {
            list.extend(
                text.lines()
                    .filter_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok()),
            );
        }
    }
    ids
}

#[test]
fn no_program_and_no_map_is_left_behind() {
    let Some(pair) = pair() else { return };
    for (end, settings) in [("-KILL", ""), ("-TERM", ""), ("-KILL", KERNEL), ("-TERM", KERNEL)] {
        let server = Server::start_within(pair.far.name(), "xdp://veth0", settings).unwrap();
        let ids = capabilities(server.id());
        if ids.programs.is_empty() {
            return skipped("what is left behind: no program can be loaded here");
        }
        assert!(ids.maps.len() >= 3 && !ids.alive().unwrap().is_empty(), "{ids:?}");
        match end {
            "-TERM" => drop(server.stop()),
            _ => drop(server),
        }
        // The kernel frees them when nothing refers to them any more.
        let start = std::time::Instant::now();
        loop {
            let left = ids.alive().unwrap();
            let on_it = pair
                .far
                .run(|| nic::device::facts(Pair::DEVICE))
                .unwrap()
                .unwrap()
                .unwrap()
                .xdp;
            if left.is_empty() && on_it.is_none_or(|programs| programs.is_empty()) {
                break;
            }
            assert!(
                start.elapsed() < server::TIMEOUT,
                "{end} {settings}: {left:?} left of {ids:?}"
            );
            crate::support::pause();
        }
    }
}

#[test]
fn an_insufficient_receive_path_is_refused_with_a_remedy() {
    let Some(pair) = pair() else { return };
    let refused = Server::start_within(
        pair.far.name(),
        "xdp://none0",
        "collector.xdp.lowest = \"packet\"",
    );
    let error = refused.map(|_| ()).unwrap_err();
    let expected = "there is no interface `none0` here (`ip link` lists those there are); make it, name another one, or allow \
                    lowest = \"udp\"";
    assert!(error.contains(expected), "{error}");
    let refused = Server::start_within(
        pair.far.name(),
        "xdp://lo",
        "collector.xdp.zero_copy = \"require\"",
    );
    let error = refused.map(|_| ()).unwrap_err();
    assert!(
        error.contains("xdp-zerocopy") && error.contains("hopwise doctor lo"),
        "{error}"
    );
}

#[test]
fn four_capabilities_are_enough_for_the_best_rx_path() {
    let Some(pair) = pair() else { return };
    let how = "setpriv --reuid 65534 --clear-groups --inh-caps -all,+bpf,+net_admin,+net_raw,+ipc_lock \
               --ambient-caps -all,+bpf,+net_admin,+net_raw,+ipc_lock";
    if std::process::Command::new("setpriv")
        .arg("--version")
        .output()
        .is_err()
    {
        return skipped("four capabilities: there is no `setpriv` (util-linux)");
    }
    let as_root = Server::start_within(pair.far.name(), "xdp://veth0", "").unwrap();
    let best = input(&as_root.json("/api/v1/status"))["kind"].clone();
    drop(as_root);
    let namespace = format!("{} {how}", pair.far.name());
    let server = Server::start_within(&namespace, "xdp://veth0", "store.enabled = false").unwrap();
    let status = server.json("/api/v1/status");
    assert_eq!(input(&status)["kind"], best, "{status:#}");
    // And once more by the thread that opens again, with the capabilities it retained.
    pair.far.ip(&["link", "delete", "veth0"]).unwrap();
    server.wait_for("gone", |status| {
        input(status)["kind"] != best || input(status)["up"] == false
    });
    pair.link().unwrap();
    server.wait_for("as before", |status| {
        input(status)["kind"] == best && input(status)["up"] == true
    });
}

#[test]
fn privileges_are_given_up_but_for_the_thread_that_opens_again() {
    let Some(pair) = pair() else { return };
    /// Thread names with their effective capabilities.
    fn capabilities(server: &Server) -> Vec<(String, u64)> {
        let mut threads = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap() {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let field = |name: &str| {
                status
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .unwrap()
                    .trim()
                    .to_owned()
            };
            threads.push((
                field("Name:"),
                u64::from_str_radix(&field("CapEff:"), 16).unwrap(),
            ));
        }
        threads.sort();
        threads
    }
    // Bits of linux/capability.h: dac_override, net_bind_service; and bpf, perfmon, net_admin, net_raw, ipc_lock.
    let (every, opening) = (1 << 1 | 1 << 10, 1 << 39 | 1 << 38 | 1 << 12 | 1 << 13 | 1 << 14);
    let server = Server::start_within(pair.far.name(), "xdp://veth0", "").unwrap();
    let expected = |name: &str| match name {
        "inputs" => every | opening,
        reading if reading.starts_with("input-") => 1 << 39,
        _ => every,
    };
    // A thread drops its capabilities first of all, but may not have started.
    let start = std::time::Instant::now();
    let other = loop {
        let threads = capabilities(&server);
        let other = threads
            .into_iter()
            .find(|(name, effective)| *effective != expected(name));
        if other.is_none() || start.elapsed() > server::TIMEOUT {
            break other;
        }
    };
    assert_eq!(other, None);
    drop(server);
    for (wanted, expected) in [("none", every), ("all", u64::MAX)] {
        let server = Server::start_within(
            pair.far.name(),
            "xdp://veth0",
            &format!("collector.capabilities = \"{wanted}\""),
        )
        .unwrap();
        let ours = capabilities(&server)
            .into_iter()
            .filter(|(name, _)| !name.starts_with("input-"));
        for (name, effective) in ours {
            assert!(
                effective & !expected == 0 && (wanted != "all" || effective & opening == opening),
                "{name}: {effective:x}"
            );
        }
    }
}
