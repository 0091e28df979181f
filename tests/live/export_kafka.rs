//! Exports to Kafka.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use super::{
    export::{exported, own, reports_from},
    export_redis::check,
    servers::{Process, free_port, is_installed},
};
use crate::support::{
    TempDir, hopwise,
    server::{Server, TIMEOUT, report},
    skipped, tls,
};

/// Brokers that are their own controllers. Each has a port without encryption, and one with TLS and logins.
pub(super) struct Kafka {
    pub(super) brokers: Vec<Broker>,
}

pub(super) struct Broker {
    process: Option<Process>,
    pub(super) plain: u16,
    secure: u16,
    control: u16,
    directory: TempDir,
}

/// The jars, as scripts/sink-servers installs them.
fn jars() -> Option<PathBuf> {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/sink-servers");
    let folder = std::env::var_os("HOPWISE_SINK_SERVERS")
        .map_or(default, PathBuf::from)
        .join("kafka/lib");
    if !folder.join("DONE").exists() {
        skipped("exports to Kafka: needs Kafka (scripts/sink-servers)");
        return None;
    }
    (is_installed("exports to Kafka", "java") && is_installed("exports to Kafka", "kcat")).then_some(folder)
}

fn java(jars: &Path) -> Command {
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command
        .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
        .arg(format!("{}/*", jars.display()));
    command
}

impl Broker {
    fn new() -> Self {
        let [plain, secure, control] = [free_port(), free_port(), free_port()];
        Self {
            process: None,
            plain,
            secure,
            control,
            directory: TempDir::new(),
        }
    }

    /// Writes its configuration, and what a broker needs before its first start.
    fn prepare(&self, jars: &Path, id: usize, voters: &str, replicas: usize) {
        let directory = &self.directory;
        let pem = ["server.key", "server.pem"]
            .map(|name| fs::read_to_string(tls::file(name)).unwrap())
            .concat();
        fs::write(directory.join("server.pem"), pem).unwrap();
        let Self {
            plain,
            secure,
            control,
            ..
        } = self;
        let text = format!(
            "process.roles=broker,controller\nnode.id={id}\ncontroller.quorum.voters={voters}\n\
             listeners=PLAIN://127.0.0.1:{plain},SECURE://127.0.0.1:{secure},CONTROL://127.0.0.1:{control}\n\
             advertised.listeners=PLAIN://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}\n\
             listener.security.protocol.map=PLAIN:PLAINTEXT,SECURE:SASL_SSL,CONTROL:PLAINTEXT\n\
             inter.broker.listener.name=PLAIN\ncontroller.listener.names=CONTROL\nlog.dirs={data}\n\
             auto.create.topics.enable=false\noffsets.topic.replication.factor=1\nnum.partitions=3\n\
             default.replication.factor={replicas}\nmin.insync.replicas={least}\n\
             ssl.keystore.type=PEM\nssl.keystore.location={pem}\nsasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n\
             listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_hopwise=\"correct horse\";\n\
             listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;\n",
            data = directory.join("data").display(),
            least = replicas.min(2),
            pem = directory.join("server.pem").display(),
        );
        fs::write(directory.join("server.properties"), text).unwrap();
        let output = java(jars)
            .args([
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "MkU3OEVBNTcwNTJENDM2Qg",
                "-c",
            ])
            .arg(directory.join("server.properties"))
            .args([
                "--add-scram",
                "SCRAM-SHA-512=[name=hopwise,password=correct horse]",
            ])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    pub(super) fn spawn(&mut self) {
        let mut command = java(&jars().unwrap());
        command
            .arg("kafka.Kafka")
            .arg(self.directory.join("server.properties"));
        self.process = Some(Process::spawn(&mut command, &self.directory));
    }

    pub(super) fn wait(&mut self) {
        self.process.as_mut().unwrap().wait(&self.directory, self.plain);
    }

    pub(super) fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }
}

