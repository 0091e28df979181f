//! Service state notification for systemd, as in `sd_notify(3)`: one datagram to the Unix socket named by `NOTIFY_SOCKET`.

use std::os::{
    linux::net::SocketAddrExt,
    unix::{
        ffi::OsStrExt,
        net::{SocketAddr, UnixDatagram},
    },
};

/// Reports that the program is ready.
pub fn ready() {
    send("READY=1");
}

/// Reports that a reload starts; [`ready`] ends it.
pub fn reloading() {
    // systemd requires the time on the monotonic clock, in microseconds.
    send(&format!(
        "RELOADING=1\nMONOTONIC_USEC={}",
        nic::time::monotonic() / 1_000
    ));
}

/// Reports that the program is stopping.
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
    // Ignored: the program also runs without systemd.
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
}
