//! Order, bounds and waits of a worker's queue.

use super::*;
use crate::{
    datagram::Contents,
    fanout::{Entry, LOAD_BYTES, LOAD_DATAGRAMS},
};

fn arrival(data: &[u8]) -> Arrival<'_> {
    let contents = Contents::Reports;
    let entry = Entry {
        end: 0,
        source: [0; 16],
        src_port: 0,
        listener: 0,
        contents,
        received: 0,
    };
    Arrival {
        header: &[],
        data,
        entry,
    }
}

fn send(sender: &LoadSender, datagrams: &[&[u8]]) -> u64 {
    sender.send(datagrams.iter().map(|data| arrival(data)))
}

/// Longer than any test.
const PATIENCE: Duration = Duration::from_secs(600);

/// The datagrams of the next load.
fn next(receiver: &LoadReceiver) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    let received = receiver.receive(None, Duration::ZERO, |load| {
        let mut start = 0;
        for entry in &load.entries {
            datagrams.push(load.bytes[start..entry.end].to_vec());
            start = entry.end;
        }
    });
    assert_eq!(received == Received::Nothing, datagrams.is_empty());
    datagrams
}

#[test]
fn loads_fill_up_and_keep_the_order() {
    let (sender, receiver) = load_queue(1 << 20);
    let datagrams: Vec<Vec<u8>> = (0..200_u8).map(|n| vec![n; usize::from(n)]).collect();
    for burst in datagrams.chunks(7) {
        assert_eq!(sender.send(burst.iter().map(|data| arrival(data))), 0);
    }
    assert_eq!(next(&receiver), datagrams[..LOAD_DATAGRAMS]);
    assert_eq!(next(&receiver), datagrams[LOAD_DATAGRAMS..]);
    // By bytes, too; and one that is longer than a load has its own.
    let (short, half, long) = (vec![1; 10], vec![2; LOAD_BYTES - 9], vec![3; LOAD_BYTES + 1]);
    send(&sender, &[&short, &half, &long, &short]);
    assert_eq!(
        [(); 4].map(|()| next(&receiver)),
        [vec![short.clone()], vec![half], vec![long], vec![short]]
    );
    assert_eq!(lock(&receiver.0.inner).used, 0);
    assert!(
        lock(&receiver.0.inner)
            .spare
            .iter()
            .all(|load| load.memory() == Load::memory_for(0))
    );
}

#[test]
fn each_lane_has_room_while_another_is_full() {
    let limit = 10 * Load::memory_for(0);
    let (sender, receiver) = load_queue(limit);
    let other = sender.clone();
    let full = vec![0; LOAD_BYTES];
    let room = |sender: &LoadSender| lock(&sender.shared.inner).has_room(sender.lane, LOAD_BYTES);
    let fill = |sender: &LoadSender, data: &[u8]| {
        let mut sent = 0;
        while room(sender) {
            send(sender, &[data]);
            sent += 1;
        }
        sent
    };
    // Half of the queue; then half of what is left.
    assert_eq!(fill(&sender, &full), 5);
    assert_eq!(fill(&other, &full), 2);
    assert!(lock(&sender.shared.inner).used <= limit);
    // One lane after the other.
    assert_eq!(next(&receiver).len(), 1);
    assert_eq!(
        [&sender, &other].map(|sender| lock(&sender.shared.inner).lanes[sender.lane].loads.len()),
        [4, 2]
    );
    next(&receiver);
    assert_eq!(
        [&sender, &other].map(|sender| lock(&sender.shared.inner).lanes[sender.lane].loads.len()),
        [4, 1]
    );
    while !next(&receiver).is_empty() {}
    // Longer than the queue: alone.
    let longest = vec![0; limit + 1];
    assert_eq!(send(&other, &[&longest]), 0);
    assert_eq!((room(&sender), next(&receiver)), (false, vec![longest]));
    assert!(room(&sender));
}

#[test]
fn a_sender_waits_until_half_of_its_loads_are_processed() {
    let (sender, receiver) = load_queue(8 * Load::memory_for(0));
    let full = vec![0; LOAD_BYTES];
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&sender, &[&full[..]; 20]));
        let mut taken = 0;
        while taken < 20 {
            while !receiver.has_waiting_sender() && !sending.is_finished() {
                std::thread::yield_now();
            }
            let queued = lock(&receiver.0.inner).lanes[0].loads.len();
            // It runs again while the last ones are taken, and may wait again before all of them are.
            assert!(queued > 2 || sending.is_finished(), "{queued}");
            taken += (0..queued).map(|_| next(&receiver).len()).sum::<usize>();
        }
        assert_eq!((taken, sending.join().unwrap()), (20, 0));
    });
}

#[test]
fn the_end_of_one_side_is_noticed_by_the_other() {
    let (sender, receiver) = load_queue(1 << 20);
    let other = sender.clone();
    send(&sender, &[&[1; 10]]);
    drop(sender);
    assert_eq!((next(&receiver), next(&receiver)), (vec![vec![1; 10]], vec![]));
    // The lane is used again.
    assert_eq!((other.clone().lane, lock(&receiver.0.inner).lanes.len()), (0, 2));
    drop(other);
    assert_eq!(receiver.receive(Some(PATIENCE), PATIENCE, |_| {}), Received::End);
    let (sender, receiver) = load_queue(1 << 20);
    let full = vec![0; LOAD_BYTES];
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&sender, &[&full[..]; 100]));
        while !receiver.has_waiting_sender() {
            std::thread::yield_now();
        }
        let queued = lock(&receiver.0.inner).lanes[0].loads.len() as u64;
        drop(receiver);
        assert_eq!(sending.join().unwrap(), 100 - queued);
    });
}
