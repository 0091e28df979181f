use super::*;

const FILE: &str = r#"
[[devices]]
name = "leaf1"
ports = 4
[[devices]]
name = "leaf2"
node = 1
ports = 4
[[devices]]
name = "spine"
node = 9
ports = 2
[[links]]
between = ["leaf1:1", "spine:1"]
mtu = 9000
[[links]]
between = ["leaf2:1", "spine:2"]
[[hosts]]
name = "h1"
addresses = ["10.0.0.1", "fd00::1"]
at = "leaf1:2"
"#;

fn inventory() -> Inventory {
    read(FILE, "inventory.toml").unwrap()
}

#[test]
fn a_file_gives_devices_links_hosts_and_roles() {
    let inventory = inventory();
    let leaf1 = inventory.node("leaf1").unwrap();
    assert_eq!((leaf1, inventory.mtu((leaf1, 1))), (2, Some(9000)));
    let roles = [1, 2, 3].map(|port| inventory.role((leaf1, port)));
    assert_eq!(roles, [PortRole::Fabric(9, 1), PortRole::Edge, PortRole::Unused]);
    let ports = &inventory.topology().devices[&leaf1];
    let expected = DevicePorts {
        edge: [2].into(),
        closed: [3, 4].into(),
        links: [(1, (9, 1))].into(),
    };
    assert_eq!(ports, &expected);
    assert_eq!(
        inventory
            .host_by_address("::ffff:10.0.0.1".parse().unwrap())
            .unwrap()
            .name,
        "h1"
    );
}

#[test]
fn wrong_input_is_located_with_advice() {
    let cases = [
        (
            "[[devices]]\nname = \"a\"\n[[devices]]\nname = \"a\"",
            "3:1",
            "two devices are named `a`; rename one",
        ),
        (
            "[[devices]]\nname = \"a b\"",
            "1:1",
            "`a b` is not a name; use 1 to 63 letters, digits, `.`, `_` and `-`",
        ),
        (
            "[[devices]]\nname = \"a\"\nnode = 0",
            "1:1",
            "`a` has node id 0, which means \"unknown\"; use 1 or more",
        ),
        (
            "[[devices]]\nname = \"a\"\n[[links]]\nbetween = [\"a:1\", \"b:1\"]",
            "4:11",
            "there is no device `b`; add it to the inventory",
        ),
        (
            "[[devices]]\nname = \"leaf1\"\n[[links]]\nbetween = [\"leaf1:1\", \"laef1:1\"]",
            "4:11",
            "there is no device `laef1`; did you mean `leaf1`?",
        ),
        (
            "[[devices]]\nname = \"a\"\n[[links]]\nbetween = [\"a:1\", \"a:2\"]",
            "4:11",
            "a link leads from `a` to itself; correct one of its ends",
        ),
        (
            "[[devices]]\nname = \"a\"\nrole = \"aggregator\"\nports = 2",
            "1:1",
            "`a` is outside the domain, which has none of its ports; remove its ports, links and hosts, or write role = \"switch\"",
        ),
        (
            "[[devices]]\nname = \"s1\"\n[[devices]]\nname = \"t\"\nrole = \"translator\"\n[[links]]\nbetween = [\"s1:1\", \"t:1\"]",
            "7:11",
            "`t` is outside the domain, which has none of its ports; remove its ports, links and hosts, or write role = \"switch\"",
        ),
        (
            "[[hosts]]\nname = \"h\"\nat = \"x\"",
            "1:1",
            "`x` is not a port; write \"DEVICE:PORT\", such as \"leaf1:3\"",
        ),
        (
            "[[devices]]\nname = \"a\"\nports = 4000000000",
            "1:1",
            "there are more than 1024 ports of one device; split the domain",
        ),
    ];
    for (text, place, message) in cases {
        let error = read(text, "i.toml").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("i.toml:{place}: {message}")),
            "{error}"
        );
    }
}

#[test]
fn contradictions_are_kept_and_closed() {
    let mut inventory = inventory();
    let leaf1 = inventory.node("leaf1").unwrap();
    inventory
        .set_peer((leaf1, 1), Some(Peer::Port(1, 3)), Origin::Device)
        .unwrap();
    assert_eq!(inventory.role((leaf1, 1)), PortRole::Disputed);
    // The other end of the disputed link is closed as well.
    assert_eq!(inventory.role((9, 1)), PortRole::Disputed);
    let claims = vec![
        (Origin::File, Peer::Port(9, 1)),
        (Origin::Device, Peer::Port(1, 3)),
    ];
    assert!(inventory.contradictions().contains(&Contradiction {
        port: (leaf1, 1),
        claims
    }));
    assert!(inventory.topology().devices[&leaf1].closed.contains(&1));
    // Agreement ends it.
    inventory
        .set_peer((leaf1, 1), Some(Peer::Port(9, 1)), Origin::Device)
        .unwrap();
    assert_eq!(inventory.contradictions(), []);
}

#[test]
fn a_link_that_both_devices_report_is_a_link() {
    let mut inventory = inventory();
    inventory
        .set_peer((1, 4), Some(Peer::Port(2, 4)), Origin::Device)
        .unwrap();
    // One end alone may have heard what a host has forged.
    assert_eq!(
        [(1, 4), (2, 4)].map(|port| inventory.role(port)),
        [PortRole::Unused; 2]
    );
    let suggestion = Suggestion {
        between: [(1, 4), (2, 4)],
        claims: vec![(Origin::Device, (1, 4))],
    };
    assert_eq!(inventory.suggestions(), [suggestion]);
    inventory
        .set_peer((2, 4), Some(Peer::Port(1, 4)), Origin::Device)
        .unwrap();
    assert_eq!(
        [(1, 4), (2, 4)].map(|p| inventory.role(p)),
        [PortRole::Fabric(2, 4), PortRole::Fabric(1, 4)]
    );
    let topology = inventory.topology();
    assert_eq!(topology.devices[&2].links[&4], (1, 4));
    assert!(!topology.devices[&2].closed.contains(&4));
    assert_eq!(inventory.suggestions(), []);
}

