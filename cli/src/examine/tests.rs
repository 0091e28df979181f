//! Checks and verdicts for given facts.

use nic::capabilities::{Cap, CapSet, Capabilities};
use nic::device::{
    Attached, Facts, Feature, HugePages, Level, Limits, Machine, Member, Mode, Offloads, Peer, Queues,
    RxErrors, XdpFeatures,
};

use super::*;

/// All capabilities that AF_XDP needs.
const CAPS: [Cap; 4] = [Cap::BPF, Cap::NET_ADMIN, Cap::NET_RAW, Cap::IPC_LOCK];

fn capabilities(caps: &[Cap]) -> Option<Capabilities> {
    Some(Capabilities {
        effective: CapSet::of(caps),
        ..Capabilities::default()
    })
}

/// A machine without problems.
fn machine() -> Machine {
    Machine {
        kernel: Some("6.1.0-18-amd64".to_owned()),
        cpus: Some(8),
        rmem_max: Some(16 << 20),
        rmem_default: Some(212_992),
        backlog: Some(1000),
        backlog_drops: Some(0),
        memlock: Some(Limits {
            soft: 8 << 20,
            hard: 8 << 20,
        }),
        huge_pages: Some(HugePages {
            total: 64,
            free: 64,
            size: 2 << 20,
        }),
        transparent_huge_pages: Some("madvise".to_owned()),
        capabilities: capabilities(&CAPS),
        btf: Some(true),
        bpf_jit: Some(1),
        unprivileged_bpf_disabled: Some(2),
        xdp_sockets: Some(true),
    }
}

const OFF: Option<Feature> = Some(Feature {
    on: false,
    fixed: false,
});
const ON: Option<Feature> = Some(Feature {
    on: true,
    fixed: false,
});
const FIXED: Option<Feature> = Some(Feature {
    on: true,
    fixed: true,
});

/// A NIC without problems.
fn healthy_nic() -> Facts {
    let none = Level { now: 0, max: 0 };
    Facts {
        name: "eth1".to_owned(),
        index: 2,
        up: true,
        carrier: Some(true),
        mtu: Some(1500),
        kind: None,
        driver: Some("ice".to_owned()),
        bus: Some("0000:01:00.0".to_owned()),
        numa: Some(0),
        queues: Some(Queues {
            rx: none,
            tx: none,
            combined: Level { now: 8, max: 64 },
        }),
        rx_ring: Some(Level { now: 4096, max: 8160 }),
        offloads: Offloads {
            lro: OFF,
            gro: ON,
            gro_hw: OFF,
            gro_list: OFF,
            udp_gro_forwarding: OFF,
            rx_vlan: OFF,
            ntuple: OFF,
        },
        xdp: Some(Vec::new()),
        xdp_features: Some(XdpFeatures(0b10_1011)),
        peer: None,
        member: None,
        lost: Some(RxErrors::default()),
    }
}

/// A veth whose other end can be seen.
fn veth() -> Facts {
    let level = |now, max| Level { now, max };
    let peer = Peer {
        index: 3,
        elsewhere: false,
        name: Some("veth1".to_owned()),
        mtu: Some(1500),
        tx_queues: Some(1),
    };
    Facts {
        kind: Some("veth".to_owned()),
        driver: Some("veth".to_owned()),
        bus: None,
        queues: Some(Queues {
            rx: level(1, 4),
            tx: level(1, 4),
            combined: level(0, 0),
        }),
        rx_ring: None,
        xdp_features: Some(XdpFeatures(0b0011)),
        peer: Some(peer),
        ..healthy_nic()
    }
}

fn requirements(inputs: Vec<Input>) -> Requirements {
    Requirements {
        inputs,
        ..Requirements::new(&Settings::default())
    }
}

fn report(facts: &Facts, machine: &Machine) -> Report {
    let input = Input::interface(&facts.name, true);
    let requirements = requirements(vec![input.clone()]);
    let examined = examine_input(
        &requirements,
        &input,
        Some(facts.clone()),
        machine,
        Depth::default(),
    );
    let inputs = vec![examined];
    let checks = machine::checks(&requirements, machine, &inputs);
    Report {
        machine: machine.clone(),
        checks,
        inputs,
    }
}

