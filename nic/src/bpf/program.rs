//! Programs: loaded, attached, run on test input.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use aya::Ebpf;
use aya::programs::{Program, ProgramError, Xdp};

use super::system::{LinkCreate, TestRun, bpf, command};
use crate::error::Error;

/// Where in the kernel a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the driver, before the kernel makes anything of a frame.
    Native,
    /// In the stack, on any driver.
    Generic,
}

/// What a test run gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// What the program returned.
    pub verdict: u32,
    /// Mean time of one run, ns.
    pub duration_ns: u32,
    /// The frame as the last run left it.
    pub frame: Vec<u8>,
}

/// A program at an interface. It is detached when this is dropped, and when the process ends in any way.
#[derive(Debug)]
pub struct Attachment {
    _link: OwnedFd,
}

/// An error of `aya`, with everything that it knows about its cause.
pub(super) fn error(call: &'static str, about: &str, error: impl std::error::Error) -> Error {
    let mut text = error.to_string();
    let (mut cause, mut errno) = (error.source(), None);
    while let Some(inner) = cause {
        errno = errno.or_else(|| inner.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error));
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    match errno {
        Some(errno) => Error::new(call, about, io::Error::from_raw_os_error(errno)),
        None => Error::new(call, about, io::Error::other(text)),
    }
}

pub(super) fn missing(what: &str, name: &str) -> Error {
    Error::new(
        "bpf",
        name,
        io::Error::new(io::ErrorKind::NotFound, format!("the object has no {what} `{name}`")),
    )
}

pub(super) fn load(name: &str, program: &mut Program) -> Result<(), Error> {
    match program {
        Program::Xdp(program) => program.load().map_err(|refused| match refused {
            ProgramError::LoadError { io_error, verifier_log } => {
                let log = verifier_log.to_string();
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

pub(super) fn id(bpf: &Ebpf, name: &str) -> Result<u32, Error> {
    let info = xdp(bpf, name)?.info().map_err(|refused| error("bpf", name, refused))?;
    Ok(info.id())
}

/// Attaches by a link, which the kernel takes back when nobody holds it (Linux 5.9).
pub(super) fn attach(bpf_object: &Ebpf, name: &str, interface: u32, mode: Mode) -> Result<Attachment, Error> {
    /// `BPF_XDP`.
    const ATTACH_TYPE: u32 = 37;
    let fd = xdp(bpf_object, name)?.fd().map_err(|refused| error("bpf", name, refused))?;
    let mut arguments = LinkCreate {
        program: fd.as_fd().as_raw_fd().cast_unsigned(),
        target: interface,
        attach_type: ATTACH_TYPE,
        // XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE.
        flags: if mode == Mode::Generic { 2 } else { 4 },
        ..LinkCreate::default()
    };
    // SAFETY: no addresses.
    let link = unsafe { bpf(command::LINK_CREATE, &mut arguments) }
        .map_err(|refused| Error::new("attach the XDP program", "", refused))?;
    // SAFETY: a descriptor that the kernel has just made for us.
    Ok(Attachment { _link: unsafe { OwnedFd::from_raw_fd(link) } })
}

pub(super) fn test_run(object: &Ebpf, name: &str, frame: &[u8], repeat: u32) -> Result<Run, Error> {
    let program = xdp(object, name)?;
    let fd = program.fd().map_err(|refused| error("bpf", name, refused))?;
    // A program may lengthen the frame by what lies before it.
    let mut out = vec![0_u8; frame.len() + 256];
    let mut arguments = TestRun {
        program: fd.as_fd().as_raw_fd().cast_unsigned(),
        data_in_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
        data_out_len: u32::try_from(out.len()).unwrap_or(u32::MAX),
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat,
        ..TestRun::default()
    };
    // SAFETY: both frames are as long as we say.
    unsafe { bpf(command::PROG_TEST_RUN, &mut arguments) }
        .map_err(|refused| Error::new("bpf", format!("test run of {name}"), refused))?;
    out.truncate(arguments.data_out_len as usize);
    Ok(Run { verdict: arguments.verdict, duration_ns: arguments.duration, frame: out })
}
