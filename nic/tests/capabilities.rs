//! Dropping capabilities needs a process with one thread and leaves it without them, so this test is a program of its own.

use std::fs;
use std::io::Write as _;

use nic::capabilities::{self, Cap, CapSet, Capabilities};

fn main() {
    let before = capabilities::current().expect("a /proc");
    if !before.effective.has(Cap::SETPCAP) || !before.permitted.has(Cap::BPF) {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED giving up capabilities: this needs root"
        );
        return;
    }
    one_thread_has_less(before);
    let keep = CapSet::of(&[Cap::NET_RAW, Cap::BPF]);
    let left = capabilities::drop_to(keep).expect("drop_to");
    let expected = Capabilities {
        effective: keep,
        permitted: keep,
        inheritable: CapSet::default(),
        ambient: CapSet::default(),
        bounding: keep,
        no_new_privileges: true,
        root: before.root,
    };
    assert_eq!(left, expected);
    every_thread_has(expected);

    // Dropped capabilities cannot be regained, and the rest can be dropped too, but then the bounding set does not change.
    let left = capabilities::drop_to(CapSet::of(&[Cap::NET_RAW, Cap::NET_ADMIN])).expect("drop_to");
    let only = CapSet::of(&[Cap::NET_RAW]);
    assert_eq!(
        left,
        Capabilities {
            effective: only,
            permitted: only,
            ..expected
        }
    );

    // A started program has no more capabilities, although root starts it.
    let child = std::process::Command::new("cat")
        .arg("/proc/self/status")
        .output()
        .expect("cat");
    let child = Capabilities::parse(&String::from_utf8_lossy(&child.stdout)).expect("a status");
    assert_eq!(child.permitted.and(only), child.permitted, "{child:?}");
    println!("1 passed, 0 failed");
}

/// Other threads keep the capabilities that one thread drops.
fn one_thread_has_less(before: Capabilities) {
    let less =
        std::thread::spawn(|| capabilities::drop_thread_to(CapSet::default()).expect("drop_thread_to"));
    let less = less.join().expect("the thread");
    assert!(
        less.permitted.is_empty() && less.bounding.is_empty() && less.no_new_privileges,
        "{less:?}"
    );
    assert_eq!(capabilities::current().expect("a /proc"), before);
}

/// The capabilities of threads started after this call, as the kernel reports them.
fn every_thread_has(expected: Capabilities) {
    let (ready, wait) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (started, running) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let _ = started.send(());
            wait.recv()
        });
        running.recv().expect("the thread runs");
        let tasks = fs::read_dir("/proc/self/task")
            .expect("the tasks")
            .map(|task| task.expect("a task").path());
        let all: Vec<_> = tasks
            .map(|task| Capabilities::parse(&fs::read_to_string(task.join("status")).expect("its status")))
            .collect();
        assert_eq!(all, [Some(expected); 2]);
        drop(ready);
    });
}
