//! Terminates processes that another process started, without signalling the wrong one: a pidfd is opened before the process is
//! inspected, so its PID cannot be reused before it is signalled.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::sys;

/// A process of this machine, running or ended.
#[derive(Debug)]
pub struct Process {
    id: u32,
    handle: OwnedFd,
}

/// A signal to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGTERM: asks for an orderly termination.
    Terminate,
    /// SIGKILL: ends the process at once.
    Kill,
}

impl Process {
    /// Opens the process with this ID. Returns `None` if there is none.
    ///
    /// # Errors
    /// Linux is older than 5.3, or no descriptors are left.
    pub fn open(id: u32) -> Result<Option<Self>, Error> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id as libc::c_ulong, 0) };
        if fd < 0 {
            let error = Error::last("pidfd_open", id);
            return if error.errno() == Some(libc::ESRCH) {
                Ok(None)
            } else {
                Err(error)
            };
        }
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        let handle = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(Some(Self { id, handle }))
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the words of its command line; empty if it has ended or is a kernel thread.
    pub fn command(&self) -> Vec<String> {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.id)).unwrap_or_default();
        if self.has_ended() {
            return Vec::new();
        }
        let words = bytes
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned());
        let mut words: Vec<String> = words.collect();
        words.pop(); // after the last zero
        words
    }

    /// Returns whether the process runs in the network namespace called `name`.
    pub fn is_in(&self, name: &str) -> bool {
        let named_namespace = fs::metadata(Path::new("/run/netns").join(name));
        let process_namespace = fs::metadata(format!("/proc/{}/ns/net", self.id));
        let (Ok(named_namespace), Ok(process_namespace)) = (named_namespace, process_namespace) else {
            return false;
        };
        named_namespace.dev() == process_namespace.dev()
            && named_namespace.ino() == process_namespace.ino()
            && !self.has_ended()
    }

    /// Sends a signal to the process. It is no error if it has already ended.
    ///
    /// # Errors
    /// The process belongs to another user.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let number = match signal {
            Signal::Terminate => libc::SIGTERM,
            Signal::Kill => libc::SIGKILL,
        };
        let none = std::ptr::null_mut::<libc::siginfo_t>();
        // SAFETY: the signal carries no information, so the pointer is null, which the call allows.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.handle.as_raw_fd(),
                number,
                none,
                0,
            )
        };
        let error = (sent < 0).then(|| Error::last("pidfd_send_signal", self.id));
        match error {
            Some(error) if error.errno() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns whether the process has ended. (Its parent may not have waited for it yet.)
    pub fn has_ended(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits until the process has ended, at most for `patience`. Returns whether it has.
    pub fn wait(&self, patience: Duration) -> bool {
        let start = Instant::now();
        loop {
            let remaining = patience.saturating_sub(start.elapsed());
            let timeout = u32::try_from(remaining.as_millis()).unwrap_or(u32::MAX);
            // A descriptor that cannot be polled does not belong to a running process.
            let ended =
                sys::poll(&mut [sys::readable(self.handle.as_fd())], timeout).map_or(true, |ready| ready > 0);
            if ended || remaining.is_zero() {
                return ended;
            }
        }
    }
}

/// Lists the processes of this machine.
///
/// # Errors
/// /proc cannot be read.
pub fn all() -> Result<Vec<Process>, Error> {
    let entries = fs::read_dir("/proc").map_err(Error::failed("open", "/proc"))?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // Leaves out processes that ended since the listing.
    Ok(numbers
        .filter_map(|id| Process::open(id).ok().flatten())
        .collect())
}

/// Limits this process: bytes of its private memory (`memory`), and of the largest file it may write (`file`). Disables core
/// files.
///
/// # Errors
/// A sandbox forbids it; the limits that could be set are set.
pub fn limit_own(memory: u64, file: u64) -> Result<(), Error> {
    let limits = [
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_FSIZE, file),
        (libc::RLIMIT_DATA, memory),
    ];
    let mut result = Ok(());
    for (resource, max) in limits {
        let limit = libc::rlimit {
            rlim_cur: max,
            rlim_max: max,
        };
        // SAFETY: the pointer is to a live value of the type that the call reads.
        if unsafe { libc::setrlimit(resource, &limit) } < 0 {
            result = Err(Error::last("setrlimit", max));
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_found_signalled_and_seen_to_have_ended() {
        // Its output is not the test's: otherwise a reader of that output would wait for this process, too.
        let (stdin, stdout, stderr) = (Stdio::null(), Stdio::null(), Stdio::null());
        let mut command = Command::new("sleep");
        let mut child = command
            .arg("600")
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .unwrap();
        let process = all()
            .unwrap()
            .into_iter()
            .find(|found| found.id() == child.id())
            .unwrap();
        assert!(!process.wait(Duration::from_millis(1)));
        // It may be reported as started before its command line can be read.
        let end = Instant::now() + Duration::from_secs(20);
        while process.command().is_empty() && Instant::now() < end {
            assert!(!process.wait(Duration::from_millis(1)));
        }
        assert_eq!(process.command(), ["sleep", "600"]);
        assert!(!process.is_in("hopwise-none"));
        process.signal(Signal::Terminate).unwrap();
        assert!(process.wait(Duration::from_secs(20)));
        // Its parent has not waited for it yet: it still exists, but has no command line.
        assert_eq!(process.command(), Vec::<String>::new());
        child.wait().unwrap();
        process.signal(Signal::Kill).unwrap();
        assert!(Process::open(process.id()).unwrap().is_none());
    }
}
