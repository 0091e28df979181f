//! `hopwise doctor` on real interfaces: links between namespaces, with good and bad settings.

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use nic::device;
use nic::netns::{Namespace, Pair};
use serde_json::Value;

use crate::support::{Run, TempDir, hopwise, public_copy, skipped};

/// Two interfaces in one namespace, so that all facts about both are visible: `one` and `two`, both up.
fn cable(queues: &str) -> Option<Namespace> {
    let made = Namespace::create().and_then(|namespace| {
        let one = [
            "link",
            "add",
            "one",
            "numrxqueues",
            queues,
            "numtxqueues",
            queues,
            "type",
            "veth",
        ];
        let two = [
            "peer",
            "name",
            "two",
            "numrxqueues",
            queues,
            "numtxqueues",
            queues,
        ];
        namespace.ip(&[&one[..], &two].concat())?;
        for side in ["one", "two"] {
            namespace.ip(&["link", "set", side, "up"])?;
        }
        Ok(namespace)
    });
    made.inspect_err(|error| skipped(&format!("doctor in namespaces: {error}")))
        .ok()
}

fn within(namespace: &Namespace, args: &[&str]) -> Run {
    namespace.run(|| hopwise([&["doctor"], args].concat())).unwrap()
}

/// The output of `--json`, and the exit code.
fn examined(namespace: &Namespace, args: &[&str]) -> (Value, Option<i32>) {
    let run = within(namespace, &[args, &["--json"]].concat());
    assert_eq!(run.stderr, "");
    (run.json().remove(0), run.code)
}

/// The check of this name: verdict and command.
fn check(of: &Value, name: &str) -> (String, Option<String>) {
    let checks = of["checks"].as_array().unwrap();
    let check = checks
        .iter()
        .find(|check| check["check"] == name)
        .unwrap_or_else(|| panic!("{name} in {of:#}"));
    (
        check["verdict"].as_str().unwrap().to_owned(),
        check["fix"].as_str().map(str::to_owned),
    )
}

fn good() -> (String, Option<String>) {
    ("ok".to_owned(), None)
}

fn fixed(verdict: &str, command: &str) -> (String, Option<String>) {
    (verdict.to_owned(), Some(command.to_owned()))
}

#[test]
fn an_interface_uses_the_rx_path_that_the_doctor_expects() {
    let Some(namespace) = cable("2") else { return };
    let rx_path = |args: &[&str]| {
        let (report, code) = examined(&namespace, &[&["one"], args].concat());
        let expected = &report["inputs"][0]["expected"];
        assert_eq!(expected["tried"], args.contains(&"--try"));
        assert_eq!(expected["perhaps"], Value::Array(Vec::new()));
        assert_eq!(
            report["inputs"][0]["interface"]["xdp_programs"],
            Value::Array(Vec::new())
        );
        (
            expected["rx_path"].as_str().unwrap().to_owned(),
            code,
            expected["not"].to_string(),
        )
    };
    let both = |expected: &str, code| {
        for args in [&[][..], &["--try"]] {
            let (found, found_code, not) = rx_path(args);
            assert_eq!(
                (found.as_str(), found_code),
                (expected, Some(code)),
                "{args:?}: {not}"
            );
        }
    };
    let set = |interface: &str, rx, tx| {
        namespace
            .run(|| device::set_queues(interface, rx, tx))
            .unwrap()
            .unwrap();
    };
    set("one", 2, 1);
    set("two", 1, 2);
    both("xdp-native", 0);
    // More queues on the other side than on ours.
    set("one", 1, 1);
    both("xdp-generic", 1);
    let (report, _) = examined(&namespace, &["one"]);
    assert_eq!(
        check(&report["inputs"][0], "peer"),
        fixed("blocking", "ethtool -L one rx 2")
    );
    set("two", 1, 1);
    // A program that supports frames in several buffers accepts long packets, too.
    namespace.ip(&["link", "set", "two", "mtu", "9000"]).unwrap();
    both("xdp-native", 0);
}

