//! Commands that query a running hopwise show and accept the names of nodes and drop reasons.

use wire::{Dialect, Flags, Hop, report::v10};

use crate::support::{hopwise, server::Server};

const SETTINGS: &str = "
[nodes]
103 = \"leaf3\"
[profiles.default.drop_reasons]
128 = \"link_down\"
71 = \"queue_full\"
";

/// A report of a packet that node 103 dropped.
fn drop_report(seq: u32, reason: u8) -> Vec<u8> {
    let mut payload = vec![0; 1024];
    let header = v10::Repr {
        next: v10::NextProtocol::Ethernet,
        // Queue and drop reason.
        bits: 0x02,
        flags: Flags::DROP,
        hw_id: 1,
        switch_id: 103,
        seq,
        ingress_ts: seq,
        metadata: Hop {
            drop_queue_id: Some(3),
            ..Hop::default()
        },
        drop_reason: Some(reason),
    };
    let length = header.emit(Dialect::Strict, &mut payload);
    payload.truncate(length);
    // Ethernet, IPv4 and UDP headers of the packet.
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28];
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let checksum = wire::checksum::of(&packet[14..34]);
    packet[24..26].copy_from_slice(&checksum.to_be_bytes());
    packet.extend([0x13, 0x88, 0, 80, 0, 8, 0, 0]);
    payload.extend(packet);
    payload
}

#[test]
fn events_and_queries_of_a_running_hopwise_have_names() {
    let server = Server::start(SETTINGS);
    server.send([drop_report(0, 128), drop_report(1, 71)]);
    server.settled(2);
    let api = format!("http://{}", server.api);
    let events = |extra: &[&str]| {
        let words = ["events", "--kind", "drop", "--api", &api];
        hopwise(words.iter().chain(extra))
    };
    let all = events(&[]);
    assert!(
        all.stdout.contains("node leaf3 queue 3") && all.stdout.contains("  reason link_down\n"),
        "{all:?}"
    );
    for filter in ["reason == link_down", "reason == \"link down\"", "reason == 128"] {
        let found = events(&["--filter", filter, "--node", "leaf3"]);
        assert_eq!(found.stdout.lines().count(), 1, "{filter}: {found:?}");
        assert!(
            found.stdout.ends_with("  reason link_down\n"),
            "{filter}: {found:?}"
        );
    }
    let unknown = events(&["--filter", "reason == link_up"]);
    assert!(
        unknown
            .stderr
            .ends_with("write a code from 0 to 255, or one of queue_full, link_down\n"),
        "{unknown:?}"
    );
    let nowhere = events(&["--node", "leaf9"]);
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");

    let sql = "SELECT node, reason FROM drops ORDER BY reason";
    let found = hopwise(["query", "--api", &api, sql]);
    assert_eq!(
        found.stdout, " node      reason\nleaf3  queue_full\nleaf3   link_down\n",
        "{found:?}"
    );
    let found = hopwise(["query", "--api", &api, "--format", "csv", "--limit", "1", sql]);
    assert_eq!(found.stdout, "node,reason\r\n103,71\r\n", "{found:?}");
    assert!(found.stderr.contains("only 1 row shown"), "{found:?}");
    let wrong = hopwise(["query", "--api", &api, "SELECT colour FROM drops"]);
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.stderr.starts_with("hopwise: no such column: colour"),
        "{wrong:?}"
    );
    // Names of the running hopwise, for the files of a directory.
    let dir = server.path("store");
    let found = hopwise(["query", "--api", &api, "--dir", dir.to_str().unwrap(), sql]);
    assert!(found.stdout.ends_with("leaf3   link_down\n"), "{found:?}");
    // The same without it, from its configuration.
    let config = server.path("hopwise.toml");
    let words = [
        "events",
        "--dir",
        dir.to_str().unwrap(),
        "--filter",
        "reason == link_down",
    ];
    let with_names = hopwise(words.iter().chain(&["-c", config.to_str().unwrap()]));
    assert!(
        with_names.stdout.contains("node leaf3") && with_names.stdout.ends_with("  reason link_down\n"),
        "{with_names:?}"
    );
    assert_eq!(hopwise(words).code, Some(2), "no names without a configuration");
}
