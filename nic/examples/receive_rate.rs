//! Measures how many datagrams per second this machine's kernel delivers to one socket: first discarded, then received by
//! [`nic::udp`].
//!
//! Root only: sender and receiver run in separate network namespaces, with a link between them. Usage: `receive_rate
//! [SECONDS]`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nic::load::{Discard, Load};
use nic::netns::Pair;
use nic::udp::{Burst, Options, Receiver, Sender};
use nic::{Error, time};

fn main() -> Result<(), Error> {
    let seconds = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(1.0);
    let pair = Pair::create()?;
    let micros = Duration::from_micros;
    println!(
        "{:42} {:>10} {:>10} {:>10} {:>8}",
        "receiver", "Mpps", "sent Mpps", "per call", "drops %"
    );
    for segmented in [false, true] {
        let kind = if segmented { "segmented" } else { "plain" };
        for wait in [micros(0), micros(50), micros(100)] {
            let name = format!("thrown away, {kind}, wait {wait:?}");
            measure(&name, &pair, segmented, seconds, |address, options, stop| {
                let mut discard = Discard::bind(address, options)?;
                let to = discard.local_addr();
                Ok((to, move || {
                    discard.run(wait, stop).map(|d| (d.datagrams, d.calls))
                }))
            })?;
        }
        for (wait, slots) in [
            (micros(0), 64),
            (micros(50), 64),
            (micros(100), 64),
            (micros(50), 256),
        ] {
            let name = format!("received, {kind}, wait {wait:?}, {slots} slots");
            measure(&name, &pair, segmented, seconds, |address, options, stop| {
                let mut receiver = Receiver::bind(
                    address,
                    &Options {
                        batch_wait: wait,
                        ..options.clone()
                    },
                )?;
                let to = receiver.local_addr();
                Ok((to, move || receive(&mut receiver, slots, stop)))
            })?;
        }
    }
    Ok(())
}

/// Receives datagrams until `stop` is set. Returns (number of datagrams, number of bursts).
fn receive(receiver: &mut Receiver, slots: usize, stop: &AtomicBool) -> Result<(u64, u64), Error> {
    let mut burst = Burst::new(slots, 2048);
    let mut bytes = 0;
    while !stop.load(Ordering::Relaxed) {
        receiver.recv(&mut burst, 10)?;
        bytes += burst
            .iter()
            .map(|packet| packet.data.len() as u64 + (packet.received & 1))
            .sum::<u64>();
    }
    std::hint::black_box(bytes);
    let stats = receiver.stats();
    Ok((stats.datagrams, stats.bursts))
}

fn measure<'a, R>(
    name: &str,
    pair: &Pair,
    segmented: bool,
    seconds: f64,
    receiver: impl FnOnce(SocketAddr, &Options, &'a AtomicBool) -> Result<(SocketAddr, R), Error> + Send,
) -> Result<(), Error>
where
    R: FnOnce() -> Result<(u64, u64), Error> + Send,
{
    // Leaked once per printed line, because the receiver borrows it from another thread.
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let address = SocketAddr::new(Pair::FAR[0], 0);
    let (to, receive) = pair.far.run(|| receiver(address, &Options::default(), stop))??;
    let mut sender = pair
        .near
        .run(|| Sender::connect(SocketAddr::new(Pair::NEAR[0], 0), to))??;
    let payloads = vec![vec![7u8; 220]; 1024];
    let load = Load {
        segmented,
        ..Load::default()
    };
    let started = time::monotonic();
    let (sent, received) = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let _ = time::pin(1);
            receive()
        });
        let sending = scope.spawn(|| {
            let _ = time::pin(0);
            load.send(&mut sender, &payloads, stop)
        });
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Release);
        (
            sending.join().expect("the sender panicked"),
            receiving.join().expect("the receiver panicked"),
        )
    });
    let elapsed = (time::monotonic() - started) as f64;
    let (sent, (received, calls)) = (sent?, received?);
    let (per_call, drops) = (
        received as f64 / calls.max(1) as f64,
        100.0 * (1.0 - received as f64 / sent as f64),
    );
    println!(
        "{name:42} {:>10.3} {:>10.3} {per_call:>10.1} {drops:>8.1}",
        received as f64 * 1e3 / elapsed,
        sent as f64 * 1e3 / elapsed
    );
    Ok(())
}