impl Kafka {
    /// So many brokers; each partition is on so many of them.
    pub(super) fn start(brokers: usize, replicas: usize) -> Option<Self> {
        let jars = jars()?;
        let mut brokers: Vec<Broker> = (0..brokers).map(|_| Broker::new()).collect();
        let voter = |(index, broker): (usize, &Broker)| format!("{}@127.0.0.1:{}", index + 1, broker.control);
        let voters = brokers
            .iter()
            .enumerate()
            .map(voter)
            .collect::<Vec<_>>()
            .join(",");
        for (index, broker) in brokers.iter().enumerate() {
            broker.prepare(&jars, index + 1, &voters, replicas);
        }
        // None is ready before most are.
        brokers.iter_mut().for_each(Broker::spawn);
        brokers.iter_mut().for_each(Broker::wait);
        let kafka = Self { brokers };
        let all = format!(" {} brokers:", kafka.brokers.len());
        let start = Instant::now();
        while !kafka.kcat(&["-L"]).contains(&all) {
            assert!(start.elapsed() < TIMEOUT, "never{all}");
            crate::support::pause();
        }
        Some(kafka)
    }

    /// What kcat says of it.
    pub(super) fn kcat(&self, arguments: &[&str]) -> String {
        let brokers = self.brokers.iter().filter(|broker| broker.process.is_some());
        let list = brokers
            .map(|broker| format!("127.0.0.1:{}", broker.plain))
            .collect::<Vec<_>>()
            .join(",");
        let output = Command::new("kcat")
            .args(["-b", &list])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The messages of a topic in this form of kcat, by Kafka's own order in each partition.
    pub(super) fn messages(&self, topic: &str, format: &str) -> Vec<String> {
        let text = self.kcat(&["-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", format]);
        text.lines().map(str::to_owned).collect()
    }
}

fn export(url: &str, extra: &str) -> String {
    format!("[exports.bus]\nkind = \"kafka\"\nurl = \"{url}\"\nlinger = \"0s\"\n{extra}")
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

fn schema(directory: &TempDir, command: &str, export: &str) -> String {
    let config = directory.join("schema.toml");
    fs::write(&config, export).unwrap();
    let run = hopwise(["schema", command, "-c", config.to_str().unwrap(), "bus"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    run.stdout
}

/// The same columns of a message in JSON as of a row.
fn columns(message: &str) -> String {
    let value: serde_json::Value =
        serde_json::from_str(message).unwrap_or_else(|error| panic!("{error}: {message}"));
    let text = |name: &str| match &value[name] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => "\\N".to_owned(),
        other => other.to_string(),
    };
    [
        "id",
        "ts",
        "kind",
        "metric",
        "node",
        "value",
        "previous",
        "threshold",
        "basis",
    ]
    .map(text)
    .join("\t")
}

const ROWS: &str = "SELECT id, ts, kind, metric, node, value, previous, threshold, basis FROM events";

fn sorted(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.into_iter().collect();
    lines.sort();
    lines
}

#[test]
fn kafka_has_what_the_store_has_through_a_kill_and_a_silence() {
    let Some(mut kafka) = Kafka::start(1, 1) else {
        return;
    };
    let directory = TempDir::new();
    let url = format!("tcp://127.0.0.1:{}", kafka.brokers[0].plain);
    let config = export(
        &url,
        "format = \"json\"\nstreams = [\"events\", \"flows\"]\ntimeout = \"2s\"\n",
    );
    let (code, said) = check(&directory, &config);
    let missing = "export bus: Kafka has no topic hopwise.events.v1; `hopwise schema apply` creates it";
    assert_eq!((code, said.as_str()), (Some(1), missing));
    let shown = "kafka-topics.sh --create --if-not-exists --topic hopwise.events.v1\n\
                 kafka-topics.sh --create --if-not-exists --topic hopwise.flows.v1 --config cleanup.policy=compact\n";
    assert_eq!(schema(&directory, "show", &config), shown);
    assert_eq!(schema(&directory, "apply", &config), "2 statement(s) executed\n");
    assert_eq!(
        schema(&directory, "apply", &config),
        "2 statement(s) executed\n",
        "again: nothing changes"
    );
    let here = format!(
        "export bus: 127.0.0.1:{} has what is needed",
        kafka.brokers[0].plain
    );
    assert_eq!(check(&directory, &config), (Some(0), here));

    let server = Server::start(&config);
    server.send(reports_from(0));
    server.settled(150);
    drain(&server);
    // A broker that is silent for longer than the time limit: what it gets twice, it keeps once.
    kafka.brokers[0].process.as_ref().unwrap().signal("-STOP");
    server.send(reports_from(150));
    server.settled(300);
    let view = exported(&server, "failing", |view| view["last_error"].is_string());
    let error = view["last_error"].as_str().unwrap().to_owned();
    assert!(error.contains("answer in time"), "{error}");
    kafka.brokers[0].process.as_ref().unwrap().signal("-CONT");
    drain(&server);
    kafka.brokers[0].kill();
    server.send(reports_from(300));
    server.settled(450);
    exported(&server, "failing again", |view| view["last_error"].is_string());
    kafka.brokers[0].spawn();
    kafka.brokers[0].wait();
    drain(&server);

    let messages = kafka.messages("hopwise.events.v1", "%s\n");
    assert_eq!(
        sorted(messages.iter().map(|message| columns(message))),
        sorted(own(&server, ROWS).lines().map(str::to_owned))
    );
    // Partition and key: a flow has one partition, that which other producers choose for it.
    let keys = sorted(kafka.messages("hopwise.events.v1", "%p %k\n"));
    let mut distinct = keys.clone();
    distinct.dedup();
    let flows = own(&server, "SELECT count(DISTINCT ifnull(flow, node)) FROM events");
    assert_eq!(distinct.len().to_string(), flows, "{distinct:?}");
    // The latest state of each flow is the last message with its key.
    let mut latest = std::collections::BTreeMap::new();
    for message in kafka.messages("hopwise.flows.v1", "%k\t%s\n") {
        let (key, value) = message.split_once('\t').unwrap();
        let value: serde_json::Value = serde_json::from_str(value).unwrap();
        latest.insert(key.to_owned(), format!("{key}\t{}", value["reports"]));
    }
    let rows = own(&server, "SELECT flow, reports FROM flows");
    assert_eq!(
        sorted(latest.into_values()),
        sorted(rows.lines().map(str::to_owned))
    );
    let view = exported(&server, "settled", |view| view["waiting"] == 0);
    assert_eq!((&view["rejected"], &view["expired"]), (&0.into(), &0.into()));
}

const SCRAM: &str = "mechanism = \"scram-sha-512\"\n";

/// An export to the port with TLS and logins.
pub(super) fn secured(kafka: &Kafka, scheme: &str, ca: &str, (password, extra): (&Path, &str)) -> String {
    let keys = format!(
        "ca = {:?}\nuser = \"hopwise\"\npassword_file = {password:?}\nstreams = [\"events\"]\n{extra}",
        tls::file(ca)
    );
    export(
        &format!("{scheme}://127.0.0.1:{}", kafka.brokers[0].secure),
        &keys,
    )
}

/// What `check --connect` says of each thing that is wrong.
fn each_has_a_sentence(kafka: &Kafka, directory: &TempDir, right: &Path, wrong: &Path) {
    let address = format!("127.0.0.1:{}", kafka.brokers[0].secure);
    let said = |scheme: &str, ca: &str, login: (&Path, &str)| {
        let (code, said) = check(directory, &secured(kafka, scheme, ca, login));
        assert_eq!(code, Some(1), "{said}");
        said
    };
    assert_eq!(
        said("tls", "other.pem", (right, SCRAM)),
        format!(
            "export bus: the certificate of {address} is not from an authority that is trusted here; name the file with the authority's certificate as the CA"
        )
    );
    assert_eq!(
        said("tls", "ca.pem", (wrong, "mechanism = \"plain\"\n")),
        format!(
            "export bus: {address} refuses the credentials (Authentication failed: Invalid username or password); correct user and password"
        )
    );
    let refused = said("tls", "ca.pem", (wrong, SCRAM));
    assert!(
        refused.starts_with(&format!("export bus: {address} refuses the credentials (")),
        "{refused}"
    );
    assert_eq!(
        said("tls", "ca.pem", (right, "mechanism = \"scram-sha-256\"\n")),
        format!(
            "export bus: {address} does not accept a password by SCRAM-SHA-256, only by PLAIN, SCRAM-SHA-512; write one of these as `mechanism`"
        )
    );
    let refused = said("tcp", "ca.pem", (right, SCRAM));
    assert!(
        refused.ends_with("; if it requires TLS, write tls://"),
        "{refused}"
    );
}

#[test]
fn kafka_with_tls_and_logins() {
    let Some(kafka) = Kafka::start(1, 1) else { return };
    let directory = TempDir::new();
    let (right, wrong) = (directory.join("right"), directory.join("wrong"));
    fs::write(&right, "correct horse\n").unwrap();
    fs::write(&wrong, "battery staple\n").unwrap();
    each_has_a_sentence(&kafka, &directory, &right, &wrong);
    let config = secured(&kafka, "tls", "ca.pem", (&right, "partitions = 5\n"));
    assert_eq!(schema(&directory, "apply", &config), "1 statement(s) executed\n");
    for mechanism in ["mechanism = \"plain\"\n", SCRAM] {
        let config = secured(&kafka, "tls", "ca.pem", (&right, mechanism));
        let here = format!(
            "export bus: 127.0.0.1:{} has what is needed",
            kafka.brokers[0].secure
        );
        assert_eq!(check(&directory, &config), (Some(0), here));
    }
    let server = Server::start(&config);
    server.send((0..50).map(|n| report(n, 1000 + n as u16, [1000, 2000, 3000])));
    server.settled(50);
    drain(&server);
    // Time, key and headers; the value is protobuf.
    let messages = kafka.messages("hopwise.events.v1", "%T|%k|%h\n");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let sql = "SELECT ts / 1000000, ifnull(flow, node), id FROM events";
    let expected = own(&server, sql);
    let expected = expected.lines().map(|line| {
        let [ts, key, id] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        format!(
            "{ts}|{key}|id={id},schema=hopwise.v1.Event,collector={}",
            host.trim()
        )
    });
    assert_eq!(sorted(messages), sorted(expected));
}

#[test]
fn kafka_goes_on_without_a_broker() {
    let Some(mut kafka) = Kafka::start(3, 3) else {
        return;
    };
    let directory = TempDir::new();
    let list = kafka
        .brokers
        .iter()
        .map(|broker| format!("127.0.0.1:{}", broker.plain))
        .collect::<Vec<_>>();
    let extra = "format = \"json\"\nstreams = [\"events\"]\ntimeout = \"5s\"\n";
    let config = export(&format!("tcp://{}", list.join(",")), extra);
    assert_eq!(schema(&directory, "apply", &config), "1 statement(s) executed\n");
    let server = Server::start(&config);
    server.send(reports_from(0));
    server.settled(150);
    drain(&server);
    // One is lost, then it returns and another one is lost: each leads a partition.
    for (index, from) in [(1, 150), (0, 300)] {
        kafka.brokers[index].kill();
        let mut answering = list.clone();
        let lost = answering.remove(index);
        answering.sort();
        let wrong = format!(
            "export bus: no connection to {lost}: Connection refused (os error 111); correct the url, or start the server. Answers: {}",
            answering.join(", ")
        );
        assert_eq!(check(&directory, &config), (Some(1), wrong));
        server.send(reports_from(from));
        server.settled(u64::from(from) + 150);
        drain(&server);
        kafka.brokers[index].spawn();
        kafka.brokers[index].wait();
    }
    let messages = kafka.messages("hopwise.events.v1", "%s\n");
    let there = sorted(messages.iter().map(|message| columns(message)));
    assert_eq!(there, sorted(own(&server, ROWS).lines().map(str::to_owned)));
    let view = exported(&server, "settled", |view| view["waiting"] == 0);
    assert_eq!((&view["rejected"], &view["expired"]), (&0.into(), &0.into()));
}

/// What the others answered is not sent again, though the silent broker is the last one that would answer, and the first one in the url.
#[test]
fn kafka_has_each_message_once_though_one_of_its_leaders_is_silent() {
    let Some(kafka) = Kafka::start(3, 1) else { return };
    let directory = TempDir::new();
    let brokers = kafka.brokers.iter().rev();
    let list = brokers
        .map(|broker| format!("127.0.0.1:{}", broker.plain))
        .collect::<Vec<_>>();
    let extra = "format = \"json\"\nstreams = [\"events\"]\ntimeout = \"3s\"\n";
    let config = export(&format!("tcp://{}", list.join(",")), extra);
    assert_eq!(schema(&directory, "apply", &config), "1 statement(s) executed\n");
    let server = Server::start(&config);
    server.send(reports_from(0));
    server.settled(150);
    drain(&server);
    let silent = kafka.brokers[2].process.as_ref().unwrap();
    silent.signal("-STOP");
    server.send(reports_from(150));
    server.settled(300);
    exported(&server, "failing again and again", |view| {
        view["failed"].as_u64() >= Some(2)
    });
    silent.signal("-CONT");
    drain(&server);
    let messages = kafka.messages("hopwise.events.v1", "%s\n");
    let there = sorted(messages.iter().map(|message| columns(message)));
    assert_eq!(there, sorted(own(&server, ROWS).lines().map(str::to_owned)));
}
