//! Exports to Redis.

use std::{collections::BTreeMap, fs, process::Command};

use serde_json::Value;

use super::{
    export::{exported, own, reports_from},
    servers::{Process, free_port, is_installed},
};
use crate::support::{
    TempDir, hopwise,
    server::{Server, report},
    tls,
};

/// A Redis with a directory and a port of its own, and a password.
struct Redis {
    process: Option<Process>,
    port: u16,
    directory: TempDir,
    with_tls: bool,
}

impl Redis {
    fn start(with_tls: bool) -> Option<Self> {
        if !is_installed("exports to Redis", "redis-server") {
            return None;
        }
        let mut redis = Self {
            process: None,
            port: free_port(),
            directory: TempDir::new(),
            with_tls,
        };
        redis.run();
        Some(redis)
    }

    /// What it answered for is on disk.
    fn run(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--requirepass", "correct horse"]);
        command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        let port = self.port.to_string();
        match self.with_tls {
            false => _ = command.args(["--port", &port]),
            true => {
                command.args(["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"]);
                command.arg("--tls-cert-file").arg(tls::file("server.pem"));
                command.arg("--tls-key-file").arg(tls::file("server.key"));
            }
        }
        self.process = Some(Process::start(&mut command, &self.directory, self.port));
    }

    /// The answer to a command, by Redis's own client.
    fn ask(&self, command: &[&str]) -> Value {
        let mut client = Command::new("redis-cli");
        client.args([
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-n",
            "1",
            "--json",
        ]);
        if self.with_tls {
            client.arg("--tls").arg("--cacert").arg(tls::file("ca.pem"));
        }
        let output = client
            .env("REDISCLI_AUTH", "correct horse")
            .args(command)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {command:?}: {text}"))
    }

    /// The entries of a stream: these fields, a line each.
    fn entries(&self, stream: &str, fields: &[&str]) -> Vec<String> {
        let entries = self.ask(&["XRANGE", stream, "-", "+"]);
        let line = |entry: &Value| {
            let words: Vec<&str> = entry[1]
                .as_array()
                .unwrap()
                .iter()
                .map(|word| word.as_str().unwrap())
                .collect();
            let values: BTreeMap<&str, &str> = words.chunks(2).map(|pair| (pair[0], pair[1])).collect();
            fields
                .iter()
                .map(|field| values.get(field).copied().unwrap_or(""))
                .collect::<Vec<_>>()
                .join("\t")
        };
        let mut lines: Vec<String> = entries.as_array().unwrap().iter().map(line).collect();
        lines.sort();
        lines
    }
}

const FIELDS: [&str; 10] = [
    "id",
    "ts",
    "kind",
    "metric",
    "flow",
    "node",
    "value",
    "previous",
    "threshold",
    "basis",
];

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(|line| line.replace("\\N", "")).collect();
    lines.sort();
    lines
}

fn export(scheme: &str, port: u16, password: &std::path::Path, extra: &str) -> String {
    format!(
        "[exports.cache]\nkind = \"redis\"\nurl = \"{scheme}://127.0.0.1:{port}/1\"\npassword_file = {password:?}\nlinger = \"0s\"\n\
         {extra}"
    )
}

/// What `check --connect` says of a configuration.
pub(super) fn check(directory: &TempDir, export: &str) -> (Option<i32>, String) {
    let config = directory.join("check.toml");
    fs::write(&config, export).unwrap();
    let run = hopwise(["check", "-c", config.to_str().unwrap(), "--connect"]);
    let said = run
        .stdout
        .lines()
        .find(|line| line.starts_with("export "))
        .unwrap_or(&run.stderr)
        .to_owned();
    (run.code, said)
}