/// Every set of claims about both ends of a link, as forged reports and LLDPDUs could make them: without the file, only two devices
/// that agree open a port, and what is learned changes nothing.
#[test]
fn what_is_learned_never_opens_a_border() {
    let choices = [
        None,
        Some(Peer::Port(2, 4)),
        Some(Peer::Port(9, 2)),
        Some(Peer::Hosts),
    ];
    let back = [
        None,
        Some(Peer::Port(1, 4)),
        Some(Peer::Port(9, 2)),
        Some(Peer::Hosts),
    ];
    let pairs = |choices: [Option<Peer>; 4]| -> Vec<[Option<Peer>; 2]> {
        let each = choices.clone().into_iter();
        each.flat_map(|a| choices.clone().map(|b| [a.clone(), b]))
            .collect()
    };
    let mut fabric = 0;
    for [device, learned] in pairs(choices.clone()) {
        for [device_back, learned_back] in pairs(back.clone()) {
            let mut inventory = inventory();
            for port in [(1, 4), (2, 4), (9, 2)] {
                inventory.add_port(port, None, None).unwrap();
            }
            inventory
                .set_peer((1, 4), device.clone(), Origin::Device)
                .unwrap();
            inventory
                .set_peer((2, 4), device_back.clone(), Origin::Device)
                .unwrap();
            let without = inventory.topology();
            inventory
                .set_peer((1, 4), learned.clone(), Origin::Learned)
                .unwrap();
            inventory
                .set_peer((2, 4), learned_back.clone(), Origin::Learned)
                .unwrap();
            assert_eq!(inventory.topology(), without);
            let open = (&device, &device_back) == (&choices[1], &back[1]);
            let links = [(1, 4), (2, 4)].map(|(node, port)| without.devices[&node].links.contains_key(&port));
            assert_eq!(links, [open; 2], "{device:?} {device_back:?}");
            fabric += u32::from(open);
        }
    }
    assert_eq!(fabric, 16);
}

#[test]
fn what_is_learned_is_a_suggestion_or_a_contradiction() {
    let mut inventory = inventory();
    inventory.add_link((2, 1), (9, 1), Origin::Learned).unwrap();
    assert_eq!(
        (inventory.contradictions(), inventory.suggestions()),
        (vec![], vec![]),
        "confirmed"
    );
    inventory.add_link((2, 3), (1, 4), Origin::Learned).unwrap();
    let claims = vec![(Origin::Learned, (1, 4)), (Origin::Learned, (2, 3))];
    assert_eq!(
        inventory.suggestions(),
        [Suggestion {
            between: [(1, 4), (2, 3)],
            claims
        }]
    );
    // A link that the file has with another end.
    inventory
        .set_peer((2, 1), Some(Peer::Port(1, 3)), Origin::Learned)
        .unwrap();
    assert_eq!(inventory.role((2, 1)), PortRole::Fabric(9, 1));
    let claims = vec![
        (Origin::File, Peer::Port(9, 1)),
        (Origin::Learned, Peer::Port(1, 3)),
    ];
    let other = (Origin::File, Peer::Port(2, 1));
    let claims = [claims, vec![other, (Origin::Learned, Peer::Port(2, 1))]].concat();
    assert_eq!(
        inventory.contradictions(),
        [Contradiction { port: (2, 1), claims }]
    );
}

#[test]
fn a_neighbour_is_found_by_name() {
    let mut inventory = inventory();
    inventory
        .add_port((9, 1), Some("Ethernet0".to_owned()), None)
        .unwrap();
    // A name that is the number of another port.
    inventory.add_port((9, 2), Some("1".to_owned()), None).unwrap();
    let resolve = |system: &str, port: &str| {
        inventory.resolve(&crate::driver::Neighbour {
            system: system.to_owned(),
            port: port.to_owned(),
        })
    };
    assert_eq!(resolve("spine", "Ethernet0"), Ok((9, 1)));
    assert_eq!(resolve("spine.dc1.example", "1"), Ok((9, 2)));
    assert_eq!(resolve("leaf1", "3"), Ok((2, 3)));
    assert_eq!(resolve("leaf1", "5"), Err(Unresolved::Port(2, "5".to_owned())));
    assert_eq!(resolve("tor9", "1"), Err(Unresolved::System("tor9".to_owned())));
}

#[test]
fn a_removed_device_leaves_its_neighbours_ports_to_nobody() {
    let mut inventory = inventory();
    inventory.remove_device(9);
    assert_eq!(
        [(2, 1), (1, 1)].map(|port| inventory.role(port)),
        [PortRole::Unused; 2]
    );
    assert_eq!(
        inventory.node("spine"),
        Err(InventoryError::UnknownDevice("spine".to_owned()))
    );
}

#[test]
fn the_longest_path_is_between_edges() {
    let mut inventory = inventory();
    assert_eq!(inventory.topology().longest_path(), 0);
    inventory
        .set_peer((1, 2), Some(Peer::Hosts), Origin::Device)
        .unwrap();
    assert_eq!(inventory.topology().longest_path(), 2);
}
