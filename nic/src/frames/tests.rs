//! Ports on a link between two namespaces.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use super::*;
use crate::netns::{Pair, send_frames, tests::skipped};

/// A pair, and a port on the far side's device. The error names the missing requirement.
fn opened(options: &Options) -> Result<(Pair, Port), Error> {
    let pair = Pair::create()?;
    let port = pair.far.run(|| Port::open(Pair::DEVICE, options))??;
    Ok((pair, port))
}

/// Frames with this EtherType, until there are `count` or for some seconds.
fn receive(port: &mut Port, ethertype: u16, count: usize) -> Vec<(Vec<u8>, Unfinished, bool)> {
    let (mut frames, mut poll_fds) = (Vec::new(), PollFds::default());
    for _ in 0..500 {
        port.receive(64, &mut |arrived| {
            if arrived.data.get(12..14) == Some(&ethertype.to_be_bytes()[..]) {
                frames.push((arrived.data.to_vec(), arrived.unfinished, arrived.unusable));
            }
        });
        if frames.len() >= count {
            break;
        }
        wait(
            [port.as_fd()].into_iter(),
            &mut poll_fds,
            Duration::from_millis(10),
        )
        .unwrap();
    }
    frames
}

/// An EtherType for experiments.
const OURS: u16 = 0x88b5;

fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..14].copy_from_slice(&OURS.to_be_bytes());
    frame
}

#[test]
fn frames_go_in_and_out_and_no_echo_is_heard() {
    let (pair, mut far) = match opened(&Options::default()) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    for bypass in [false, true] {
        let options = Options {
            bypass,
            ..Options::default()
        };
        let mut near = pair
            .near
            .run(|| Port::open(Pair::DEVICE, &options))
            .unwrap()
            .unwrap();
        let sent: Vec<Vec<u8>> = (0..200)
            .map(|number| frame(number, 60 + usize::from(number)))
            .collect();
        assert_eq!(near.send(&sent), 0);
        let received = receive(&mut far, OURS, 200);
        assert_eq!(
            received.iter().map(|(frame, ..)| frame).collect::<Vec<_>>(),
            sent.iter().collect::<Vec<_>>()
        );
        assert!(
            received
                .iter()
                .all(|(_, left, bad)| *left == Unfinished::default() && !bad)
        );
        assert_eq!(receive_now(&mut near), 0, "what it sent itself");
        assert_eq!((near.stats().sent, near.stats().failed), (200, 0));
        // Too long for the link: only this one is refused.
        let mixed = [frame(1, 100), frame(2, 4000), frame(3, 100)];
        assert_eq!(near.send(&mixed), 1);
        assert_eq!(receive(&mut far, OURS, 2).len(), 2);
    }
    assert_eq!(far.stats().ring_full, 0);
}

fn receive_now(port: &mut Port) -> usize {
    let mut ours = 0;
    port.receive(1000, &mut |arrived| {
        ours += usize::from(arrived.data.get(12..14) == Some(&OURS.to_be_bytes()[..]))
    });
    ours
}

#[test]
fn a_full_ring_is_counted() {
    let (pair, mut far) = match opened(&Options {
        frames: 1,
        ..Options::default()
    }) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    let sent: Vec<Vec<u8>> = (0..100).map(|number| frame(number, 100)).collect();
    let before = pair.link_drops().unwrap();
    (0..20).for_each(|_| {
        pair.near
            .run(|| send_frames(Pair::DEVICE, &sent))
            .unwrap()
            .unwrap()
    });
    let received = receive(&mut far, OURS, 2000).len() as u64;
    let stats = far.stats();
    assert!(stats.ring_full > 0 && received > 0, "{stats:?}");
    // Other frames (the stack's own) may be among those that were lost.
    assert!(
        received + stats.ring_full + (pair.link_drops().unwrap() - before) >= 2000,
        "{received} {stats:?}"
    );
}

#[test]
fn tags_are_put_back_where_they_were() {
    let (pair, mut far) = match opened(&Options::default()) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    let mut tagged = frame(1, 100);
    tagged.splice(12..12, [0x81, 0x00, 0x20, 0x2a]);
    let mut double = tagged.clone();
    double.splice(12..12, [0x88, 0xa8, 0x00, 0x07]);
    pair.near
        .run(|| send_frames(Pair::DEVICE, &[tagged.clone()]))
        .unwrap()
        .unwrap();
    assert_eq!(receive(&mut far, 0x8100, 1)[0].0, tagged);
    pair.near
        .run(|| send_frames(Pair::DEVICE, &[double.clone()]))
        .unwrap()
        .unwrap();
    assert_eq!(receive(&mut far, 0x88a8, 1)[0].0, double);
}

#[test]
fn pending_offloads_are_reported_with_the_frame() {
    const UDP_SEGMENT: usize = 1000;
    let (pair, mut far) = match opened(&Options::default()) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    let (near, target) = (
        SocketAddr::new(Pair::NEAR[0], 0),
        SocketAddr::new(Pair::FAR[0], 5555),
    );
    let socket = pair.near.run(|| UdpSocket::bind(near)).unwrap().unwrap();
    socket.send_to(&[7; 100], target).unwrap();
    let ipv4 = receive(&mut far, 0x0800, 1);
    let (bytes, left, bad) = ipv4.iter().find(|(bytes, ..)| bytes.len() == 142).unwrap();
    assert_eq!(
        (left.checksum, left.segment, *bad),
        (Some((34, 6)), None, false),
        "{bytes:02x?}"
    );
    let mut sender = pair
        .near
        .run(|| crate::udp::Sender::connect(near, target))
        .unwrap()
        .unwrap();
    sender
        .send_segments(&[3; 20 * UDP_SEGMENT], UDP_SEGMENT as u16)
        .unwrap();
    let long = receive(&mut far, 0x0800, 1);
    let found = long.iter().find(|(bytes, ..)| bytes.len() > 2000);
    // If the link segments by itself, nothing is unfinished.
    if let Some((bytes, left, bad)) = found {
        assert_eq!(
            (bytes.len(), left.segment, *bad),
            (42 + 20 * UDP_SEGMENT, Some(UDP_SEGMENT), false)
        );
        assert!(bytes[42..].iter().all(|byte| *byte == 3));
    }
}

#[test]
fn a_missing_interface_is_an_error() {
    let error = Port::open("hopwise-none", &Options::default()).unwrap_err();
    assert!(error.to_string().contains("hopwise-none"), "{error}");
}

#[test]
fn an_interface_that_goes_away_is_noticed() {
    let (pair, far) = match opened(&Options::default()) {
        Ok(opened) => opened,
        Err(error) => return skipped(&error),
    };
    assert!(far.failure().is_none());
    pair.far.ip(&["link", "delete", Pair::DEVICE]).unwrap();
    assert_eq!(
        far.failure().and_then(|error| error.errno()),
        Some(libc::ENETDOWN)
    );
    assert!(pair.far.run(|| far.is_gone()).unwrap());
}

#[test]
fn a_quiet_interface_has_no_address() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => return skipped(&error),
    };
    let refused = pair.far.run(|| silence(Pair::DEVICE)).unwrap();
    assert_eq!(refused, Vec::<String>::new());
    let read = |name: &str| {
        let path = format!("/proc/sys/net/{name}");
        pair.far
            .run(|| fs::read_to_string(&path))
            .unwrap()
            .unwrap_or_default()
    };
    assert_eq!(read("ipv6/conf/veth0/disable_ipv6").trim(), "1");
    assert_eq!(read("ipv4/conf/veth0/arp_ignore").trim(), "8");
}
