//! Exports of the whole program to a server that speaks as S3 does, and checks signatures: versitygw, whose objects are files.

use std::{fs, path::PathBuf, process::Command};

use super::{
    console::drain,
    export::{exported, reports_from},
    export_parquet::{files, ids, rows, settled},
    export_redis::check,
    servers::{Process, free_port, front},
};
use crate::support::{TempDir, hopwise, server::Server, skipped, tls};

/// Its program; `None`: it is not installed, which is said.
fn program() -> Option<PathBuf> {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/sink-servers");
    let servers = std::env::var_os("HOPWISE_SINK_SERVERS").map_or(default, PathBuf::from);
    let program = Some(servers.join("s3/versitygw")).filter(|program| program.exists());
    if program.is_none() {
        skipped("exports to S3: needs versitygw (scripts/sink-servers, with Go)");
    }
    program
}

struct Gateway {
    program: PathBuf,
    process: Option<Process>,
    directory: TempDir,
    port: u16,
}

impl Gateway {
    /// Has one bucket, `net`.
    fn start() -> Option<Self> {
        let (program, directory, port) = (program()?, TempDir::new(), free_port());
        fs::create_dir_all(directory.join("objects/net")).unwrap();
        let mut gateway = Self {
            program,
            process: None,
            directory,
            port,
        };
        gateway.run();
        Some(gateway)
    }

    fn run(&mut self) {
        let mut command = Command::new(&self.program);
        command.args([
            "--access",
            "hopwise",
            "--secret",
            "correct horse",
            "--region",
            "eu-north-1",
            "--port",
        ]);
        command
            .arg(format!("127.0.0.1:{}", self.port))
            .arg("posix")
            .arg(self.directory.join("objects"));
        self.process = Some(Process::start(&mut command, &self.directory, self.port));
    }

    fn objects(&self) -> PathBuf {
        self.directory.join("objects/net")
    }
}

#[test]
fn objects_of_s3_have_what_the_store_has_through_a_kill() {
    let Some(mut gateway) = Gateway::start() else {
        return;
    };
    let directory = TempDir::new();
    let (right, wrong) = (directory.join("right"), directory.join("wrong"));
    fs::write(&right, "correct horse\n").unwrap();
    fs::write(&wrong, "battery staple\n").unwrap();
    let address = front("server", ([127, 0, 0, 1], gateway.port).into());
    let ca = tls::file("ca.pem");
    let export = |path: &str, secret: &PathBuf, region: &str| {
        format!(
            "[exports.lake]\nkind = \"parquet\"\nurl = \"https://localhost:{}/{path}\"\nca = {ca:?}\nregion = \"{region}\"\n\
             user = \"hopwise\"\npassword_file = {secret:?}\nstreams = [\"events\"]\nlinger = \"0s\"\nbatch = 40\n",
            address.port()
        )
    };
    for (config, words) in [
        (
            export("net", &wrong, "eu-north-1"),
            "the server refuses the credentials (HTTP 403: ",
        ),
        (
            export("other", &right, "eu-north-1"),
            "the server has no such bucket (HTTP 404: ",
        ),
    ] {
        let (code, said) = check(&directory, &config);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.starts_with(&format!("export lake: {words}")), "{said}");
    }
    // Names of which a part must be escaped.
    let config = export("net/site=north+(1)", &right, "eu-north-1");
    let here = format!("export lake: localhost:{} has what is needed", address.port());
    assert_eq!(check(&directory, &config), (Some(0), here));
    assert_eq!(
        files(&gateway.objects()),
        Vec::<PathBuf>::new(),
        "the check leaves nothing"
    );

    let server = Server::start(&config);
    server.send(reports_from(0));
    server.settled(150);
    exported(&server, "delivered", |view| view["delivered"].as_u64() > Some(0));
    gateway.process.take().unwrap().kill();
    server.send(reports_from(150));
    server.settled(300);
    let view = exported(&server, "failing", |view| view["last_error"].is_string());
    let error = view["last_error"].as_str().unwrap();
    assert!(error.starts_with("a request failed: "), "{error}");
    gateway.run();
    drain(&server);
    settled(&server);
    let objects = files(&gateway.objects());
    let day = |file: &&PathBuf| {
        let path = file.display().to_string();
        path.contains("/net/site=north+(1)/events/date=2") && path.ends_with(".parquet")
    };
    assert!(
        objects.len() > 2 && objects.iter().all(|file| day(&file)),
        "{objects:?}"
    );
    // A name says how many records are inside.
    let said: usize = objects
        .iter()
        .map(|file| {
            file.to_str()
                .unwrap()
                .rsplit('-')
                .nth(1)
                .unwrap()
                .parse::<usize>()
                .unwrap()
        })
        .sum();
    assert_eq!(said, ids(&server).len());
    let Some(rows) = rows(&objects) else { return };
    let mut found: Vec<String> = rows
        .iter()
        .map(|row| row["id"].as_str().unwrap().to_owned())
        .collect();
    found.sort_unstable();
    assert_eq!(found, ids(&server));
}

#[test]
fn what_is_wrong_with_a_bucket_is_said_without_a_connection() {
    let directory = TempDir::new();
    let secret = directory.join("secret");
    fs::write(&secret, "s\n").unwrap();
    let wrong = |url: &str, more: &str| {
        let file = directory.join("wrong.toml");
        fs::write(
            &file,
            format!("[exports.lake]\nkind = \"parquet\"\nurl = \"{url}\"\n{more}"),
        )
        .unwrap();
        let run = hopwise(["check", "-c", file.to_str().unwrap()]);
        assert_ne!(run.code, Some(0), "{run:?}");
        run.stderr
    };
    let key = format!("user = \"id\"\npassword_file = {secret:?}\n");
    assert!(wrong("http://127.0.0.1:9/", &key).contains("the bucket is missing"));
    assert!(wrong("http://127.0.0.1:9/net", "").contains("S3 requires an access key"));
    assert!(wrong("http://127.0.0.1:9/net/50%", &key).contains("write %25"));
    assert!(
        wrong("http://127.0.0.1:9/net", &format!("{key}region = \"\"\n")).contains("the name of a region")
    );
    assert!(wrong("s3://net/lake", &key).contains("a bucket of S3 is https://HOST/BUCKET"));
}
