//! The API over TLS: asked by curl and by the program's own clients, reloaded, and misused.

use std::{
    fs::Permissions,
    io::{Read, Write},
    os::unix::fs::PermissionsExt as _,
    process::Command,
};

use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::support::{
    hopwise,
    server::Server,
    skipped,
    tls::{Secured, file, section, secured},
};

/// One request on a connection that stays open: the status line.
fn get(stream: &mut Secured, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut text = Vec::new();
    let end = |text: &[u8]| {
        text.windows(4)
            .position(|window| window == b"\r\n\r\n")
            .map(|at| at + 4)
    };
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "closed after {text:?}");
        text.extend_from_slice(&buffer[..n]);
        let Some(body) = end(&text) else { continue };
        let head = String::from_utf8_lossy(&text[..body]).to_lowercase();
        let length: usize = head
            .split_once("content-length: ")
            .unwrap()
            .1
            .lines()
            .next()
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        if text.len() >= body + length {
            return head.lines().next().unwrap().to_owned();
        }
    }
}

/// A failed handshake's count in the metrics.
fn failed(server: &Server, reason: &str) -> u64 {
    let mut stream = secured(server.connect());
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = format!("hopwise_tls_handshakes_failed_total{{reason=\"{reason}\"}} ");
    text.split_once(&line)
        .unwrap()
        .1
        .lines()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// `hopwise device list` at this server: exit code and message.
fn ask(server: &Server, extra: &[&str]) -> (Option<i32>, String) {
    let url = format!("https://{}", server.api);
    let mut args = vec!["device", "list", "--json", "--api", &url];
    args.extend(extra);
    let run = hopwise(args);
    (run.code, run.stderr)
}

fn path(name: &str) -> String {
    file(name).to_str().unwrap().to_owned()
}

const MANAGER: &str =
    "[manager]\n[[inventory.devices]]\nname = \"s1\"\naddress = \"127.0.0.1:9\"\nports = 2\n";

#[test]
fn curl_gets_an_answer_over_tls_and_only_with_the_right_authority() {
    let server = Server::start(&section("server"));
    let url = format!("https://{}/api/v1/session", server.api);
    let curl = |extra: &[&str]| {
        Command::new("curl")
            .args(["-sS", "--max-time", "30"])
            .args(extra)
            .output()
    };
    let Ok(good) = curl(&["--cacert", &path("ca.pem"), &url]) else {
        return skipped("curl over TLS: there is no curl");
    };
    let text = String::from_utf8_lossy(&good.stdout);
    assert_eq!(
        text, "{\"role\":\"operate\",\"name\":null,\"needs_token\":false,\"console\":false}",
        "{good:?}"
    );
    for version in ["1.2", "1.3"] {
        let (least, most) = (format!("--tlsv{version}"), format!("--tls-max={version}"));
        let most = most.split_once('=').unwrap();
        let one = curl(&[&least, most.0, most.1, "--cacert", &path("ca.pem"), &url]).unwrap();
        assert!(one.status.success(), "{version}: {one:?}");
    }
    let bad = curl(&["--cacert", &path("other.pem"), &url]).unwrap();
    assert_eq!(bad.status.code(), Some(60), "{bad:?}");
    assert_eq!(failed(&server, "certificate_rejected"), 1);
    // A client without TLS is told.
    let plain = curl(&[&format!("http://{}/api/v1/session", server.api)]).unwrap();
    let text = String::from_utf8_lossy(&plain.stdout);
    assert_eq!(
        text, "{\"error\": \"this port speaks TLS; write https:// in place of http://\"}",
        "{plain:?}"
    );
    assert_eq!(failed(&server, "not_tls"), 1);
}

#[test]
fn what_is_no_handshake_is_counted_and_harms_nobody() {
    let server = Server::start(&section("server"));
    drop(server.connect());
    let mut broken = server.connect();
    broken.write_all(&[22, 3, 1, 0, 5, 99, 0, 0, 1, 0]).unwrap();
    // The answer is an alert, then the end.
    let _ = broken.read_to_end(&mut Vec::new());
    let mut binary = server.connect();
    binary.write_all(&[0; 64]).unwrap();
    assert_eq!(binary.read(&mut [0; 16]).unwrap_or(0), 0);
    while failed(&server, "closed") == 0 {}
    assert_eq!((failed(&server, "protocol"), failed(&server, "not_tls")), (1, 1));
}

#[test]
fn a_client_says_in_a_sentence_what_is_wrong_with_a_certificate() {
    let authority = path("ca.pem");
    let with = |name: &str| Server::start(&format!("{}{MANAGER}", section(name)));
    let server = with("server");
    assert_eq!(ask(&server, &["--ca", &authority]), (Some(0), String::new()));
    let at = |server: &Server, text: &str| {
        (
            Some(2),
            format!("hopwise: {}\n", text.replace("AT", &server.api.to_string())),
        )
    };
    let unknown = "the certificate of AT is not from an authority that is trusted here; name the file with the authority's certificate as the CA";
    assert_eq!(ask(&server, &["--ca", &path("other.pem")]), at(&server, unknown));
    let missing =
        "https://AT has TLS; name the PEM file with the authority of its certificate by --ca or HOPWISE_CA";
    assert_eq!(ask(&server, &[]), at(&server, missing));
    let key = format!(
        "there is no certificate in {}; write a PEM file",
        path("server.key")
    );
    assert_eq!(ask(&server, &["--ca", &path("server.key")]), at(&server, &key));
    let named = with("named");
    let name = "the certificate of AT is for another name; make one whose subjectAltName has 127.0.0.1, or use the name that it has";
    assert_eq!(ask(&named, &["--ca", &authority]), at(&named, name));
    let expired = with("expired");
    let renew = "the certificate of AT has expired; renew it there, and reload the configuration";
    assert_eq!(ask(&expired, &["--ca", &authority]), at(&expired, renew));
    let plain = Server::start(MANAGER);
    let speaks = "AT does not speak TLS; write http:// in place of https://";
    assert_eq!(ask(&plain, &["--ca", &authority]), at(&plain, speaks));
}

#[test]
fn only_clients_with_a_certificate_are_served_if_one_is_required() {
    let tls = section("server").replace(" }", &format!(", client_ca = {:?} }}", file("ca.pem")));
    let server = Server::start(&format!("{tls}{MANAGER}"));
    let authority = path("ca.pem");
    let certificate = ["--ca", &authority, "--client-certificate", &path("client.pem")];
    let without = format!(
        "hopwise: {} asks for a certificate of the client and does not accept this one; use one of the authorities in its `client_ca`\n",
        server.api
    );
    assert_eq!(ask(&server, &["--ca", &authority]), (Some(2), without));
    let half = "hopwise: a certificate needs its key; name that file, too\n";
    assert_eq!(ask(&server, &certificate), (Some(2), half.to_owned()));
    let key = path("client.key");
    let whole: Vec<&str> = certificate.into_iter().chain(["--client-key", &key]).collect();
    assert_eq!(ask(&server, &whole), (Some(0), String::new()));
}

#[test]
fn a_reload_takes_the_new_certificate_and_keeps_connections() {
    let directory = crate::support::TempDir::new();
    let copy = |name: &str| {
        for end in ["pem", "key"] {
            std::fs::copy(
                file(&format!("{name}.{end}")),
                directory.join(&format!("api.{end}")),
            )
            .unwrap();
        }
    };
    copy("server");
    let (certificate, key) = (directory.join("api.pem"), directory.join("api.key"));
    let server = Server::start(&format!(
        "api.tls = {{ certificate = {certificate:?}, key = {key:?} }}\n"
    ));
    let shown = |stream: &Secured| stream.conn.peer_certificates().unwrap()[0].clone();
    let of = |name: &str| CertificateDer::from_pem_file(file(name)).unwrap();
    let mut old = secured(server.connect());
    assert_eq!(get(&mut old, "/api/v1/session"), "http/1.1 200 ok");
    assert_eq!(shown(&old), of("server.pem"));
    copy("renewed");
    server.signal("-HUP");
    server.log_line("configuration reloaded");
    assert_eq!(get(&mut old, "/api/v1/session"), "http/1.1 200 ok");
    let mut new = secured(server.connect());
    assert_eq!(get(&mut new, "/api/v1/session"), "http/1.1 200 ok");
    assert_eq!((shown(&old), shown(&new)), (of("server.pem"), of("renewed.pem")));
    // The key of another certificate: refused, and the present one stays.
    std::fs::copy(file("server.key"), &key).unwrap();
    server.signal("-HUP");
    let line = server.log_line("configuration not reloaded; nothing changed");
    assert!(line.contains("is not that of"), "{line}");
    let mut again = secured(server.connect());
    assert_eq!(get(&mut again, "/api/v1/session"), "http/1.1 200 ok");
    assert_eq!(shown(&again), of("renewed.pem"));
}

#[test]
fn a_manager_reaches_devices_over_tls_and_says_why_not() {
    let device = |tls: &str| Server::start(&section(tls));
    let (good, named) = (device("server"), device("named"));
    let plain = Server::start("");
    let devices: String = [("a", &good), ("b", &named), ("c", &plain)]
        .iter()
        .map(|(name, server)| {
            format!(
                "[[inventory.devices]]\nname = \"{name}\"\naddress = \"https://{}\"\nports = 2\n",
                server.api
            )
        })
        .collect();
    let manager = Server::start(&format!("[manager]\nca = {:?}\n{devices}", file("ca.pem")));
    let expected = [
        "there is no switch in this process; add [switch] to its configuration".to_owned(),
        format!(
            "the certificate of {} is for another name; make one whose subjectAltName has 127.0.0.1, or use the name that it has",
            named.api
        ),
        format!(
            "{} does not speak TLS; write http:// in place of https://",
            plain.api
        ),
    ];
    let begun = std::time::Instant::now();
    loop {
        let view = manager.json("/api/v1/devices");
        let texts: Vec<String> = (0..3)
            .map(|index| view["devices"][index]["text"].as_str().unwrap().to_owned())
            .collect();
        if texts
            .iter()
            .zip(&expected)
            .all(|(text, expected)| text.contains(expected))
        {
            return;
        }
        assert!(begun.elapsed() < crate::support::server::TIMEOUT, "{texts:#?}");
        crate::support::pause();
    }
}

#[test]
fn a_token_without_tls_on_the_network_is_a_warning() {
    let directory = crate::support::TempDir::new();
    let config = directory.join("h.toml");
    let check = |text: String| {
        std::fs::write(
            &config,
            format!("store.enabled = false\ncollector.listen = [\"udp://127.0.0.1:1\"]\n{text}"),
        )
        .unwrap();
        // Everybody could read the token.
        std::fs::set_permissions(&config, Permissions::from_mode(0o640)).unwrap();
        hopwise(["check".as_ref(), "-c".as_ref(), config.as_os_str()])
    };
    let open = "api.listen = \"0.0.0.0:8080\"\napi.token = \"0123456789abcdef\"\n";
    let warned = check(open.to_owned()).stderr;
    let expected = "hopwise: warning: the API token is sent over the network in clear text; set [api] tls, or listen on 127.0.0.1 behind a TLS proxy (now 0.0.0.0:8080)\n";
    assert_eq!(warned, expected);
    let secure = check(format!("{open}{}", section("server")));
    assert_eq!((secure.code, secure.stderr.as_str()), (Some(0), ""));
    assert!(
        secure.stdout.ends_with("API on https://0.0.0.0:8080\n"),
        "{}",
        secure.stdout
    );
    // curl and browsers accept it, and `openssl req -x509` makes such a certificate.
    let authority = check(format!("{open}{}", section("authority")));
    let certificate = path("authority.pem");
    let warned = format!(
        "hopwise: warning: {certificate} is the certificate of an authority, which hopwise's own commands refuse as that of a server, and curl and browsers accept; make one for this server that the authority signs\n"
    );
    assert_eq!((authority.code, authority.stderr), (Some(0), warned));
    let server = Server::start(&section("authority"));
    let refused = "is that of an authority; make one for the server that this authority signs\n";
    let (code, message) = ask(&server, &["--ca", &certificate]);
    assert!(code == Some(2) && message.ends_with(refused), "{message}");
    let mixed = section("server").replace("server.key", "client.key");
    let refused = check(mixed);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("h.toml:3:") && refused.stderr.contains("is not that of"),
        "{}",
        refused.stderr
    );
}
