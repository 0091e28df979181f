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
    let expected = DevicePorts { edge: [2].into(), closed: [3, 4].into(), links: [(1, (9, 1))].into() };
    assert_eq!(ports, &expected);
    assert_eq!(inventory.host_by_address("::ffff:10.0.0.1".parse().unwrap()).unwrap().name, "h1");
}

#[test]
fn wrong_input_is_located_with_advice() {
    let cases = [
        ("[[devices]]\nname = \"a\"\n[[devices]]\nname = \"a\"", 3, "two devices are named `a`; rename one"),
        (
            "[[devices]]\nname = \"a b\"",
            1,
            "`a b` is not a name; use 1 to 63 letters, digits, `.`, `_` and `-`",
        ),
        (
            "[[devices]]\nname = \"a\"\nnode = 0",
            1,
            "`a` has node id 0, which means \"unknown\"; use 1 or more",
        ),
        (
            "[[devices]]\nname = \"a\"\n[[links]]\nbetween = [\"a:1\", \"b:1\"]",
            3,
            "there is no device `b`; add it to the inventory",
        ),
        (
            "[[devices]]\nname = \"a\"\n[[links]]\nbetween = [\"a:1\", \"a:2\"]",
            3,
            "a link leads from `a` to itself; correct one of its ends",
        ),
        (
            "[[hosts]]\nname = \"h\"\nat = \"x\"",
            1,
            "`x` is not a port; write \"DEVICE:PORT\", such as \"leaf1:3\"",
        ),
        (
            "[[devices]]\nname = \"a\"\nports = 4000000000",
            1,
            "there are more than 1024 ports of one device; split the domain",
        ),
    ];
    for (text, line, message) in cases {
        let error = read(text, "i.toml").unwrap_err().to_string();
        assert!(error.starts_with(&format!("i.toml:{line}:1: {message}")), "{error}");
    }
}

#[test]
fn contradictions_are_kept_and_closed() {
    let mut inventory = inventory();
    let leaf1 = inventory.node("leaf1").unwrap();
    inventory.set_peer((leaf1, 1), Some(Peer::Port(1, 3)), Origin::Device).unwrap();
    assert_eq!(inventory.role((leaf1, 1)), PortRole::Disputed);
    // The other end of the disputed link is closed as well.
    assert_eq!(inventory.role((9, 1)), PortRole::Disputed);
    let claims = vec![(Origin::File, Peer::Port(9, 1)), (Origin::Device, Peer::Port(1, 3))];
    assert!(inventory.contradictions().contains(&Contradiction { port: (leaf1, 1), claims }));
    assert!(inventory.topology().devices[&leaf1].closed.contains(&1));
    // Agreement ends it.
    inventory.set_peer((leaf1, 1), Some(Peer::Port(9, 1)), Origin::Device).unwrap();
    assert_eq!(inventory.contradictions(), []);
}

#[test]
fn a_link_that_one_end_reports_is_a_link() {
    let mut inventory = inventory();
    inventory.set_peer((1, 4), Some(Peer::Port(2, 4)), Origin::Device).unwrap();
    assert_eq!(inventory.role((1, 4)), PortRole::Fabric(2, 4));
    let topology = inventory.topology();
    assert_eq!(topology.devices[&2].links[&4], (1, 4));
    assert!(!topology.devices[&2].closed.contains(&4));
}

#[test]
fn a_removed_device_leaves_its_neighbours_ports_to_nobody() {
    let mut inventory = inventory();
    inventory.remove_device(9);
    assert_eq!([(2, 1), (1, 1)].map(|port| inventory.role(port)), [PortRole::Unused; 2]);
    assert_eq!(inventory.node("spine"), Err(InventoryError::UnknownDevice("spine".to_owned())));
}

#[test]
fn the_longest_path_is_between_edges() {
    let mut inventory = inventory();
    assert_eq!(inventory.topology().longest_path(), 0);
    inventory.set_peer((1, 2), Some(Peer::Hosts), Origin::Learned).unwrap();
    assert_eq!(inventory.topology().longest_path(), 2);
}