/// Every check that is not `ok`: name, verdict, found, command.
fn complaints(facts: &Facts, machine: &Machine) -> Vec<String> {
    let report = report(facts, machine);
    let all = report
        .checks
        .iter()
        .chain(report.inputs.iter().flat_map(|examined| &examined.checks));
    all.filter(|check| check.verdict != Verdict::Ok)
        .map(|check| {
            let fix = check.fix.as_deref().unwrap_or("-");
            format!(
                "{}: {}: {}: {fix}",
                check.name,
                check.verdict.name(),
                check.finding
            )
        })
        .collect()
}

#[test]
fn a_good_machine_and_nic_give_no_findings() {
    assert_eq!(complaints(&healthy_nic(), &machine()), [""; 0]);
    assert_eq!(complaints(&veth(), &machine()), [""; 0]);
    assert_eq!(report(&healthy_nic(), &machine()).verdict(), Verdict::Ok);
}

/// Each is the complete output for these facts on a good machine.
fn assert_checks<const N: usize>(cases: [(Facts, &str); N]) {
    for (facts, expected) in cases {
        assert_eq!(complaints(&facts, &machine()), [expected]);
    }
}

#[test]
fn offloads_blocking_are_reported_with_their_command() {
    let with = |change: fn(&mut Offloads)| {
        let mut facts = healthy_nic();
        change(&mut facts.offloads);
        facts
    };
    assert_checks([
        (
            with(|offloads| offloads.lro = ON),
            "lro: blocking: on: ethtool -K eth1 lro off",
        ),
        (
            with(|offloads| offloads.gro_hw = ON),
            "gro_hw: blocking: on: ethtool -K eth1 rx-gro-hw off",
        ),
        (
            with(|offloads| offloads.gro_hw = FIXED),
            "gro_hw: suboptimal: on, cannot be changed: -",
        ),
        (
            with(|offloads| offloads.gro_list = ON),
            "gro_list: suboptimal: on: ethtool -K eth1 rx-gro-list off",
        ),
        (
            with(|offloads| offloads.udp_gro_forwarding = ON),
            "udp_gro_forwarding: suboptimal: on: ethtool -K eth1 rx-udp-gro-forwarding off",
        ),
        (
            with(|offloads| offloads.rx_vlan = ON),
            "rx_vlan: suboptimal: on: ethtool -K eth1 rxvlan off",
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list, in its order")]
fn each_fault_of_an_interface_has_its_verdict_and_its_command() {
    let program = |name: Option<&str>, mode, ours| {
        let name = name.map(str::to_owned);
        Some(vec![Attached {
            id: 7,
            name,
            mode,
            ours,
        }])
    };
    assert_checks([
        (
            Facts {
                up: false,
                ..healthy_nic()
            },
            "link: blocking: down: ip link set dev eth1 up",
        ),
        (
            Facts {
                carrier: Some(false),
                ..healthy_nic()
            },
            "link: blocking: up, no carrier: -",
        ),
        (
            Facts {
                rx_ring: Some(Level { now: 512, max: 8160 }),
                ..healthy_nic()
            },
            "rx_ring: suboptimal: 512 of at most 8160: ethtool -G eth1 rx 4096",
        ),
        (
            Facts {
                rx_ring: Some(Level { now: 256, max: 1024 }),
                ..healthy_nic()
            },
            "rx_ring: suboptimal: 256 of at most 1024: ethtool -G eth1 rx 1024",
        ),
        (
            Facts {
                mtu: Some(9000),
                xdp_features: Some(XdpFeatures(0b1011)),
                ..healthy_nic()
            },
            "mtu: suboptimal: 9000: ip link set dev eth1 mtu 3506",
        ),
        (
            Facts {
                xdp_features: Some(XdpFeatures(0)),
                ..healthy_nic()
            },
            "driver: suboptimal: ice: no native XDP: -",
        ),
        (
            Facts {
                xdp: program(Some("other"), Mode::Native, Some(false)),
                ..healthy_nic()
            },
            "xdp_program: blocking: other (id 7, native): ip link set dev eth1 xdpdrv off",
        ),
        (
            Facts {
                xdp: program(None, Mode::Generic, None),
                ..healthy_nic()
            },
            "xdp_program: blocking: of unknown name (id 7, generic): ip link set dev eth1 xdpgeneric off",
        ),
        (
            Facts {
                xdp: program(Some("hopwise_steer"), Mode::Native, Some(true)),
                ..healthy_nic()
            },
            "xdp_program: blocking: hopwise_steer (id 7, native): pgrep -a hopwise",
        ),
        (
            Facts {
                member: Some(Member {
                    kind: "bond".to_owned(),
                    of: Some("bond0".to_owned()),
                    index: Some(9),
                }),
                ..healthy_nic()
            },
            "member: suboptimal: of the bond bond0: -",
        ),
        (
            Facts {
                lost: Some(RxErrors {
                    dropped: 9,
                    overruns: 1,
                    missed: 2,
                }),
                ..healthy_nic()
            },
            "lost_by_nic: suboptimal: 3 frames since the interface was created: ethtool -S eth1",
        ),
        (
            Facts {
                name: "e h".to_owned(),
                up: false,
                ..healthy_nic()
            },
            "link: blocking: down: ip link set dev 'e h' up",
        ),
    ]);
}

#[test]
fn queues_are_enough_when_each_processor_has_one() {
    let with = |queues| {
        complaints(
            &Facts {
                queues: Some(queues),
                ..healthy_nic()
            },
            &machine(),
        )
    };
    let level = |now, max| Level { now, max };
    let none = level(0, 0);
    let combined = Queues {
        rx: none,
        tx: none,
        combined: level(1, 4),
    };
    let expected = "queues: suboptimal: 1 of at most 4: ethtool -L eth1 combined 4";
    assert_eq!(with(combined), [expected]);
    let wide = Queues {
        combined: level(2, 64),
        ..combined
    };
    let expected = "queues: suboptimal: 2 of at most 64: ethtool -L eth1 combined 8";
    assert_eq!(with(wide), [expected]);
    let apart = Queues {
        rx: level(1, 2),
        tx: level(1, 2),
        combined: none,
    };
    assert_eq!(
        with(apart),
        ["queues: suboptimal: 1 of at most 2: ethtool -L eth1 rx 2"]
    );
}

#[test]
fn a_veth_runs_programs_on_two_conditions() {
    let queues = |rx| {
        Some(Queues {
            rx,
            ..veth().queues.unwrap()
        })
    };
    let peer = |tx_queues, mtu| {
        let peer = Peer {
            tx_queues: Some(tx_queues),
            mtu: Some(mtu),
            ..veth().peer.unwrap()
        };
        Facts {
            peer: Some(peer),
            ..veth()
        }
    };
    let reason = |facts: &Facts| {
        rx_path::predict(facts, &machine(), RxPath::ZeroCopy)
            .excluded
            .pop()
            .unwrap()
    };
    let wide = peer(3, 1500);
    let expected = "peer: blocking: veth1 sends on 3 queues, eth1 receives on 1: ethtool -L eth1 rx 3";
    assert_eq!(complaints(&wide, &machine()), [expected]);
    let text = "its peer sends on 3 queues, and it receives on 1".to_owned();
    assert_eq!(reason(&wide), (RxPath::Native, text));
    let narrow = Facts {
        queues: queues(Level { now: 1, max: 1 }),
        ..wide
    };
    let expected = "peer: blocking: veth1 sends on 3 queues, eth1 receives on 1: ethtool -L veth1 tx 1";
    assert_eq!(complaints(&narrow, &machine()), [expected]);
    assert_eq!(
        complaints(
            &Facts {
                xdp_features: Some(XdpFeatures(0b10_0011)),
                ..peer(1, 9000)
            },
            &machine()
        ),
        [""; 0]
    );
    let long = peer(1, 3507);
    let expected = "peer: blocking: veth1 has an MTU of 3507: ip link set dev veth1 mtu 3506";
    assert_eq!(complaints(&long, &machine()), [expected]);
    assert_eq!(
        reason(&long),
        (
            RxPath::Native,
            "the MTU of its peer is 3507, more than 3506".to_owned()
        )
    );
    assert_eq!(complaints(&peer(1, 3506), &machine()), [""; 0]);
    let hidden = Peer {
        elsewhere: true,
        name: None,
        mtu: None,
        tx_queues: None,
        ..veth().peer.unwrap()
    };
    let hidden = complaints(
        &Facts {
            peer: Some(hidden),
            ..veth()
        },
        &machine(),
    );
    assert_eq!(
        hidden,
        ["peer: unknown: index 3 in another namespace, not visible from here: -"]
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list, in its order")]
fn the_rx_path_follows_from_the_facts() {
    let rx_path = |facts: &Facts, machine: &Machine| {
        let expected = rx_path::predict(facts, machine, RxPath::ZeroCopy);
        let perhaps: Vec<&str> = expected.uncertain.iter().map(|rx_path| rx_path.name()).collect();
        let not: Vec<&str> = expected
            .excluded
            .iter()
            .map(|(rx_path, _)| rx_path.name())
            .collect();
        format!(
            "{} perhaps {} not {}",
            expected.rx_path.name(),
            perhaps.join(" "),
            not.join(" ")
        )
    };
    let features = |bits| Facts {
        xdp_features: bits,
        ..healthy_nic()
    };
    let good = machine();
    assert_eq!(rx_path(&healthy_nic(), &good), "xdp-zerocopy perhaps  not ");
    assert_eq!(
        rx_path(&features(Some(XdpFeatures(3))), &good),
        "xdp-native perhaps  not xdp-zerocopy"
    );
    assert_eq!(
        rx_path(&features(Some(XdpFeatures(1))), &good),
        "xdp-generic perhaps  not xdp-zerocopy xdp-native"
    );
    assert_eq!(
        rx_path(&features(Some(XdpFeatures(0))), &good),
        "xdp-generic perhaps  not xdp-zerocopy xdp-native"
    );
    assert_eq!(
        rx_path(&features(None), &good),
        "xdp-generic perhaps xdp-zerocopy xdp-native not "
    );
    let lro = Facts {
        offloads: Offloads {
            lro: ON,
            ..healthy_nic().offloads
        },
        ..healthy_nic()
    };
    assert_eq!(
        rx_path(&lro, &good),
        "xdp-generic perhaps xdp-zerocopy xdp-native not "
    );
    let jumbo = Facts {
        mtu: Some(9000),
        ..healthy_nic()
    };
    assert_eq!(rx_path(&jumbo, &good), "xdp-zerocopy perhaps  not ");
    let jumbo = Facts {
        xdp_features: Some(XdpFeatures(0b1011)),
        ..jumbo
    };
    assert_eq!(
        rx_path(&jumbo, &good),
        "xdp-generic perhaps xdp-zerocopy xdp-native not "
    );
    let old = Machine {
        xdp_sockets: Some(false),
        ..machine()
    };
    assert_eq!(
        rx_path(&healthy_nic(), &old),
        "packet perhaps  not xdp-zerocopy xdp-native xdp-generic"
    );
    let other = Facts {
        xdp: Some(vec![Attached {
            id: 7,
            name: None,
            mode: Mode::Native,
            ours: None,
        }]),
        ..healthy_nic()
    };
    assert_eq!(
        rx_path(&other, &good),
        "packet perhaps  not xdp-zerocopy xdp-native xdp-generic"
    );
    let raw = Machine {
        capabilities: capabilities(&[Cap::NET_RAW]),
        ..machine()
    };
    assert_eq!(
        rx_path(&healthy_nic(), &raw),
        "packet perhaps  not xdp-zerocopy xdp-native xdp-generic"
    );
    let unprivileged = Machine {
        capabilities: capabilities(&[]),
        ..machine()
    };
    assert_eq!(
        rx_path(&healthy_nic(), &unprivileged),
        "udp perhaps  not xdp-zerocopy xdp-native xdp-generic packet"
    );
    // CAP_SYS_ADMIN loads programs, too.
    let older = Machine {
        capabilities: capabilities(&[Cap::SYS_ADMIN, Cap::NET_ADMIN, Cap::NET_RAW]),
        ..machine()
    };
    assert_eq!(rx_path(&healthy_nic(), &older), "xdp-zerocopy perhaps  not ");
    let never = rx_path::predict(&healthy_nic(), &good, RxPath::Native);
    assert_eq!((never.rx_path, never.excluded), (RxPath::Native, Vec::new()));
}

#[test]
fn an_rx_path_that_is_too_slow_is_blocking_unless_a_better_one_may_work() {
    let low = |rx_path, perhaps: &[RxPath], lowest| {
        let expected = Expected {
            rx_path,
            uncertain: perhaps.to_vec(),
            ..Expected::default()
        };
        rx_path::check_lowest(&expected, lowest).map(|check| check.finding)
    };
    assert_eq!(low(RxPath::Native, &[], RxPath::Udp), None);
    assert_eq!(low(RxPath::Native, &[], RxPath::Native), None);
    assert_eq!(
        low(RxPath::Generic, &[], RxPath::Native).as_deref(),
        Some("xdp-generic at best, xdp-native requested")
    );
    assert_eq!(
        low(
            RxPath::Generic,
            &[RxPath::ZeroCopy, RxPath::Native],
            RxPath::Native
        ),
        None
    );
}

#[test]
fn each_fault_of_the_machine_has_its_verdict_and_its_command() {
    let setcap = "setcap cap_bpf,cap_net_admin,cap_net_raw,cap_ipc_lock+ep $(command -v hopwise)";
    let cases = [
        (
            Machine {
                kernel: Some("5.8.0".to_owned()),
                ..machine()
            },
            "kernel: suboptimal: 5.8.0: -".to_owned(),
        ),
        (
            Machine {
                kernel: Some("4.19.0".to_owned()),
                ..machine()
            },
            "kernel: blocking: 4.19.0: -".to_owned(),
        ),
        (
            Machine {
                backlog_drops: Some(7),
                ..machine()
            },
            "backlog: suboptimal: room for 1,000 frames, 7 frames lost since the machine started: \
             sysctl -w net.core.netdev_max_backlog=10000"
                .to_owned(),
        ),
        (
            Machine {
                huge_pages: Some(HugePages {
                    total: 70,
                    free: 28,
                    size: 2 << 20,
                }),
                ..machine()
            },
            "huge_pages: suboptimal: 28 of 70 free, 32 wanted: sysctl -w vm.nr_hugepages=74".to_owned(),
        ),
        (
            Machine {
                transparent_huge_pages: Some("never".to_owned()),
                ..machine()
            },
            "transparent_huge_pages: suboptimal: never: \
             echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
                .to_owned(),
        ),
        (
            Machine {
                bpf_jit: Some(0),
                ..machine()
            },
            "bpf_jit: suboptimal: off: sysctl -w net.core.bpf_jit_enable=1".to_owned(),
        ),
        (
            Machine {
                xdp_sockets: Some(false),
                ..machine()
            },
            "xdp_sockets: blocking: not in this kernel: -".to_owned(),
        ),
        (
            Machine {
                capabilities: capabilities(&[Cap::BPF, Cap::NET_ADMIN, Cap::IPC_LOCK]),
                ..machine()
            },
            format!("capabilities: blocking: CAP_NET_RAW missing: {setcap}"),
        ),
        (
            Machine {
                capabilities: capabilities(&CAPS[..3]),
                ..machine()
            },
            format!("memlock: blocking: 8 MiB, 64 MiB needed: {setcap}"),
        ),
        (
            Machine {
                capabilities: capabilities(&CAPS[..3]),
                memlock: Some(Limits {
                    soft: 8 << 20,
                    hard: u64::MAX,
                }),
                ..machine()
            },
            "memlock: blocking: 8 MiB, 64 MiB needed: ulimit -l 65536".to_owned(),
        ),
        (
            Machine {
                bpf_jit: None,
                ..machine()
            },
            "bpf_jit: unknown: unknown: -".to_owned(),
        ),
    ];
    for (machine, expected) in cases {
        assert_eq!(complaints(&healthy_nic(), &machine), [expected]);
    }
}

#[test]
fn receive_buffers_have_a_limit_without_cap_net_admin() {
    let poor = Machine {
        rmem_max: Some(212_992),
        capabilities: capabilities(&[]),
        ..machine()
    };
    let found = complaints(&healthy_nic(), &poor);
    let expected =
        "receive_buffer: suboptimal: 208 KiB instead of 16 MiB: sysctl -w net.core.rmem_max=16777216";
    assert_eq!(found[0], expected);
    let enough = Machine {
        rmem_max: Some(16 << 20),
        ..poor
    };
    assert!(complaints(&healthy_nic(), &enough)[0].starts_with("capabilities: "));
}

#[test]
fn problems_of_unrequested_inputs_do_not_block() {
    let unprivileged = Machine {
        capabilities: capabilities(&[]),
        ..machine()
    };
    let facts = Facts {
        up: false,
        ..healthy_nic()
    };
    let inputs = |asked| {
        let input = Input::interface("eth1", asked);
        let examined = examine_input(
            &requirements(Vec::new()),
            &input,
            Some(facts.clone()),
            &unprivileged,
            Depth::default(),
        );
        let inputs = vec![examined];
        let checks = machine::checks(&requirements(Vec::new()), &unprivileged, &inputs);
        Report {
            machine: unprivileged.clone(),
            checks,
            inputs,
        }
    };
    assert_eq!(inputs(true).verdict(), Verdict::Blocking);
    assert_eq!(inputs(false).verdict(), Verdict::Suboptimal);
}

#[test]
fn inputs_by_udp_need_nothing_of_af_xdp() {
    let requirements = Requirements::new(&Settings::default());
    let names: Vec<_> = machine::checks(&requirements, &machine(), &[])
        .iter()
        .map(|check| check.name)
        .collect();
    assert_eq!(names, ["receive_buffer", "backlog", "transparent_huge_pages"]);
}

#[test]
fn names_are_quoted_where_a_shell_would_read_them() {
    assert_eq!(
        ["eth1", "br-3.4", "$(x)", "a'b"].map(quoted),
        ["eth1", "br-3.4", "'$(x)'", r"'a'\''b'"]
    );
}

#[test]
fn detection_in_the_kernel_takes_one_capability_more() {
    let requirements = Requirements {
        kernel_mode: true,
        ..requirements(Vec::new())
    };
    let input = Input::interface("eth1", true);
    let found = |caps: &[Cap]| {
        let machine = Machine {
            capabilities: capabilities(caps),
            ..machine()
        };
        let examined = vec![examine_input(
            &requirements,
            &input,
            Some(healthy_nic()),
            &machine,
            Depth::default(),
        )];
        let checks = machine::checks(&requirements, &machine, &examined);
        let check = checks
            .into_iter()
            .find(|check| check.name == "kernel_mode")
            .unwrap();
        (check.verdict, check.fix)
    };
    let setcap = "setcap cap_bpf,cap_perfmon,cap_net_admin,cap_net_raw,cap_ipc_lock+ep $(command -v hopwise)"
        .to_owned();
    assert_eq!(found(&CAPS), (Verdict::Blocking, Some(setcap)));
    assert_eq!(found(&[&CAPS[..], &[Cap::PERFMON]].concat()), (Verdict::Ok, None));
}