#[test]
fn a_bad_setting_is_reported_with_the_command_that_fixes_it() {
    let Some(namespace) = cable("1") else { return };
    let offload = |name, on| {
        namespace
            .run(|| device::set_offload("one", name, on))
            .unwrap()
            .unwrap()
    };
    let checked = |name| check(&examined(&namespace, &["one"]).0["inputs"][0], name);
    for (option, name, command) in [
        ("rx-vlan-hw-parse", "rx_vlan", "ethtool -K one rxvlan off"),
        (
            "rx-udp-gro-forwarding",
            "udp_gro_forwarding",
            "ethtool -K one rx-udp-gro-forwarding off",
        ),
        ("rx-gro-list", "gro_list", "ethtool -K one rx-gro-list off"),
    ] {
        offload(option, true);
        assert_eq!(checked(name), fixed("suboptimal", command));
        offload(option, false);
        assert_eq!(checked(name), good());
    }
    namespace.ip(&["link", "set", "one", "down"]).unwrap();
    assert_eq!(checked("link"), fixed("blocking", "ip link set dev one up"));
    let (_, code) = examined(&namespace, &["one"]);
    assert_eq!(code, Some(1));
    let (other, _) = examined(&namespace, &["two"]);
    // Its peer is down, and there is no command for that.
    assert_eq!(check(&other["inputs"][0], "link"), ("blocking".to_owned(), None));
}