#[test]
fn redis_has_what_the_store_has_through_a_kill() {
    let Some(mut redis) = Redis::start(false) else {
        return;
    };
    let directory = TempDir::new();
    let (right, wrong) = (directory.join("right"), directory.join("wrong"));
    fs::write(&right, "correct horse\n").unwrap();
    fs::write(&wrong, "battery staple\n").unwrap();
    let (code, said) = check(&directory, &export("redis", redis.port, &wrong, ""));
    let refused = "the server refuses the credentials (WRONGPASS invalid username-password pair or user is disabled.); correct user and password";
    assert_eq!((code, said), (Some(1), format!("export cache: {refused}")));
    let config = export(
        "redis",
        redis.port,
        &right,
        "streams = [\"events\", \"rollups\", \"flows\"]\n",
    );
    let here = format!("export cache: 127.0.0.1:{} has what is needed", redis.port);
    assert_eq!(check(&directory, &config), (Some(0), here));

    let server = Server::start(&config);
    server.send(reports_from(0));
    server.settled(150);
    let view = exported(&server, "delivered", |view| view["delivered"].as_u64() > Some(0));
    assert_eq!(
        (view["kind"].as_str(), view["stream"].as_str()),
        (Some("redis"), Some("events"))
    );
    redis.process.take().unwrap().kill();
    server.send(reports_from(150));
    server.settled(300);
    let view = exported(&server, "failing", |view| view["last_error"].is_string());
    let error = view["last_error"].as_str().unwrap();
    assert!(error.starts_with("a request failed: "), "{error}");
    redis.run();
    let drained = hopwise([
        "export",
        "drain",
        "--wait",
        "100",
        "--api",
        &format!("http://{}", server.api),
    ]);
    assert_eq!(drained.code, Some(0), "{drained:?}");

    let sql = format!("SELECT {} FROM events", FIELDS.join(", "));
    assert_eq!(
        redis.entries("hopwise:events", &FIELDS),
        sorted(&own(&server, &sql))
    );
    let count = own(&server, "SELECT count(*) FROM rollups");
    assert_eq!(redis.ask(&["XLEN", "hopwise:rollups"]).to_string(), count);
    let mut flows = Vec::new();
    for key in redis.ask(&["KEYS", "hopwise:flow:*"]).as_array().unwrap() {
        let hash = redis.ask(&["HGETALL", key.as_str().unwrap()]);
        let field = |name: &str| hash[name].as_str().unwrap().to_owned();
        flows.push([field("flow"), field("reports"), field("path").replace(',', ">")].join("\t"));
    }
    flows.sort();
    assert_eq!(
        flows,
        sorted(&own(&server, "SELECT flow, reports, path FROM flows"))
    );
    let view = exported(&server, "settled", |view| view["waiting"] == 0);
    assert_eq!((&view["rejected"], &view["expired"]), (&0.into(), &0.into()));
    drop(server);

    // A running hopwise with the wrong password shows it, and throws nothing away.
    let config = export("redis", redis.port, &wrong, "streams = [\"events\"]\n");
    let server = Server::start(&config);
    server.send(reports_from(0));
    let view = exported(&server, "refused", |view| view["last_error"].is_string());
    assert_eq!(
        view["last_error"],
        format!("the server refused the credentials: {refused}")
    );
    assert_eq!((&view["rejected"], &view["delivered"]), (&0.into(), &0.into()));
    assert!(
        server.stop().0.success(),
        "a stop does not wait for a server for ever"
    );
}

#[test]
fn redis_with_tls_is_trusted_only_by_its_authority() {
    let Some(redis) = Redis::start(true) else { return };
    let directory = TempDir::new();
    let password = directory.join("password");
    fs::write(&password, "correct horse\n").unwrap();
    let address = format!("127.0.0.1:{}", redis.port);
    let with = |scheme: &str, ca: &str| {
        export(
            scheme,
            redis.port,
            &password,
            &format!("streams = [\"events\"]\nca = {:?}\n", tls::file(ca)),
        )
    };
    let said = |config: &str| check(&directory, config);
    assert_eq!(
        said(&with("rediss", "other.pem")),
        (
            Some(1),
            format!(
                "export cache: the certificate of {address} is not from an authority that is trusted here; name the file with the authority's certificate as the CA"
            )
        )
    );
    assert_eq!(
        said(&with("redis", "ca.pem")),
        (
            Some(1),
            format!("export cache: {address} ended the connection; if it requires TLS, write rediss://")
        )
    );
    let named = with("rediss", "ca.pem").replace("127.0.0.1", "localhost");
    assert_eq!(
        said(&named),
        (
            Some(0),
            format!("export cache: localhost:{} has what is needed", redis.port)
        )
    );

    let server = Server::start(&with("rediss", "ca.pem"));
    server.send((0..50).map(|n| report(n, 1000 + n as u16, [1000, 2000, 3000])));
    server.settled(50);
    let drained = hopwise([
        "export",
        "drain",
        "--wait",
        "100",
        "--api",
        &format!("http://{}", server.api),
    ]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let sql = format!("SELECT {} FROM events", FIELDS.join(", "));
    assert_eq!(
        redis.entries("hopwise:events", &FIELDS),
        sorted(&own(&server, &sql))
    );
    drop(server);
    let Some(plain) = Redis::start(false) else { return };
    let config = export(
        "rediss",
        plain.port,
        &password,
        &format!("ca = {:?}\n", tls::file("ca.pem")),
    );
    let sentence = format!(
        "export cache: 127.0.0.1:{} does not answer to TLS; if it has none, write redis:// in place of rediss://",
        plain.port
    );
    assert_eq!(said(&config), (Some(1), sentence));
}
