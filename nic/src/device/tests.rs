//! Facts about real interfaces, in namespaces.

use std::time::Duration;

use super::*;
use crate::netns::tests::skipped;
use crate::netns::{Namespace, Pair};
use crate::time;

fn of(side: &Namespace, name: &str) -> Facts {
    side.run(|| facts(name)).unwrap().unwrap().unwrap()
}

#[test]
fn missing_interfaces_have_no_attributes() {
    assert_eq!(facts("hopwise-none").unwrap(), None);
    assert_eq!(facts("a name longer than interfaces have").unwrap(), None);
    assert_eq!(facts("").unwrap(), None);
}

#[test]
fn loopback_is_up_everywhere() {
    let found = facts("lo").unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.index, found.member), ("lo", 1, None));
}

#[test]
fn the_table_of_devices_names_them() {
    let table = "Inter-|   Receive  |\n face |bytes packets\n    lo: 1 2\nveth0:3 4\n";
    assert_eq!(devices(table), ["lo", "veth0"]);
    assert!(devices("").is_empty());
    assert!(interfaces().unwrap().contains(&"lo".to_owned()));
}

#[test]
fn a_veth_between_namespaces() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return skipped(&error),
    };
    let found = of(&pair.far, "veth0");
    let peer = found.peer.clone().unwrap();
    assert!(peer.elsewhere && peer.name.is_none(), "{found:?}");
    let known = (
        found.up,
        found.carrier,
        found.mtu,
        found.kind.as_deref(),
        found.driver.as_deref(),
        &found.xdp,
    );
    assert_eq!(
        known,
        (
            true,
            Some(true),
            Some(1500),
            Some("veth"),
            Some("veth"),
            &Some(Vec::new())
        )
    );
    assert_eq!((&found.bus, found.numa, found.rx_ring), (&None, None, None));
    assert!(
        found.queues.is_some_and(|queues| queues.receiving() == 1),
        "{found:?}"
    );
    assert!(found.offloads.gro.is_some_and(|gro| !gro.fixed), "{found:?}");
    let known = found
        .xdp_features
        .is_none_or(|features| features.native() && !features.zero_copy());
    assert!(known, "{found:?}");
    // Without the other end there is no carrier.
    pair.near.ip(&["link", "set", "veth0", "down"]).unwrap();
    assert_eq!(of(&pair.far, "veth0").carrier, Some(false));
}

#[test]
fn offloads_and_queues_are_what_they_were_set_to() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return skipped(&error),
    };
    let set = |name: &str, on: bool| pair.far.run(|| set_offload("veth0", name, on)).unwrap();
    for on in [true, false] {
        set("rx-gro", on).unwrap();
        set("rx-udp-gro-forwarding", on).unwrap();
        set("rx-vlan-hw-parse", on).unwrap();
        let offloads = of(&pair.far, "veth0").offloads;
        let changed = [offloads.gro, offloads.udp_gro_forwarding, offloads.rx_vlan];
        assert_eq!(changed, [Some(Feature { on, fixed: false }); 3]);
    }
    assert!(
        set("rx-no-such-thing", true)
            .unwrap_err()
            .to_string()
            .contains("no such offload")
    );
    let wide = [
        "link",
        "add",
        "wide0",
        "numrxqueues",
        "4",
        "numtxqueues",
        "2",
        "type",
        "veth",
    ];
    pair.near
        .ip(&[&wide[..], &["peer", "name", "wide1"]].concat())
        .unwrap();
    pair.near
        .run(|| set_queues("wide0", 3, 1).and_then(|()| set_queues("wide1", 1, 1)))
        .unwrap()
        .unwrap();
    let found = of(&pair.near, "wide0");
    let none = Level { now: 0, max: 0 };
    let expected = Queues {
        rx: Level { now: 3, max: 4 },
        tx: Level { now: 1, max: 2 },
        combined: none,
    };
    assert_eq!(found.queues, Some(expected));
    let peer = found.peer.unwrap();
    let known = (peer.elsewhere, peer.name.as_deref(), peer.mtu, peer.tx_queues);
    assert_eq!(known, (false, Some("wide1"), Some(1500), Some(1)));
}

#[test]
fn a_member_of_a_bridge_knows_which() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return skipped(&error),
    };
    if let Err(error) = pair.far.ip(&["link", "add", "br0", "type", "bridge"]) {
        return skipped(&error);
    }
    pair.far.ip(&["link", "set", "veth0", "master", "br0"]).unwrap();
    let member = of(&pair.far, "veth0").member.unwrap();
    assert_eq!(
        (member.kind.as_str(), member.of.as_deref()),
        ("bridge", Some("br0"))
    );
}

/// How often something is asked again, and after how long.
const PATIENCE: usize = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// Checks that no program stays on the interface. A process that another test starts has our descriptors until its exec,
/// and so holds a link for a short time longer than we do.
fn free(namespace: &Namespace) {
    let programs = || of(namespace, "veth0").xdp.unwrap();
    for _ in 0..PATIENCE {
        if programs().is_empty() {
            return;
        }
        time::sleep(PAUSE);
    }
    assert_eq!(programs(), Vec::new());
}

#[test]
fn a_probe_finds_the_best_mode_and_leaves_no_state_behind() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return skipped(&error),
    };
    let index = of(&pair.far, "veth0").index;
    let probe_once = || pair.far.run(|| probe(index)).unwrap();
    let mut tried = probe_once();
    for _ in 0..PATIENCE {
        // A program attached by one method may stay until the next is tried; see `free`.
        if !matches!(&tried.native, Some(Err(error)) if error.errno() == Some(libc::EBUSY)) {
            break;
        }
        time::sleep(PAUSE);
        tried = probe_once();
    }
    // No veth receives without copies.
    assert_eq!(tried.zero_copy.unwrap_err().errno(), Some(libc::EOPNOTSUPP));
    assert!(matches!(tried.native, Some(Ok(()))), "{:?}", tried.native);
    assert!(tried.generic.is_none() && tried.packet.is_none());
    free(&pair.far);
}

#[test]
fn a_program_on_an_interface_is_reported_by_name_and_blocks_attaching() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return skipped(&error),
    };
    for (mode, found_mode) in [(Mode::Native, Mode::Native), (Mode::Generic, Mode::Generic)] {
        let index = of(&pair.far, "veth0").index;
        let program = program::pass().unwrap();
        let attached = pair
            .far
            .run(|| program::attach(&program, index, mode))
            .unwrap()
            .unwrap();
        let found = of(&pair.far, "veth0").xdp.unwrap();
        let [only] = &found[..] else { panic!("{found:?}") };
        let known = (only.name.as_deref(), only.mode, only.ours);
        assert_eq!(known, (Some("hopwise_try"), found_mode, Some(true)));
        let tried = pair.far.run(|| probe(index)).unwrap();
        assert!(tried.native.is_some_and(|native| native.is_err()));
        assert!(tried.generic.is_some_and(|generic| generic.is_err()));
        assert!(tried.packet.is_some_and(|packet| packet.is_ok()));
        drop(attached);
        free(&pair.far);
    }
}
