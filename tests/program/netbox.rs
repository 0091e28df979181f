//! `hopwise device import --netbox`, against the answers of `tests/netbox` in pages of two.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};

use crate::support::{Run, command, hopwise, tls::file};

/// A NetBox: what it answers to a path without its query, and the requests that it got.
struct NetBox {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

type Answers = BTreeMap<&'static str, Value>;

/// The answers of `tests/netbox`.
fn recorded() -> Answers {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/netbox");
    let read = |name: &str| serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap();
    [
        ("/api/dcim/devices/", read("devices.json")),
        ("/api/dcim/interfaces/", read("interfaces.json")),
        ("/api/ipam/ip-addresses/", read("ip-addresses.json")),
    ]
    .into()
}

/// The page of a list that a request asks for, as a NetBox with `MAX_PAGE_SIZE = 2` has it.
fn page(list: &Value, query: &str) -> Value {
    let pairs: Vec<_> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let of = |name| {
        pairs
            .iter()
            .filter(move |pair| pair.0 == name)
            .map(|pair| pair.1.to_owned())
    };
    let devices: Vec<String> = of("device_id").collect();
    let roles: Vec<String> = of("role").collect();
    let all = list["results"].as_array().unwrap().iter().filter(|one| {
        let device = one.get("device").or_else(|| one["assigned_object"].get("device"));
        device.is_none_or(|device| devices.contains(&device["id"].to_string()))
            && one.get("device_type").is_none_or(|_| {
                roles.is_empty() || roles.iter().any(|role| one["role"]["slug"] == role.as_str())
            })
    });
    let all: Vec<_> = all.cloned().collect();
    let offset: usize = of("offset").next().unwrap().parse().unwrap();
    let results: Vec<_> = all.iter().skip(offset).take(2).cloned().collect();
    // A NetBox behind a proxy may name another host here; nobody may follow it with the token.
    json!({"count": all.len(), "next": "http://127.0.0.1:9/api/", "previous": null, "results": results})
}

impl NetBox {
    fn start(answers: Answers, is_secure: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let tls = is_secure.then(|| {
            let chain = vec![CertificateDer::from_pem_file(file("server.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            Arc::new(
                config
                    .unwrap()
                    .with_no_client_auth()
                    .with_single_cert(chain, key)
                    .unwrap(),
            )
        });
        thread::spawn(move || {
            for connection in listener.incoming() {
                let connection = connection.unwrap();
                match &tls {
                    None => serve(connection, &answers, &log),
                    Some(tls) => {
                        let tls = ServerConnection::new(Arc::clone(tls)).unwrap();
                        serve(StreamOwned::new(tls, connection), &answers, &log);
                    }
                }
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(stream: impl Read + Write, answers: &Answers, log: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        head.push_str(&line);
        line.clear();
    }
    let Some(target) = head.split(' ').nth(1) else {
        return;
    };
    let token = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("authorization"))
        .map(|(_, value)| value)
        .unwrap_or("");
    log.lock().unwrap().push(format!("{target} {token}"));
    let (path, query) = target.split_once('?').unwrap();
    let (status, body) = match answers.get(path) {
        None => ("404 Not Found", "<html>".to_owned()),
        Some(Value::String(text)) => ("200 OK", text.clone()),
        Some(answer) => match answer["status"].as_str() {
            Some(status) => (status, answer["body"].to_string()),
            None => ("200 OK", page(answer, query).to_string()),
        },
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let stream = reader.get_mut();
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body.as_bytes()));
    let _ = stream.flush();
}

const EXPECTED: &str = r#"# ports: 1 Ethernet1, 2 Ethernet2, 3 Ethernet10
[[inventory.devices]]
name = "leaf1"
node = 101
address = "10.9.0.11:8080"
labels = ["dc1", "leaf", "rack-a"]
ports = 3
edge = [1, 2]

# ports: 1 Ethernet1, 2 Ethernet2, 3 Ethernet3
[[inventory.devices]]
name = "leaf2"
node = 12
address = "[2001:db8::12]:8080"
labels = ["dc1", "leaf"]
ports = 3
edge = [1]

# ports: 1 Ethernet1, 2 Ethernet2, 3 Ethernet3, 4 Ethernet4
[[inventory.devices]]
name = "spine1"
node = 103
address = "10.9.0.13:8080"
labels = ["dc1", "spine"]
ports = 4
edge = [4]

[[inventory.links]]
between = ["leaf1:3", "spine1:1"]
mtu = 9000

[[inventory.links]]
between = ["leaf2:2", "spine1:2"]
mtu = 9000

[[inventory.hosts]]
name = "db1"
addresses = ["10.20.0.5", "2001:db8:20::5"]
at = "leaf1:1"

[[inventory.hosts]]
name = "Web-1"
addresses = ["10.20.0.8"]

"#;

/// Runs the import; `extra` are further arguments.
fn import(netbox: &NetBox, scheme: &str, extra: &[&str]) -> Run {
    let url = format!("{scheme}://{}/", netbox.address);
    let args = ["device", "import", "--netbox", &url];
    let output = command(args.iter().chain(extra))
        .env("NETBOX_TOKEN", "0123abcd")
        .output()
        .unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The sentence with which the import of these answers fails.
fn refusal(answers: Answers, extra: &[&str]) -> String {
    let netbox = NetBox::start(answers, false);
    let run = import(&netbox, "http", extra);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{}", run.stderr);
    run.stderr.replace(&format!("http://{}", netbox.address), "URL")
}

#[test]
fn devices_cables_and_hosts_become_an_inventory() {
    let netbox = NetBox::start(recorded(), false);
    let run = import(
        &netbox,
        "http",
        &[
            "--node-field",
            "int_node",
            "--filter",
            "role=leaf",
            "--filter",
            "role=spine",
        ],
    );
    let told = "hopwise: 1 addresses that several hosts have were left out\n\
        hopwise: 3 devices, 2 links and 2 hosts; `hopwise check` reads the configuration they are added to\n";
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (Some(0), EXPECTED, told)
    );
    let devices = "&role=leaf&role=spine&exclude=config_context Token 0123abcd";
    let interfaces = "&device_id=11&device_id=12&device_id=13 Token 0123abcd";
    let addresses = "&device_id=21&device_id=22&device_id=23 Token 0123abcd";
    let asked = |list: &str, count: usize, rest: &str| -> Vec<String> {
        (0..count)
            .map(|page| format!("/api/{list}/?limit=250&offset={}{rest}", page * 2))
            .collect()
    };
    let expected = [
        asked("dcim/devices", 2, devices),
        asked("dcim/interfaces", 6, interfaces),
        asked("ipam/ip-addresses", 3, addresses),
    ];
    assert_eq!(netbox.requests(), expected.concat());
    // The program reads what it wrote.
    let inventory = manager::inventory::read(&EXPECTED.replace("inventory.", ""), "i.toml").unwrap();
    assert_eq!((inventory.devices().count(), inventory.hosts().count()), (3, 2));
}

#[test]
fn numbers_of_ports_and_addresses_may_be_chosen() {
    let netbox = NetBox::start(recorded(), true);
    let ca = file("ca.pem");
    let fields = [
        "--port-field",
        "int_port",
        "--driver",
        "gnmi",
        "--address",
        "https://{name}.dc1:9339",
    ];
    let extra = [
        &fields[..],
        &[
            "--filter",
            "role=leaf",
            "--ca",
            ca.to_str().unwrap(),
            "--token",
            "nbt_a.b",
        ],
    ]
    .concat();
    let run = import(&netbox, "https", &extra);
    let expected = r#"# ports: 4 Ethernet1, 5 Ethernet2, 9 Ethernet10
[[inventory.devices]]
name = "leaf1"
node = 11
driver = "gnmi"
address = "https://leaf1.dc1:9339"
labels = ["dc1", "leaf", "rack-a"]
ports = 9
edge = [4, 5, 9]

# ports: 1 Ethernet1, 2 Ethernet2
[[inventory.devices]]
name = "leaf2"
node = 12
driver = "gnmi"
address = "https://leaf2.dc1:9339"
labels = ["dc1", "leaf"]
ports = 2
edge = [1, 2]

[[inventory.hosts]]
name = "db1"
addresses = ["10.20.0.5", "2001:db8:20::5"]
at = "leaf1:4"

[[inventory.hosts]]
name = "Web-1"
addresses = ["10.20.0.8"]

"#;
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(0), expected),
        "{}",
        run.stderr
    );
    assert!(
        netbox
            .requests()
            .iter()
            .all(|request| request.ends_with(" Bearer nbt_a.b"))
    );
}

#[test]
fn what_is_no_inventory_is_refused() {
    let with = |change: &dyn Fn(&mut Answers)| {
        let mut answers = recorded();
        change(&mut answers);
        refusal(answers, &[])
    };
    let interface = |at: usize, key: &'static str, value: Value| {
        with(&move |all| all.get_mut("/api/dcim/interfaces/").unwrap()["results"][at][key] = value.clone())
    };
    let device = |at: usize, key: &'static str, value: Value| {
        with(&move |all| all.get_mut("/api/dcim/devices/").unwrap()["results"][at][key] = value.clone())
    };
    assert_eq!(
        device(0, "name", json!("leaf 1")),
        "hopwise: NetBox at URL: device 11 has the name `leaf 1`; give it 1 to 63 letters, digits, `.`, `_` and `-`, or leave it out by --filter\n"
    );
    assert_eq!(
        device(0, "primary_ip", Value::Null),
        "hopwise: NetBox at URL: `leaf1` has no primary address; set it, or write --address with {name}\n"
    );
    assert_eq!(
        device(1, "name", json!("leaf1")),
        "hopwise: NetBox at URL: two devices are named `leaf1`; rename one\n"
    );
    assert_eq!(
        interface(8, "connected_endpoints", json!([{"id": 113}])),
        "hopwise: NetBox at URL: `Ethernet10` of `leaf1` leads to `Ethernet1` of `spine1`, which does not lead back; correct the cable\n\
         `Ethernet1` of `spine1` leads to `Ethernet2` of `leaf1`, which does not lead back; correct the cable\n"
    );
    assert_eq!(
        interface(6, "connected_endpoints", json!([{"id": 132}, {"id": 133}])),
        "hopwise: NetBox at URL: `Ethernet2` of `leaf2` leads to 2 interfaces; make an interface of each of its lanes\n"
    );
    let fields = ["--port-field", "int_port", "--node-field", "int_port"];
    let mut twice = recorded();
    twice.get_mut("/api/dcim/interfaces/").unwrap()["results"][0]["custom_fields"]["int_port"] = json!("9");
    twice.get_mut("/api/dcim/interfaces/").unwrap()["results"][5]["custom_fields"]["int_port"] = json!(1025);
    assert_eq!(
        refusal(twice, &fields),
        "hopwise: NetBox at URL: two interfaces of `leaf1` are port 9: `Ethernet1` and `Ethernet10`; correct one\n\
         interface `Ethernet1` of `leaf2` has no port number from 1 to 1024; correct it\n"
    );
}

#[test]
fn what_is_no_list_of_netbox_is_refused() {
    let with = |answer: Value| {
        let mut answers = recorded();
        answers.insert("/api/dcim/interfaces/", answer);
        refusal(answers, &[])
    };
    let refused = |status: &str, body: Value| with(json!({"status": status, "body": body}));
    assert_eq!(
        refused("403 Forbidden", json!({"detail": "Invalid token."})),
        "hopwise: NetBox at URL refuses to show dcim/interfaces (403: Invalid token); set a token that may view it in NETBOX_TOKEN\n"
    );
    assert_eq!(
        refused("301 Moved Permanently", Value::Null),
        "hopwise: URL sends to another URL; write that one after --netbox, with https:// if it has TLS\n"
    );
    assert_eq!(
        refused("404 Not Found", Value::Null),
        "hopwise: URL has no dcim/interfaces; write the URL of NetBox without /api\n"
    );
    assert_eq!(
        refused("400 Bad Request", json!({"device_id": ["no"]})),
        "hopwise: NetBox at URL refuses dcim/interfaces (400: {\"device_id\":[\"no\"]}); correct --filter\n"
    );
    assert_eq!(
        with("<html>".into()),
        "hopwise: the response is not JSON; check that NetBox listens at this address\n"
    );
    assert_eq!(
        with("{\"count\":1,\"results\":[{\"id\":1}]}".into()),
        "hopwise: dcim/interfaces of URL is not a list of NetBox 3.3 or newer: missing field `device`\n"
    );
    assert_eq!(
        with("{\"count\":300000,\"results\":[]}".into()),
        "hopwise: NetBox at URL: dcim/interfaces has more than 262144 objects to read; read fewer devices by --filter\n"
    );
    assert_eq!(
        with("{\"count\":3,\"results\":[]}".into()),
        "hopwise: NetBox at URL: dcim/interfaces ended after 0 of 3 objects; run the command again\n"
    );
    let one = json!({"id": 1, "device": {"id": 11}, "name": "a", "type": {"value": "x"}});
    assert_eq!(
        with(json!({"count": 3, "results": [one]}).to_string().into()),
        "hopwise: NetBox at URL: dcim/interfaces changed while it was read; run the command again\n"
    );
    for wrong in ["ftp://x", "https:///", "http://a b/", "http://h/?x"] {
        let run = hopwise([
            "device",
            "import",
            "--netbox",
            wrong,
            "--ca",
            file("ca.pem").to_str().unwrap(),
        ]);
        let text = format!(
            "hopwise: `{wrong}` is not the URL of NetBox; write it like https://netbox.example.org\n"
        );
        assert_eq!((run.code, run.stderr), (Some(2), text));
    }
}

#[test]
fn a_token_goes_nowhere_without_encryption() {
    let run = |url: &str| {
        let output = command(["device", "import", "--netbox", url])
            .env("NETBOX_TOKEN", "0123abcd")
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        run("http://netbox.example.org/"),
        "hopwise: the token of NetBox would be sent to netbox.example.org without encryption; write https:// in its URL, with --ca, or leave the token out\n"
    );
    // A URL without a scheme has TLS.
    assert_eq!(
        run("netbox.example.org"),
        "hopwise: https://netbox.example.org:443 has TLS; name the PEM file with the authority of its certificate by --ca or HOPWISE_CA\n"
    );
}
