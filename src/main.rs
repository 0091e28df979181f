//! hopwise: In-band Network Telemetry, from the bytes on the wire to the answer on the screen.
#![forbid(unsafe_code)]

fn main() {}
