//! The contract of drivers, over files: what is confirmed, who may write, and what others may do to the files meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use files::{APPLIED, Confirm, DESIRED, Directory, Driver, Format, Settings};
use manager::device::{Answer, Change, Command, DeviceEvent, Election, Etag, NodeId, Request, Rule, State};
use manager::driver::Message;
use manager::{Manager, ManagerSettings, intent, inventory};

/// A directory that is removed at the end of the test.
struct Temp(PathBuf);

impl Temp {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hopwise-files-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a usable temporary directory");
        Self(path)
    }

    fn device(&self, confirm: Confirm) -> Directory {
        Directory::new(self.settings(confirm))
    }

    fn settings(&self, confirm: Confirm) -> Settings {
        Settings {
            node: 11,
            name: "leaf1".to_owned(),
            directory: self.0.clone(),
            confirm,
            format: None,
        }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("a usable temporary directory")
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a usable temporary directory");
    }

    /// What the device's automation does.
    fn confirm(&self) {
        confirm(&self.0);
    }
}

fn confirm(directory: &Path) {
    fs::copy(directory.join(DESIRED), directory.join(APPLIED)).expect("a usable temporary directory");
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn election(epoch: u64) -> Election {
    Election { term: 7, epoch }
}

fn state(device: &mut Directory) -> State {
    match device.execute(Request::Read) {
        Answer::State(state) => state,
        other => panic!("{other:?}"),
    }
}

fn apply(device: &mut Directory, etag: &Etag, changes: &[Change]) -> Answer {
    let changes = changes.to_vec();
    device.execute(Request::Apply {
        election: election(1),
        etag: etag.clone(),
        changes,
    })
}

fn unconfirmed(device: &mut Directory) -> String {
    match device.execute(Request::Read) {
        Answer::Unconfirmed(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_written_counts_when_a_copy_confirms_it() {
    let temp = Temp::new("confirm");
    let mut device = temp.device(Confirm::Applied);
    assert_eq!(device.execute(Request::Claim(election(1))), Answer::Claimed);
    let path = temp.0.display();
    // An empty directory says nothing about the device.
    let begin = format!("{path}/desired.txt is written, and applied.txt ");
    let end = "; copy it to applied.txt when the device has these rules";
    assert_eq!(unconfirmed(&mut device), format!("{begin}does not exist{end}"));
    temp.confirm();
    let empty = state(&mut device);
    assert_eq!((empty.rules.len(), empty.foreign.len()), (0, 0));

    let changes = [Change::Add(Rule::Sink(2)), Change::Add(Rule::Instruction(2))];
    assert_eq!(apply(&mut device, &empty.etag, &changes), Answer::Applied);
    assert_eq!(unconfirmed(&mut device), format!("{begin}differs from it{end}"));
    // No step is taken before the last one is confirmed, and a copy of the old version changes nothing.
    assert_eq!(apply(&mut device, &empty.etag, &changes), Answer::Stale);
    let written = temp.read(DESIRED);
    let (header, lines) = written.split_once("\n\n").unwrap();
    assert!(
        header.starts_with("# Rules of leaf1 (node 11), written by the manager of hopwise."),
        "{header}"
    );
    assert!(header.contains("\n# election 7.1\n# version "), "{header}");
    assert_eq!(lines, "sink port=2\ninstruction bit=2 # hop_latency\n");
    temp.confirm();
    let now = state(&mut device);
    assert_eq!(now.rules, [Rule::Sink(2), Rule::Instruction(2)].into());
    assert_ne!(now.etag, empty.etag);
    assert_eq!(
        apply(&mut device, &now.etag, &[Change::Remove(Rule::Sink(9))]),
        Answer::Refused("there is no rule `port 9: sink` to remove; read the rules again".to_owned())
    );
}

#[test]
fn rules_that_the_form_cannot_express_are_not_taken_over() {
    let temp = Temp::new("form");
    temp.write(APPLIED, "sink port=2\n");
    let form = |_: &_, after: &manager::device::Rules| match after.is_empty() {
        true => Ok(vec![("own.txt", "empty".to_owned())]),
        false => Err("there are no sinks".to_owned()),
    };
    let settings = Settings {
        format: Some(Format::new(form)),
        ..temp.settings(Confirm::Applied)
    };
    let mut device = Directory::new(settings);
    let reason = format!(
        "the form of this device cannot express what {}/desired.txt or applied.txt says; correct the file: there are no sinks",
        temp.0.display()
    );
    assert_eq!(
        device.execute(Request::Claim(election(1))),
        Answer::Unreachable(reason)
    );
    assert!(!temp.0.join(DESIRED).exists() && !temp.0.join("own.txt").exists());
    temp.write(APPLIED, "");
    assert_eq!(device.execute(Request::Claim(election(1))), Answer::Claimed);
    assert_eq!(temp.read("own.txt"), "empty");
}

#[test]
fn an_older_election_writes_nothing() {
    let temp = Temp::new("fence");
    let (mut old, mut new) = (temp.device(Confirm::Written), temp.device(Confirm::Written));
    assert_eq!(old.execute(Request::Claim(election(1))), Answer::Claimed);
    let before = state(&mut old);
    assert_eq!(
        new.execute(Request::Claim(election(1))),
        Answer::NotPrimary(election(1))
    );
    assert_eq!(new.execute(Request::Claim(election(2))), Answer::Claimed);
    let changes = [Change::Add(Rule::Sink(2))];
    assert_eq!(
        apply(&mut old, &before.etag, &changes),
        Answer::NotPrimary(election(2))
    );
    assert_eq!(old.execute(Request::Read), Answer::NotPrimary(election(2)));
    assert_eq!(
        old.execute(Request::Claim(election(1))),
        Answer::NotPrimary(election(2))
    );
    assert_eq!(state(&mut new).rules, [].into());
    // The files remember it, whoever starts later.
    let mut third = temp.device(Confirm::Written);
    assert_eq!(
        third.execute(Request::Claim(election(2))),
        Answer::NotPrimary(election(2))
    );
}

#[test]
fn edits_by_others_are_drift_and_foreign_lines_are_kept() {
    let temp = Temp::new("edit");
    let mut device = temp.device(Confirm::Written);
    assert_eq!(device.execute(Request::Claim(election(1))), Answer::Claimed);
    let before = state(&mut device);
    assert!(!device.has_changed());
    let text = temp.read(DESIRED);
    temp.write(
        DESIRED,
        &format!("{text}sink port=3 # by hand\nsession collector=here\n"),
    );
    assert!(device.has_changed());
    assert!(!device.has_changed());
    assert_eq!(
        apply(&mut device, &before.etag, &[Change::Add(Rule::Sink(2))]),
        Answer::Stale
    );
    let edited = state(&mut device);
    assert_eq!(
        (&edited.rules, &edited.foreign),
        (
            &[Rule::Sink(3)].into(),
            &vec!["session collector=here".to_owned()]
        )
    );
    assert_eq!(
        apply(&mut device, &edited.etag, &[Change::Remove(Rule::Sink(3))]),
        Answer::Applied
    );
    assert!(!device.has_changed());
    assert_eq!(
        temp.read(DESIRED).split_once("\n\n").unwrap().1,
        "session collector=here\n"
    );
}

#[test]
fn a_claim_takes_over_what_is_confirmed() {
    let temp = Temp::new("claim");
    temp.write(APPLIED, "sink port=4\n");
    let mut device = temp.device(Confirm::Applied);
    assert_eq!(device.execute(Request::Claim(election(1))), Answer::Claimed);
    assert_eq!(state(&mut device).rules, [Rule::Sink(4)].into());
}

#[test]
fn unusable_files_are_named() {
    let temp = Temp::new("unusable");
    let mut device = temp.device(Confirm::Applied);
    let reason = |answer: Answer| match answer {
        Answer::Unreachable(reason) => reason,
        other => panic!("{other:?}"),
    };
    temp.write(DESIRED, &"#".repeat((4 << 20) + 1));
    let path = temp.0.display();
    let long = format!("cannot use {path}: desired.txt: it is longer than 4 MiB");
    assert_eq!(reason(device.execute(Request::Claim(election(1)))), long);
    fs::write(temp.0.join(DESIRED), [0xff]).unwrap();
    assert!(reason(device.execute(Request::Read)).contains("desired.txt: "));
    fs::remove_dir_all(&temp.0).unwrap();
    let gone = format!("there is no directory {path}; create it, or correct `address`");
    assert_eq!(reason(device.execute(Request::Read)), gone);
}

#[test]
fn the_driver_reports_that_somebody_confirms() {
    let temp = Temp::new("driver");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let guard = runtime.enter();
    let (sender, messages) = channel();
    let driver = Driver::start(temp.settings(Confirm::Applied), move |message| {
        let _ = sender.send(message);
    });
    let ask = |id, request| {
        assert!(driver.send(Command {
            node: 11,
            id,
            request,
            limit: 2_000_000_000
        }));
        loop {
            match messages.recv_timeout(Duration::from_secs(60)).unwrap() {
                Message::Answer(11, answered, answer) if answered == id => return answer,
                Message::Event(11, DeviceEvent::Changed) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(ask(1, Request::Claim(election(1))), Answer::Claimed);
    assert!(matches!(ask(2, Request::Read), Answer::Unconfirmed(_)));
    temp.confirm();
    assert_eq!(
        messages.recv_timeout(Duration::from_secs(60)),
        Ok(Message::Event(11, DeviceEvent::Changed))
    );
    drop((driver, guard));
}

/// Two leaves behind files, and their manager.
struct Network {
    manager: Manager,
    devices: BTreeMap<NodeId, (Temp, Directory)>,
    now: u64,
}

const NETWORK: &str = r#"
devices = [{ name = "leaf1", node = 1, ports = 2, edge = [1] }, { name = "leaf2", node = 2, ports = 2, edge = [1] }]
links = [{ between = ["leaf1:2", "leaf2:2"] }]
"#;

impl Network {
    fn new() -> Self {
        let mut manager = Manager::new(ManagerSettings::default());
        for node in [1, 2] {
            manager.set_capabilities(node, files::capabilities(), 0);
        }
        manager.set_inventory(
            inventory::read(NETWORK, "network.toml").expect("a valid inventory"),
            0,
        );
        let intents = "intents = [{ name = \"web\", match = { dport = 80 }, watch = [\"hop_latency\"], mode = \"md\" }]";
        for intent in intent::read(intents, "intents.toml", 0).expect("a valid intent") {
            manager.add_intent(intent, 0).expect("an intent that fits");
        }
        manager.set_term(Some(1), 0);
        let device = |node: NodeId| {
            let temp = Temp::new(&format!("network-{node}"));
            let device = temp.device(Confirm::Applied);
            (node, (temp, device))
        };
        Self {
            manager,
            devices: [1, 2].map(device).into(),
            now: 0,
        }
    }

    /// Runs until all requests are answered, 100 ms later.
    fn run(&mut self) {
        self.now += 100_000_000;
        loop {
            let mut commands = Vec::new();
            self.manager.poll(self.now, &mut commands);
            if commands.is_empty() {
                return;
            }
            for Command {
                node, id, request, ..
            } in commands
            {
                let answer = self
                    .devices
                    .get_mut(&node)
                    .expect("one of two")
                    .1
                    .execute(request);
                self.manager.answer(node, id, answer, self.now);
            }
        }
    }

    fn has_watches(&self, node: NodeId) -> bool {
        self.devices[&node].0.read(DESIRED).contains("\nwatch ")
    }

    fn confirm(&mut self, node: NodeId) {
        let (temp, device) = self.devices.get_mut(&node).expect("one of two");
        temp.confirm();
        assert!(device.has_changed());
        self.manager.event(node, DeviceEvent::Changed, self.now);
    }

    fn phases(&self) -> Vec<&'static str> {
        self.manager
            .devices()
            .iter()
            .map(|device| device.phase.name())
            .collect()
    }
}

#[test]
fn no_source_is_written_before_all_sinks_are_confirmed() {
    let mut network = Network::new();
    network.run();
    assert_eq!(network.phases(), ["unconfirmed", "unconfirmed"]);
    network.confirm(1);
    network.confirm(2);
    network.run();
    // The sinks are written. One leaf has them, the other does not say so.
    network.confirm(1);
    network.run();
    network.run();
    assert_eq!((network.has_watches(1), network.has_watches(2)), (false, false));
    network.confirm(2);
    network.run();
    assert_eq!((network.has_watches(1), network.has_watches(2)), (true, true));
    network.confirm(1);
    network.confirm(2);
    network.run();
    assert_eq!(network.phases(), ["in_sync", "in_sync"]);
}
