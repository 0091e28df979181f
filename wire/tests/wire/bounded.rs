//! Deeply nested headers: time and stack stay bounded.

use wire::report::Decoder;
use wire::{Profile, frame};

/// Report 1.0 without metadata in front of `packet`.
fn report(packet: &[u8]) -> Vec<u8> {
    let header = [0x14, 0, 0, 0x40, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    [&header[..], packet].concat()
}

/// Decodes on a stack of 64 KiB: enough for any packet, too small for one stack frame per header.
fn decode_all(payload: Vec<u8>) -> usize {
    let decode = move || Decoder::new(Profile::default()).reports(&payload).count();
    std::thread::Builder::new()
        .stack_size(64 << 10)
        .spawn(decode)
        .expect("a thread")
        .join()
        .expect("no panic")
}

#[test]
fn ethernet_in_ethernet_without_end_is_no_endless_descent() {
    let layer = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x65, 0x58];
    assert_eq!(decode_all(report(&layer.repeat(60_000 / layer.len()))), 1);
    let _ = frame::datagram(&layer.repeat(100_000));
}

#[test]
fn ip_in_ip_without_end_is_no_endless_descent() {
    let layer = [
        0x45, 0, 0xff, 0xff, 0, 0, 0, 0, 64, 4, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let packet = [&ethernet[..], &layer.repeat(65_000 / layer.len())].concat();
    assert_eq!(decode_all(report(&packet)), 1);
    let _ = frame::datagram(&packet);
}

#[test]
fn inserted_udp_headers_without_end_are_no_endless_descent() {
    // An option with INT of one record, padded; then UDP to the port of INT, with a shim that announces UDP, and INT of one record.
    let option = [
        17, 2, 0x3e, 20, 0x10, 4, 0, 0, 0x20, 0, 1, 5, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 77,
    ];
    let layer = [
        0, 1, 0x81, 0x62, 0, 8, 0, 0, 0x18, 4, 0, 17, 0x20, 0, 1, 5, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5,
    ];
    let mut ip = [0; 40];
    ip[0] = 0x60;
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    let packet = [&ethernet[..], &ip, &option, &layer.repeat(60_000 / layer.len())].concat();
    assert_eq!(decode_all(report(&packet)), 1);
}
