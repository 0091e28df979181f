//! A program that deals with datagrams itself, on an interface: above every receive path, since what it keeps needs none.

use super::xdp::{explain, make_room, stack_source};
use super::{Options, Refused, RxPath, Watch};
use crate::bpf::{Attachment, Mode, Object};
use crate::error::Error;
use crate::link::Link;
use crate::source::Source;

/// A program on an interface. Dropping the attachment detaches it.
#[expect(missing_debug_implementations, reason = "a source has none")]
pub struct Filter {
    /// The attachment.
    pub attached: Attachment,
    /// How it runs: [`RxPath::Native`] or [`RxPath::Generic`].
    pub rx_path: RxPath,
    /// Receive queues of the interface.
    pub queues: u32,
    /// Why it does not run natively.
    pub tried: Vec<Refused>,
    /// For what the program leaves to the stack; `None` where others read all of its ports.
    pub stack_source: Option<Box<dyn Source>>,
    /// Sentences for the operator.
    pub warnings: Vec<String>,
    /// Knows how the interface was.
    pub watch: Watch,
}

/// Puts `program` of `object` on `interface`, natively where that works.
///
/// # Errors
/// The interface is down or not there, another program is on it, or it can run none.
pub fn filter(interface: &str, object: &Object, program: &str, options: &Options) -> Result<Filter, Error> {
    let link = Link::open(interface)?;
    let state = link.state()?.unwrap_or_default();
    if !state.up {
        let source = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let advice = format!("the interface is down: `ip link set {interface} up`");
        return Err(Error::new("XDP", interface, source).with_advice(advice));
    }
    make_room(&link, &state)?;
    // Opened before the program leaves anything to it, so that nothing falls between.
    let mut warnings = Vec::new();
    let stack_source = stack_source(&link, options, &mut warnings)?;
    let attach = |mode| {
        let attached = object.attach(program, link.index(), mode);
        attached.map_err(|error| explain(error, &link, mode))
    };
    let mut tried = Vec::new();
    let (attached, rx_path) = match attach(Mode::Native) {
        Ok(attached) => (attached, RxPath::Native),
        Err(error) => {
            tried.push(Refused { rx_path: RxPath::Native, reason: error.to_string() });
            (attach(Mode::Generic)?, RxPath::Generic)
        }
    };
    let queues = link.queues();
    Ok(Filter { attached, rx_path, queues, tried, stack_source, warnings, watch: Watch::of_link(link)? })
}
