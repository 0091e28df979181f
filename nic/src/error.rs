//! The error type of this crate: a failed system call, with a description and advice for the operator.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// A failed system call: its name, the object, the cause and advice.
#[derive(Debug)]
pub struct Error {
    call: &'static str,
    /// The address, file or name that the call was about; may be empty.
    about: String,
    port: Option<u16>,
    /// Advice for the operator, if the call site knows more than the error number says.
    advice: Option<String>,
    source: io::Error,
}

impl Error {
    pub(crate) fn new(call: &'static str, about: impl fmt::Display, source: io::Error) -> Self {
        Self {
            call,
            about: about.to_string(),
            port: None,
            advice: None,
            source,
        }
    }

    /// Returns the error of the call that just failed, from `errno`.
    pub(crate) fn last(call: &'static str, about: impl fmt::Display) -> Self {
        Self::new(call, about, io::Error::last_os_error())
    }

    /// Returns a function for `map_err` that converts the error of `call` on `about`.
    pub(crate) fn failed(call: &'static str, about: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::new(call, about, source)
    }

    /// Does the same as [`Error::failed`], for a call on a socket of `address`.
    pub(crate) fn on_socket(call: &'static str, address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |source| Self {
            port: Some(address.port()),
            ..Self::new(call, address, source)
        }
    }

    /// Adds advice: an explanation and a remedy.
    #[must_use]
    pub(crate) fn with_advice(self, advice: String) -> Self {
        Self {
            advice: Some(advice),
            ..self
        }
    }

    /// Returns the name of the system call, as in its manual page.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// Returns the system's error number, if the system returned the error.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// Returns advice from the call site, or else from the error number.
    fn advice(&self) -> Option<String> {
        if self.advice.is_some() {
            return self.advice.clone();
        }
        let port = self.port.unwrap_or(0);
        Some(match self.errno()? {
            libc::EADDRINUSE => format!(
                "another program listens on UDP port {port}: stop it (`ss -ulpn 'sport = :{port}'` names it) or choose another port"
            ),
            libc::EACCES if (1..1024).contains(&port) => {
                format!("port {port} needs CAP_NET_BIND_SERVICE: choose a port from 1024 up, or grant the capability")
            }
            libc::EACCES | libc::EPERM => "permission is missing: run as root or grant the capability".to_owned(),
            libc::EADDRNOTAVAIL => {
                "this machine has no such address: `ip address` lists those it has, 0.0.0.0 or [::] stands for all".to_owned()
            }
            libc::EAFNOSUPPORT => "this machine has no such address family: use an IPv4 address".to_owned(),
            libc::EMFILE | libc::ENFILE => "too many open files: raise the limit (`ulimit -n`)".to_owned(),
            libc::ENETUNREACH | libc::EHOSTUNREACH => "there is no route: `ip route` lists those there are".to_owned(),
            libc::EMSGSIZE => "the datagram is longer than UDP allows here".to_owned(),
            _ => return None,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call)?;
        if !self.about.is_empty() {
            write!(f, " {}", self.about)?;
        }
        match self.advice() {
            Some(advice) => write!(f, ": {advice}"),
            None => write!(f, ": {}", self.source),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(errno: i32, address: &str) -> String {
        let address: SocketAddr = address.parse().unwrap();
        Error {
            port: Some(address.port()),
            ..Error::new("bind", address, io::Error::from_raw_os_error(errno))
        }
        .to_string()
    }

    #[test]
    fn says_what_to_do() {
        assert_eq!(
            text(libc::EADDRINUSE, "0.0.0.0:32766"),
            "bind 0.0.0.0:32766: another program listens on UDP port 32766: stop it (`ss -ulpn 'sport = :32766'` names it) \
             or choose another port"
        );
        assert_eq!(
            text(libc::EACCES, "[::]:80"),
            "bind [::]:80: port 80 needs CAP_NET_BIND_SERVICE: choose a port from 1024 up, or grant the capability"
        );
        assert_eq!(
            text(libc::EINVAL, "[::]:1"),
            "bind [::]:1: Invalid argument (os error 22)"
        );
    }
}