#[test]
fn people_read_the_same() {
    let Some(namespace) = cable("1") else { return };
    namespace
        .run(|| device::set_offload("one", "rx-vlan-hw-parse", true))
        .unwrap()
        .unwrap();
    let run = within(&namespace, &["xdp://one"]);
    assert_eq!(run.code, Some(0), "{}", run.stdout);
    for line in [
        "this machine\n",
        "\nxdp://one\n  expected: xdp-native\n    not xdp-zerocopy: the driver (veth) cannot write into a program's memory\n",
        "  ok          link                up\n",
        "  suboptimal  rx vlan             on\n              The NIC strips the VLAN tag",
        "              $ ethtool -K one rxvlan off\n",
    ] {
        assert!(run.stdout.contains(line), "{line:?} in {}", run.stdout);
    }
    assert!(!run.stdout.contains('\x1b'), "{}", run.stdout);
    let last = run.stdout.lines().last().unwrap();
    assert!(
        last.starts_with("ok; ") && last.ends_with(" suboptimal"),
        "{last}"
    );
    let run = within(&namespace, &["none0"]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stdout.contains("blocking    interface  there is no none0\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn inputs_of_a_configuration_are_examined() {
    let Some(namespace) = cable("1") else { return };
    let directory = TempDir::new();
    let config = directory.join("hopwise.toml");
    fs::write(
        &config,
        "collector.listen = [\"udp://127.0.0.1:32766\", \"udp://192.0.2.1:5000\"]\n",
    )
    .unwrap();
    let config = config.to_str().unwrap();
    let (report, code) = examined(&namespace, &["-c", config]);
    let inputs: Vec<_> = report["inputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|input| &input["input"])
        .collect();
    assert_eq!(inputs, ["udp://127.0.0.1:32766", "udp://192.0.2.1:5000"]);
    assert_eq!(report["inputs"][0]["expected"]["rx_path"], "udp");
    assert_eq!(
        check(&report["inputs"][1], "address"),
        fixed("blocking", "ip -br address")
    );
    assert_eq!((report["verdict"].as_str(), code), (Some("blocking"), Some(1)));

    fs::write(config, "collector.listen = [\"udp://127.0.0.1:32766\"]\n").unwrap();
    let (report, code) = examined(&namespace, &["-c", config, "--ports"]);
    assert_eq!((check(&report["inputs"][0], "port"), code), (good(), Some(0)));
    let taken = namespace
        .run(|| UdpSocket::bind("127.0.0.1:32766"))
        .unwrap()
        .unwrap();
    let (report, code) = examined(&namespace, &["-c", config, "--ports"]);
    let expected = fixed("blocking", "ss -ulpn 'sport = :32766'");
    assert_eq!((check(&report["inputs"][0], "port"), code), (expected, Some(1)));
    drop(taken);

    let text = "collector.listen = [\"xdp://one:5000\"]\ncollector.xdp.zero_copy = \"require\"\n\
        collector.xdp.mode = \"kernel\"\n";
    fs::write(config, text).unwrap();
    let (report, code) = examined(&namespace, &["-c", config, "--ports", "--try"]);
    assert_eq!(check(&report["machine"], "detection_program"), good());
    let input = &report["inputs"][0];
    assert_eq!((input["input"].as_str(), code), (Some("xdp://one:5000"), Some(1)));
    assert_eq!(input["expected"]["rx_path"], "xdp-native");
    assert_eq!(
        (check(input, "rx_path"), check(input, "port")),
        (("blocking".to_owned(), None), good())
    );
}

#[test]
fn memory_that_the_kernel_or_an_rdma_device_writes_is_examined() {
    let Some(namespace) = cable("1") else { return };
    let directory = TempDir::new();
    let config = directory.join("hopwise.toml");
    let text = "collector.listen = [\"udp://127.0.0.1:32766\"]\n[collector.memory]\nmode = \"xdp\"\ninterface = \"one\"\n\
        listen = \"192.0.2.1:4791\"\n[[collector.memory.stores]]\nname = \"paths\"\nkind = \"key-write\"\nid = 1\nslots = 1024\n\
        data = 4\n[translator]\nmode = \"verbs\"\nsource = \"192.0.2.7\"\n[[translator.collectors]]\n\
        exchange = \"192.0.2.1:18515\"\n";
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let (report, code) = examined(&namespace, &["-c", config, "--try"]);
    let inputs = report["inputs"].as_array().unwrap();
    let titles: Vec<_> = inputs.iter().map(|input| &input["input"]).collect();
    assert_eq!(
        titles,
        [
            "udp://127.0.0.1:32766",
            "[collector.memory] on one",
            "[translator] by the RDMA device of 192.0.2.7",
            "[collector.memory] exchange 127.0.0.1:18515",
            "[translator] exchange 192.0.2.1:18515"
        ]
    );
    assert_eq!(check(&inputs[3], "exchange_secret"), good());
    assert_eq!(check(&inputs[4], "exchange_secret").0, "suboptimal");
    for name in [
        "kernel",
        "capabilities",
        "responder_program",
        "link",
        "driver",
        "xdp_program",
    ] {
        assert_eq!(check(&inputs[1], name), good(), "{name}");
    }
    // No interface has this address.
    assert_eq!(check(&inputs[2], "rdma_device"), fixed("blocking", "rdma link"));
    assert_eq!(code, Some(1));
    fs::write(config, text.replace("\"one\"", "\"none0\"")).unwrap();
    let (report, _) = examined(&namespace, &["-c", config]);
    assert_eq!(
        check(&report["inputs"][1], "interface"),
        fixed("blocking", "ip -br link")
    );
}

/// The options of `setpriv` for an ordinary user with these capabilities.
fn nobody(capabilities: &str) -> Vec<String> {
    let mut options: Vec<_> = ["--reuid=65534", "--regid=65534", "--clear-groups"]
        .map(str::to_owned)
        .to_vec();
    if !capabilities.is_empty() {
        options.push(format!("--inh-caps={capabilities}"));
        options.push(format!("--ambient-caps={capabilities}"));
    }
    options
}

#[test]
fn an_ordinary_user_needs_four_capabilities_which_are_named() {
    let Ok(pair) = Pair::create().inspect_err(|error| skipped(&format!("doctor in namespaces: {error}")))
    else {
        return;
    };
    let directory = TempDir::new();
    let program = public_copy(&directory);
    let run = |capabilities: &str| {
        let run = || {
            let mut command = Command::new("setpriv");
            command
                .args(nobody(capabilities))
                .arg(&program)
                .args(["doctor", "veth0", "--try", "--json"]);
            command.output()
        };
        let output = pair.far.run(run).unwrap().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        (report, output.status.code())
    };
    let (report, code) = run("");
    let setcap = "setcap cap_bpf,cap_net_admin,cap_net_raw,cap_ipc_lock+ep $(command -v hopwise)";
    assert_eq!(
        check(&report["machine"], "capabilities"),
        fixed("blocking", setcap)
    );
    assert_eq!(report["machine"]["capabilities"], Value::Array(Vec::new()));
    assert_eq!(
        (report["inputs"][0]["expected"]["rx_path"].as_str(), code),
        (Some("udp"), Some(1))
    );

    assert_eq!(check(&report["machine"], "steering_program").0, "blocking");

    let (report, code) = run("+net_admin,+bpf,+net_raw,+ipc_lock");
    assert_eq!(check(&report["machine"], "steering_program"), good());
    assert_eq!(check(&report["machine"], "capabilities"), good());
    assert_eq!(check(&report["machine"], "memlock"), good());
    assert_eq!(
        (report["inputs"][0]["expected"]["rx_path"].as_str(), code),
        (Some("xdp-native"), Some(0)),
        "{report:#}"
    );

    let (report, code) = run("+net_raw");
    assert_eq!(
        (report["inputs"][0]["expected"]["rx_path"].as_str(), code),
        (Some("packet"), Some(1))
    );
}

#[test]
fn wrong_usage_is_code_two() {
    let code = |args: &[&str]| hopwise([&["doctor"], args].concat()).code;
    assert_eq!(code(&["--no-such-option"]), Some(2));
    assert_eq!(code(&["-c", "/no/such/file.toml"]), Some(2));
}

/// Names of all fields, at any depth.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                fields(value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_and_check_is_in_the_reference() {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/cli-json.md")).unwrap();
    let report = hopwise(["doctor", "lo", "none0", "--json"]).json().remove(0);
    let mut names = BTreeSet::new();
    fields(&report, &mut names);
    assert!(names.len() > 50, "{names:?}");
    let of = |value: &Value| value["checks"].as_array().unwrap().clone();
    let checks = report["inputs"]
        .as_array()
        .unwrap()
        .iter()
        .chain([&report["machine"]])
        .flat_map(of);
    names.extend(checks.map(|check| check["check"].as_str().unwrap().to_owned()));
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "not in docs/reference/cli-json.md: {missing:?}"
    );
}

#[test]
fn the_service_has_the_required_capabilities() {
    let unit = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/hopwise.service")).unwrap();
    let words = |key: &str| {
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .unwrap_or_default();
        line.split(' ').map(str::to_lowercase).collect::<BTreeSet<_>>()
    };
    let four = ["cap_bpf", "cap_net_admin", "cap_net_raw", "cap_ipc_lock"]
        .map(str::to_owned)
        .into();
    assert_eq!(words("AmbientCapabilities"), four);
    assert_eq!(words("CapabilityBoundingSet"), four);
    let families = words("RestrictAddressFamilies");
    assert!(
        ["af_xdp", "af_packet", "af_netlink", "af_inet", "af_inet6"]
            .iter()
            .all(|af| families.contains(*af))
    );
    assert!(unit.contains("\nSystemCallFilter=bpf capset\n") && unit.contains("\nLimitMEMLOCK=infinity\n"));
    // SQL is not executed without limits. The last line that names a call decides.
    let denied = unit.find("\nSystemCallFilter=~@privileged @resources\n").unwrap();
    assert!(unit.find("\nSystemCallFilter=setrlimit prlimit64\n").unwrap() > denied);
}
