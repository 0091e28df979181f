//! The local datagram socket (Unix or UDP) to which this machine's programs send reports as text.

use std::{
    fs::{self, DirBuilder, Permissions},
    io::{self, ErrorKind},
    net::{SocketAddr, UdpSocket},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{
            fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
            net::UnixDatagram,
        },
    },
    path::{Path, PathBuf},
};

use super::settings::LocalListen;
use terminal::CliError;

/// File mode of the socket: owner and group may send.
const MODE: u32 = 0o660;

/// A non-blocking datagram socket.
#[derive(Debug)]
pub(super) enum Listener {
    /// A Unix socket, its path, and the inode of the file, which is removed at the end.
    Unix(UnixDatagram, PathBuf, Inode),
    /// A UDP socket on a local address.
    Udp(UdpSocket),
}

/// Device and inode number of a file.
type Inode = (u64, u64);

impl Listener {
    /// Opens the socket. Replaces the socket file of a program that no longer runs.
    ///
    /// # Errors
    /// The path or port is in use or not permitted.
    pub(super) fn open(listen: &LocalListen) -> Result<Self, CliError> {
        let listener = match listen {
            LocalListen::Unix(path) => Self::unix(path),
            LocalListen::Udp(address) => Self::udp(*address),
        };
        listener.map_err(|error| {
            let remedy =
                "name another path or port in [reporter] listen; the directory must exist and be writable";
            CliError::io(format!("cannot take reports on {listen}"), error, remedy)
        })
    }

    fn udp(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self::Udp(socket))
    }

    fn unix(path: &Path) -> io::Result<Self> {
        if is_abandoned(path) {
            fs::remove_file(path)?;
        }
        // Bind in a private directory first, so that nobody can connect before the permissions are set.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let closed = path.with_file_name(format!(".{name}-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&closed)?;
        let bound = Self::bind_linked(&closed.join("s"), path);
        fs::remove_dir(&closed)?;
        let socket = bound?;
        socket.set_nonblocking(true)?;
        Ok(Self::Unix(socket, path.to_owned(), inode(path)?))
    }

    /// Binds a socket at `first`, sets its permissions, and links it to `path`, which must not exist.
    fn bind_linked(first: &Path, path: &Path) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::bind(first)?;
        let named = fs::set_permissions(first, Permissions::from_mode(MODE))
            .and_then(|()| fs::hard_link(first, path));
        fs::remove_file(first)?;
        named.map(|()| socket)
    }

    /// Returns the address of a UDP socket, whose port the system may have chosen, or `None` for a Unix socket.
    pub(super) fn address(&self) -> Option<String> {
        match self {
            Self::Unix(..) => None,
            Self::Udp(socket) => socket.local_addr().ok().map(|address| address.to_string()),
        }
    }

    /// Returns the length of the next datagram, truncated to the length of `line`, or `None` if none is waiting.
    ///
    /// # Errors
    /// The socket failed.
    pub(super) fn recv(&self, line: &mut [u8]) -> io::Result<Option<usize>> {
        let received = match self {
            Self::Unix(socket, ..) => socket.recv(line),
            Self::Udp(socket) => socket.recv(line),
        };
        match received {
            Ok(len) => Ok(Some(len)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn inode(path: &Path) -> io::Result<Inode> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Returns whether `path` is a socket without a listener.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket
        && UnixDatagram::unbound()
            .and_then(|probe| probe.connect(path))
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket, ..) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another program may have replaced the file meanwhile.
        if let Self::Unix(_, path, own_inode) = self
            && inode(path).is_ok_and(|inode| inode == *own_inode)
        {
            // If the removal fails, the next start replaces the file.
            let _ = fs::remove_file(path);
        }
    }
}
