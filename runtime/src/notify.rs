//! Notifies systemd of the state of the program, as `sd_notify(3)` describes: one datagram to the socket named in `NOTIFY_SOCKET`.

use std::os::{
    linux::net::SocketAddrExt,
    unix::{
        ffi::OsStrExt,
        net::{SocketAddr, UnixDatagram},
    },
};

/// The program is ready.
pub fn ready() {
    send("READY=1");
}

/// A reload starts; [`ready`] ends it.
pub fn reloading() {
    // systemd requires the time on the monotonic clock, in microseconds.
    send(&format!(
        "RELOADING=1\nMONOTONIC_USEC={}",
        nic::time::monotonic() / 1_000
    ));
}

/// The program is stopping.
pub fn stopping() {
    send("STOPPING=1");
}

fn send(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    // Errors are ignored: the program runs without systemd.
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
}
