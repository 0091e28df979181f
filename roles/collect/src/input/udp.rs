//! UDP sockets as inputs (`udp://ADDRESS:PORT`).

use crate::settings::CollectorSettings;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use nic::udp::{Buffered, Options, Receiver};

use super::{AlwaysHealthy, Input, Opened, RxSource, Setup};
use terminal::CliError;

/// Opens a socket on `address`.
pub(super) fn input(
    address: SocketAddr,
    settings: &CollectorSettings,
    listener: usize,
) -> Result<Input, CliError> {
    let options = Options {
        merge: true,
        ..options(settings, &[address.port()])
    };
    let receiver = inside(settings, || Receiver::bind(address, &options))?;
    let receiver = receiver.map_err(|error| CliError::new(error.to_string()))?;
    if let Some(warning) = receiver.warning() {
        tracing::warn!(address = %receiver.local_addr(), warning, "the socket works with a limit");
    }
    let setup = Setup {
        listen: format!("udp://{}", receiver.local_addr()),
        address: Some(receiver.local_addr()),
        kind: "udp",
        receive_buffer: receiver.recv_buffer().granted as u64,
        ..Setup::default()
    };
    let datagram = usize::try_from(settings.datagram.0).unwrap_or(usize::MAX);
    let burst = receiver.burst(settings.burst, datagram);
    let source = Buffered::new(receiver, burst);
    let sources = vec![RxSource::Source(Box::new(source))];
    Ok(Input::new(
        listener,
        Opened {
            sources,
            setup,
            health: Box::new(AlwaysHealthy),
        },
        None,
    ))
}

/// Returns the options of sockets on `ports`. If a port is also configured for an interface, two sockets share it
/// (SO_REUSEPORT): the kernel passes each datagram to the socket of its interface.
pub(super) fn options(settings: &CollectorSettings, ports: &[u16]) -> Options {
    let concerned = settings
        .listen
        .iter()
        .filter(|listen| listen.ports().iter().any(|port| ports.contains(port)));
    let shared =
        concerned.clone().count() > 1 && concerned.clone().any(|listen| listen.interface().is_some());
    Options {
        recv_buffer: usize::try_from(settings.receive_buffer.0).unwrap_or(usize::MAX),
        reuse_port: shared,
        ..Options::default()
    }
}

/// Opens IPv4 and IPv6 sockets on `port` of all addresses; only IPv4 on a machine without IPv6.
pub(super) fn both_families(
    port: u16,
    settings: &CollectorSettings,
    inputs: &mut Vec<Input>,
) -> Result<(), CliError> {
    let first = input((Ipv4Addr::UNSPECIFIED, port).into(), settings, inputs.len())?;
    // Port 0 lets the kernel choose; the IPv6 socket then uses the same port.
    let port = first.opened.setup.address.map_or(port, |address| address.port());
    inputs.push(first);
    match input((Ipv6Addr::UNSPECIFIED, port).into(), settings, inputs.len()) {
        Ok(second) => inputs.push(second),
        Err(error) if inside(settings, has_ipv6)? => return Err(error),
        Err(_) => tracing::info!(port, "no IPv6 on this machine; listening on IPv4 only"),
    }
    Ok(())
}

/// Runs `work` in the configured network namespace of the sockets, by default the process's.
pub fn inside<T: Send>(settings: &CollectorSettings, work: impl FnOnce() -> T + Send) -> Result<T, CliError> {
    let Some(name) = &settings.namespace else {
        return Ok(work());
    };
    nic::netns::within(name, work).map_err(|error| {
        CliError::new(format!(
            "cannot enter the network namespace {name} ({error}); `ip netns list` lists the namespaces; entering one requires root"
        ))
    })
}

fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}
