//! The objects load: the verifier of this kernel accepts them.

use std::io::Write;

use nic::bpf::{LoadOptions, Object};

/// An object, or nothing (reported as skipped) where this process may not load one.
fn object(test: &str, bytes: &[u8]) -> Option<Object> {
    match Object::load(bytes, &LoadOptions::default()) {
        Ok(object) => Some(object),
        Err(error) if error.errno() == Some(libc_eperm()) => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED {test}: loading BPF programs needs CAP_BPF and CAP_NET_ADMIN"
            );
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// EPERM.
fn libc_eperm() -> i32 {
    1
}

/// `XDP_PASS`.
const PASS: u32 = 2;

#[test]
fn every_object_loads_and_passes_what_is_no_telemetry() {
    for (name, bytes, program) in [
        ("steer", xdp::STEER, "hopwise_steer"),
        ("detect", xdp::DETECT, "hopwise_detect"),
        ("rdma", xdp::RDMA, "hopwise_rdma"),
    ] {
        let Some(object) = object(name, bytes) else { return };
        let run = object.test_run(program, &[0; 64], 1).unwrap();
        assert_eq!((run.verdict, run.frame), (PASS, vec![0; 64]), "{name}");
    }
}
