//! BPF programs: loads and attaches XDP programs, and runs them on test input.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::Ebpf;
use aya::programs::{Program, ProgramError, Xdp};

use crate::device;
use crate::device::netlink::Netlink;
use crate::error::Error;
use crate::sys::bpf::{TestRun, attach_xdp, bpf, command};

/// Part of the verifier's message about operations that need CAP_PERFMON ("prohibited for !root").
const NOT_FOR_ALL: &str = "!root";

/// The place in the kernel where an XDP program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the driver, before the kernel allocates a packet buffer for the frame.
    Native,
    /// In the network stack (generic XDP), with any driver.
    Generic,
}

/// Result of a test run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// Return value of the program.
    pub verdict: u32,
    /// Mean time of one run, ns.
    pub duration_ns: u32,
    /// The frame as the last run left it.
    pub frame: Vec<u8>,
}

/// A program attached to an interface. Detached on drop, and when the process ends for any reason. (Kernels before 5.9 have no
/// BPF links for XDP: there the program stays attached if the process is killed, and is found by its name.)
#[derive(Debug)]
pub struct Attachment {
    interface: u32,
    program: u32,
    mode: Mode,
    netlink: Netlink,
    /// The BPF link; closing it detaches the program.
    link: Option<OwnedFd>,
}

impl Attachment {
    /// Returns the kernel's ID of the program that has replaced this one on the interface, 0 if there is none now; `None` if
    /// this program is still attached.
    ///
    /// # Errors
    /// The system call failed.
    pub fn replaced(&self) -> Result<Option<u32>, Error> {
        let programs = crate::link::programs(&self.netlink, self.interface)?;
        if programs.iter().any(|program| program.id == self.program) {
            return Ok(None);
        }
        Ok(Some(programs.first().map_or(0, |program| program.id)))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if self.link.is_none() && self.replaced().is_ok_and(|other| other.is_none()) {
            // No caller is left to receive an error; the next start finds the program by its name.
            let _ = crate::link::set_program(&self.netlink, self.interface, -1, self.mode.into());
        }
    }
}

impl From<Mode> for device::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Native => Self::Native,
            Mode::Generic => Self::Generic,
        }
    }
}

/// Converts an error of `aya`, with the text of all its causes.
pub(super) fn error(call: &'static str, about: &str, error: impl std::error::Error) -> Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    let mut errno = None;
    while let Some(inner) = cause {
        errno = errno.or_else(|| {
            inner
                .downcast_ref::<io::Error>()
                .and_then(io::Error::raw_os_error)
        });
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    match errno {
        Some(errno) => Error::new(call, about, io::Error::from_raw_os_error(errno)),
        None => Error::new(call, about, io::Error::other(text)),
    }
}

/// Adds advice about missing capabilities to an error, if they are its cause.
pub(super) fn load_error(error: Error) -> Error {
    if error.errno() == Some(libc::EPERM) {
        let advice = "BPF programs need CAP_BPF and CAP_NET_ADMIN: grant both, or run as root";
        return error.with_advice(advice.to_owned());
    }
    error
}

pub(super) fn missing(what: &str, name: &str) -> Error {
    let source = format!("the object has no {what} `{name}`");
    Error::new("bpf", name, io::Error::new(io::ErrorKind::NotFound, source))
}

pub(super) fn load(name: &str, program: &mut Program) -> Result<(), Error> {
    match program {
        Program::Xdp(program) => program.load().map_err(|refused| match refused {
            ProgramError::LoadError {
                io_error,
                verifier_log,
            } => {
                let log = verifier_log.to_string();
                if io_error.raw_os_error() == Some(libc::EACCES) && log.contains(NOT_FOR_ALL) {
                    let advice =
                        "the verifier takes this program only with CAP_PERFMON: grant it, or run as root";
                    return Error::new("load the program", name, io_error).with_advice(advice.to_owned());
                }
                let tail: Vec<&str> = log.lines().rev().take(12).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                Error::new(
                    "load the program",
                    name,
                    io::Error::new(io_error.kind(), format!("{io_error}\n{}", tail.join("\n"))),
                )
            }
            other => error("load the program", name, other),
        }),
        _ => Ok(()),
    }
}

fn xdp<'b>(bpf: &'b Ebpf, name: &str) -> Result<&'b Xdp, Error> {
    match bpf.program(name) {
        Some(Program::Xdp(program)) => Ok(program),
        _ => Err(missing("XDP program", name)),
    }
}

