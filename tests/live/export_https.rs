//! Exports by HTTP with TLS and credentials: servers of others behind a front that has a certificate.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
};

use super::{
    export::{ClickHouse, exported, own},
    export_redis::check,
    servers::{Process, free_port, front, front_for, is_installed},
};
use crate::support::{
    TempDir, hopwise,
    server::{Server, report},
    tls,
};

/// An InfluxDB 1 with the user `hopwise`, `correct horse`.
struct Influx {
    _process: Process,
    port: u16,
    _directory: TempDir,
}

impl Influx {
    fn start() -> Option<Self> {
        if !is_installed("exports to InfluxDB with TLS", "influxd") {
            return None;
        }
        let (directory, port) = (TempDir::new(), free_port());
        let mut command = Command::new("influxd");
        command.args(["run", "-config", "/dev/null"]);
        command.env("INFLUXDB_REPORTING_DISABLED", "true");
        command.env("INFLUXDB_HTTP_AUTH_ENABLED", "true");
        command.env("INFLUXDB_HTTP_BIND_ADDRESS", format!("127.0.0.1:{port}"));
        command.env("INFLUXDB_BIND_ADDRESS", format!("127.0.0.1:{}", free_port()));
        for (name, folder) in [
            ("DATA_DIR", "data"),
            ("DATA_WAL_DIR", "wal"),
            ("META_DIR", "meta"),
        ] {
            command.env(format!("INFLUXDB_{name}"), directory.join(folder));
        }
        let process = Process::start(&mut command, &directory, port);
        let influx = Self {
            _process: process,
            port,
            _directory: directory,
        };
        // The first one may be made by anybody.
        influx.query("CREATE USER hopwise WITH PASSWORD 'correct horse' WITH ALL PRIVILEGES");
        Some(influx)
    }

    fn query(&self, text: &str) -> serde_json::Value {
        let mut form = "db=hopwise&epoch=ns&q=".to_owned();
        form.extend(text.bytes().map(|byte| format!("%{byte:02x}")));
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // "hopwise:correct horse".
        let request = format!(
            "POST /query HTTP/1.0\r\nAuthorization: Basic aG9wd2lzZTpjb3JyZWN0IGhvcnNl\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200"), "{answer}");
        serde_json::from_str(body).unwrap()
    }
}

fn drain(server: &Server) {
    let drained = hopwise([
        "export",
        "drain",
        "--wait",
        "100",
        "--api",
        &format!("http://{}", server.api),
    ]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
}

#[test]
fn influxdb_by_tls_with_a_password() {
    let Some(influx) = Influx::start() else { return };
    let to = front("server", ([127, 0, 0, 1], influx.port).into());
    let directory = TempDir::new();
    let (right, wrong) = (directory.join("right"), directory.join("wrong"));
    fs::write(&right, "correct horse\n").unwrap();
    fs::write(&wrong, "battery staple\n").unwrap();
    let config = |url: String, ca: &str, password: &Path| {
        format!(
            "[exports.points]\nkind = \"influxdb\"\nurl = \"{url}\"\nca = {:?}\nuser = \"hopwise\"\npassword_file = {password:?}\n\
             streams = [\"events\"]\nlinger = \"0s\"\n",
            tls::file(ca)
        )
    };
    let said = |config: String| check(&directory, &config);
    let untrusted = format!(
        "export points: the certificate of {to} is not from an authority that is trusted here; name the file with the authority's certificate as the CA"
    );
    assert_eq!(
        said(config(format!("https://{to}"), "other.pem", &right)),
        (Some(1), untrusted)
    );
    let plain = format!("https://127.0.0.1:{}", influx.port);
    let without = format!(
        "export points: 127.0.0.1:{} does not speak TLS; write http:// in place of https://",
        influx.port
    );
    assert_eq!(said(config(plain, "ca.pem", &right)), (Some(1), without));
    let refused = "export points: the server refuses the credentials (HTTP 401: {\"error\":\"authorization failed\"}); \
                   correct user, password or token, and let them write there";
    assert_eq!(
        said(config(format!("https://{to}"), "ca.pem", &wrong)),
        (Some(1), refused.to_owned())
    );
    let config = config(format!("https://{to}"), "ca.pem", &right);
    let missing = "export points: {\"error\":\"database not found: \\\"hopwise\\\"\"}; create it (`CREATE DATABASE …`, \
                   `influx bucket create …`), or correct `database`, `organisation` or `bucket`";
    assert_eq!(said(config.clone()), (Some(1), missing.to_owned()));
    influx.query("CREATE DATABASE hopwise");
    assert_eq!(
        said(config.clone()),
        (Some(0), format!("export points: {to} has what is needed"))
    );

    let server = Server::start(&config);
    server.send((0..50).map(|n| report(n, 1000 + n as u16, [1000, 2000, 3000])));
    server.settled(50);
    drain(&server);
    let answer = influx.query("SELECT id, value FROM hopwise_events");
    let rows = answer["results"][0]["series"][0]["values"].as_array().unwrap();
    let mut there: Vec<String> = rows
        .iter()
        .map(|row| format!("{}\t{}", row[1].as_str().unwrap(), row[2]))
        .collect();
    let here = own(&server, "SELECT id, value FROM events");
    let mut here: Vec<String> = here.lines().map(|line| line.replace("\\N", "null")).collect();
    there.sort();
    here.sort();
    assert_eq!(there, here);
    let view = exported(&server, "settled", |view| view["waiting"] == 0);
    assert_eq!((&view["rejected"], &view["unauthorised"]), (&0.into(), &0.into()));
}

#[test]
fn clickhouse_by_tls_with_a_certificate_of_the_client() {
    let Some(engine) = ClickHouse::start("hopwise:correct horse") else {
        return;
    };
    let to = front_for(Some("ca.pem"), "server", engine.address());
    let directory = TempDir::new();
    let password = directory.join("password");
    fs::write(&password, "correct horse\n").unwrap();
    let without = format!(
        "[exports.lake]\nkind = \"clickhouse\"\nurl = \"https://{to}\"\nca = {:?}\nuser = \"hopwise\"\npassword_file = {password:?}\n\
         streams = [\"events\"]\nlinger = \"0s\"\n",
        tls::file("ca.pem")
    );
    let (code, said) = check(&directory, &without);
    let asked = format!(
        "export lake: {to} asks for a certificate of the client and does not accept this one; use one of the authorities in its `client_ca`"
    );
    assert_eq!((code, said), (Some(1), asked));
    let config = format!(
        "{without}certificate = {:?}\nkey = {:?}\n",
        tls::file("client.pem"),
        tls::file("client.key")
    );
    let file = directory.join("check.toml");
    fs::write(&file, &config).unwrap();
    let run = hopwise(["schema", "apply", "-c", file.to_str().unwrap(), "lake"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(
        check(&directory, &config),
        (Some(0), format!("export lake: {to} has what is needed"))
    );
    let server = Server::start(&config);
    server.send((0..50).map(|n| report(n, 1000 + n as u16, [1000, 2000, 3000])));
    server.settled(50);
    drain(&server);
    let ids = "SELECT count(*) FROM events";
    assert_eq!(
        engine.query("SELECT count() FROM hopwise.events"),
        own(&server, ids)
    );
}
