//! Tests `nic::verbs` on a real kernel: the RDMA device at an address of this machine is both ends of each connection.
//! `scripts/test-verbs` runs it in a guest whose kernel has soft-RoCE. Usage: `verbs-check ADDRESS`.

use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memory::Region;
use nic::verbs::{Device, Peer, QueuePair, Refused, RegisteredRegion, Sender, WorkCompletion, status_name};

const LEN: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

type Outcome = Result<(), Box<dyn std::error::Error>>;
type Check = fn(IpAddr) -> Outcome;

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1).and_then(|word| word.parse().ok()) else {
        eprintln!("usage: verbs-check ADDRESS");
        return ExitCode::from(2);
    };
    let checks: [(&str, Check); 5] = [
        ("a device is found by its address only", finds_devices),
        ("an unreliable pair writes, and reports immediates", |address| {
            writes(address, false)
        }),
        ("a reliable pair writes, and reports immediates", |address| {
            writes(address, true)
        }),
        ("a reliable pair adds", adds),
        (
            "a wrong key breaks a reliable pair, and nothing is written",
            is_refused,
        ),
    ];
    let mut failed = 0;
    for (name, test) in checks {
        match test(address) {
            Ok(()) => println!("test {name} ... ok"),
            Err(error) => {
                failed += 1;
                println!("test {name} ... FAILED: {error}");
            }
        }
    }
    println!("test result: {} passed; {failed} failed", checks.len() - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn check(condition: bool, what: &str) -> Outcome {
    if condition { Ok(()) } else { Err(what.into()) }
}

struct Ends {
    memory: RegisteredRegion,
    receiver: QueuePair,
    sender: Sender,
}

fn ends(address: IpAddr, reliable: bool) -> Result<Ends, Box<dyn std::error::Error>> {
    let device = Device::open(address)?;
    let memory = device.register(Arc::new(Region::anonymous(LEN, false)?), true)?;
    let mut receiver = device.queue_pair(reliable, 4, 64)?;
    let mut sender = Sender::new(&device, reliable, 64, 4096)?;
    let mtu = device.mtu();
    let number = sender.queue_pair().number();
    receiver.connect(&Peer {
        address,
        queue_pair: number,
        psn: 0xff_ff00,
        own_psn: 7,
        mtu,
    })?;
    let to = Peer {
        address,
        queue_pair: receiver.number(),
        psn: 7,
        own_psn: 0xff_ff00,
        mtu,
    };
    sender.queue_pair().connect(&to)?;
    Ok(Ends {
        memory,
        receiver,
        sender,
    })
}

/// Waits until the condition holds. Returns an error after [`TIMEOUT`].
fn wait(mut until: impl FnMut() -> bool, what: &str) -> Outcome {
    let start = Instant::now();
    while !until() {
        if start.elapsed() > TIMEOUT {
            return Err(format!("waited in vain: {what}").into());
        }
    }
    Ok(())
}

fn finds_devices(address: IpAddr) -> Outcome {
    Device::open(address)?;
    match Device::open([192, 0, 2, 1].into()) {
        Ok(_) => Err("found one with an address that nobody has".into()),
        Err(error) => check(
            error.to_string().contains("rdma link"),
            "the error says what to do",
        ),
    }
}

fn writes(address: IpAddr, reliable: bool) -> Outcome {
    let Ends {
        memory,
        mut receiver,
        mut sender,
    } = ends(address, reliable)?;
    receiver.receive(2)?;
    let (base, key) = (memory.address(), memory.key());
    // More writes than slots, each to another address, so that every slot is reused.
    let data = |at: u64| [at.to_le_bytes(), (!at).to_le_bytes(), (at * 3).to_le_bytes()].concat();
    for at in 0..2000_u64 {
        loop {
            match sender.write(base + at * 32, key, &data(at), None) {
                Ok(()) => break,
                Err(Refused::Full) => sender.poll(),
                Err(refused) => return Err(format!("{refused:?}").into()),
            }
        }
    }
    let long: Vec<u8> = (0..4000_u32).map(|at| (at % 251) as u8).collect();
    let post = |sender: &mut Sender, data: &[u8], immediate| {
        wait(
            || {
                sender.poll();
                sender.write(base + 900_000, key, data, Some(immediate)).is_ok()
            },
            "room to write",
        )
    };
    post(&mut sender, &long, 0xbeef)?;
    check(
        sender.write(base, key, &[0; 4097], None) == Err(Refused::TooLong),
        "more than a slot is refused",
    )?;
    post(&mut sender, &[], 0xcafe)?;
    let mut completed = Vec::new();
    wait(
        || {
            let mut buffer = [WorkCompletion::default(); 4];
            completed.extend(
                receiver
                    .poll_received(&mut buffer)
                    .iter()
                    .map(|completion| (completion.status, completion.immediate, completion.len)),
            );
            completed.len() >= 2
        },
        "two immediates",
    )?;
    check(
        completed == [(0, 0xbeef, 4000), (0, 0xcafe, 0)],
        "the immediates and their lengths",
    )?;
    let mut seen = vec![0; 4000];
    memory.region().read(900_000, &mut seen)?;
    check(seen == long, "the long write")?;
    for at in 0..2000_u64 {
        let mut seen = [0; 24];
        memory.region().read(at * 32, &mut seen)?;
        check(seen[..] == data(at), "each short write")?;
    }
    Ok(())
}

fn adds(address: IpAddr) -> Outcome {
    let Ends {
        memory,
        receiver: _receiver,
        mut sender,
    } = ends(address, true)?;
    let (base, key) = (memory.address(), memory.key());
    for at in 0..300_u64 {
        wait(
            || {
                sender.poll();
                sender.fetch_add(base + at % 3 * 8, key, at).is_ok()
            },
            "room to add",
        )?;
    }
    wait(
        || {
            sender.poll();
            (sender.posted(), sender.completed()) == (300, 300)
        },
        "all additions",
    )?;
    for at in 0..3 {
        let sum: u64 = (0..300).filter(|number| number % 3 == at).sum();
        check(memory.region().load_u64(at * 8)? == sum, "the sums")?;
    }
    Ok(())
}

fn is_refused(address: IpAddr) -> Outcome {
    let Ends {
        memory,
        receiver: _receiver,
        mut sender,
    } = ends(address, true)?;
    for _ in 0..16 {
        let posted = sender.write(memory.address(), memory.key() ^ 0x100, &[1; 8], None);
        check(posted.is_ok(), "it is taken")?;
    }
    wait(
        || {
            sender.poll();
            sender.error_status().is_some()
        },
        "the refusal",
    )?;
    let name = sender.error_status().map(status_name);
    check(name.is_some_and(|name| name.contains("access")), "the reason")?;
    check(
        sender.write(memory.address(), memory.key(), &[1; 8], None) == Err(Refused::Broken),
        "nothing more is taken",
    )?;
    check(memory.region().load_u64(0)? == 0, "nothing was written")
}
