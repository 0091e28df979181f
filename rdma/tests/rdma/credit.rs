//! The credit that links state: operations within it are accepted.

use rdma::requester::{Config, Links};
use rdma::transport::{RemoteAddr, Transport};

use testkit::rdma::{Faults, Rng, World};

const LOSSY: RemoteAddr = RemoteAddr {
    collector: 0,
    region: 1,
};

/// Splits `bytes` of data randomly into this many operations.
fn shared(rng: &mut Rng, messages: u32, bytes: u64) -> Vec<u64> {
    let mut cuts: Vec<u64> = (1..messages).map(|_| rng.below(bytes + 1)).collect();
    cuts.extend([0, bytes]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Writes operations of these lengths; `false` if one is refused.
fn accepts(links: &mut Links, lens: &[u64], reliable: bool) -> bool {
    lens.iter().all(|len| {
        links
            .write(LOSSY, 0, &vec![7; *len as usize], None, reliable)
            .is_ok()
    })
}

#[test]
fn operations_within_the_credit_are_accepted_whole() {
    let (mut asked, mut had, mut by_box) = (0, 0, 0);
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let config = Config {
            outbox_frames: 1 + rng.below(40) as usize,
            outbox_bytes: 200 + rng.below(12_000) as usize,
            retransmit_operations: 8,
            retransmit_bytes: 1 << 12,
            ..Config::default()
        };
        let mut world = World::with(seed, Faults::default(), config);
        world.mtu = 256 << rng.below(3);
        world.connect();
        for _ in 0..20 {
            let reliable = rng.permille(300);
            let scale = 4 + rng.below(9);
            let (messages, bytes) = (1 + rng.below(8) as u32, rng.below(1 << scale));
            let room = world.links.credit(0, reliable);
            let lens = if rng.permille(300) && room.messages > 0 {
                // The full credit, divided in any way.
                by_box += u32::from(room.bytes > 0);
                shared(&mut rng, room.messages.min(1 + messages * 8), room.bytes)
            } else if world.links.has_credit(0, messages, bytes, reliable) {
                had += 1;
                shared(&mut rng, messages, bytes)
            } else {
                assert!(
                    !room.covers(messages, bytes),
                    "seed {seed}: {room:?} is more than there is"
                );
                asked += 1;
                continue;
            };
            let largest = lens.iter().copied().max().unwrap_or(0);
            if largest <= u64::from(world.config.max_message.min(1 << 12)) {
                assert!(
                    accepts(&mut world.links, &lens, reliable),
                    "seed {seed}: {lens:?} of {room:?}, {reliable}"
                );
            }
        }
    }
    assert!(
        asked > 1_000 && had > 1_000 && by_box > 1_000,
        "{asked} {had} {by_box}"
    );
}

#[test]
fn an_idle_link_has_room_for_the_longest_report() {
    let mut world = World::new(1, Faults::default());
    world.connect();
    let (messages, bytes) = (Links::MIN_MESSAGES, 1 << 17);
    assert!(
        world.links.has_credit(0, messages, bytes, false)
            && world.links.credit(0, false).covers(messages, bytes)
    );
}