/// Returns the file descriptor of a program, which the object keeps open.
pub(super) fn descriptor(bpf: &Ebpf, name: &str) -> Result<i32, Error> {
    let fd = xdp(bpf, name)?.fd();
    let fd = fd.map_err(|refused| error("bpf", name, refused))?;
    Ok(fd.as_fd().as_raw_fd())
}

/// Returns the names of the XDP programs, in order.
pub(super) fn names(bpf: &Ebpf) -> Vec<String> {
    let programs = bpf
        .programs()
        .filter(|(_, program)| matches!(program, Program::Xdp(_)));
    let mut names: Vec<_> = programs.map(|(name, _)| name.to_owned()).collect();
    names.sort();
    names
}

pub(super) fn id(bpf: &Ebpf, name: &str) -> Result<u32, Error> {
    let info = xdp(bpf, name)?
        .info()
        .map_err(|refused| error("bpf", name, refused))?;
    Ok(info.id())
}

/// Attaches with a BPF link, which the kernel removes with its last descriptor; with netlink if the kernel has no links for
/// XDP.
pub(super) fn attach(object: &Ebpf, name: &str, interface: u32, mode: Mode) -> Result<Attachment, Error> {
    let flags = device::Mode::from(mode).flag();
    match attach_xdp(descriptor(object, name)?, interface, flags) {
        Ok(link) => Ok(Attachment {
            interface,
            program: id(object, name)?,
            mode,
            netlink: Netlink::open(libc::NETLINK_ROUTE)?,
            link: Some(link),
        }),
        // EINVAL: the kernel has no BPF links for XDP. If a driver returned it, attaching by netlink fails with the same error.
        Err(refused) if refused.raw_os_error() == Some(libc::EINVAL) => {
            attach_by_netlink(object, name, interface, mode)
        }
        Err(refused) => Err(Error::new("attach the XDP program", "", refused)),
    }
}

/// Attaches by netlink, as needed on old kernels.
pub(super) fn attach_by_netlink(
    object: &Ebpf,
    name: &str,
    interface: u32,
    mode: Mode,
) -> Result<Attachment, Error> {
    let program = descriptor(object, name)?;
    let netlink = Netlink::open(libc::NETLINK_ROUTE)?;
    crate::link::set_program(&netlink, interface, program, mode.into())?;
    Ok(Attachment {
        interface,
        program: id(object, name)?,
        mode,
        netlink,
        link: None,
    })
}

/// Sends `count` copies of a frame through the program, whose verdict forwards or drops each copy, as if they had arrived on
/// `interface` of the caller's network namespace. Needs Linux 5.18.
pub(super) fn run_live(
    object: &Ebpf,
    name: &str,
    frame: &[u8],
    count: u32,
    interface: u32,
) -> Result<(), Error> {
    /// The flag `BPF_F_TEST_XDP_LIVE_FRAMES` of linux/bpf.h.
    const LIVE: u32 = 2;
    /// Frames sent at once.
    const BATCH: u32 = 64;
    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let context = [0, len, 0, interface, 0, 0];
    let mut arguments = TestRun {
        program: descriptor(object, name)?.cast_unsigned(),
        data_in_len: len,
        data_in: frame.as_ptr() as u64,
        context_in_len: size_of_val(&context) as u32,
        context_in: context.as_ptr() as u64,
        repeat: count,
        flags: LIVE,
        batch: BATCH,
        ..TestRun::default()
    };
    // SAFETY: frame and context have the lengths given in the arguments.
    let run = unsafe { bpf(command::PROG_TEST_RUN, &mut arguments) };
    run.map(drop)
        .map_err(Error::failed("bpf", format_args!("live frames of {name}")))
}

pub(super) fn test_run(object: &Ebpf, name: &str, frame: &[u8], repeat: u32) -> Result<Run, Error> {
    // A program may extend the frame into its headroom.
    let mut out = vec![0_u8; frame.len() + 256];
    let mut arguments = TestRun {
        program: descriptor(object, name)?.cast_unsigned(),
        data_in_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
        data_out_len: u32::try_from(out.len()).unwrap_or(u32::MAX),
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat,
        ..TestRun::default()
    };
    // SAFETY: both frames have the lengths given in the arguments.
    unsafe { bpf(command::PROG_TEST_RUN, &mut arguments) }
        .map_err(Error::failed("bpf", format_args!("test run of {name}")))?;
    out.truncate(arguments.data_out_len as usize);
    Ok(Run {
        verdict: arguments.verdict,
        duration_ns: arguments.duration,
        frame: out,
    })
}
