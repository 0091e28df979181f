//! Attaches an XDP program that processes datagrams itself, such as the collector's kernel program. It runs before every
//! receive path; datagrams that it consumes need none.

use super::xdp::{attach, make_room, stack_source, up_state};
use super::{Options, Refused, RxPath, Watch};
use crate::bpf::{Attachment, Mode, Object};
use crate::error::Error;
use crate::link::Link;
use crate::source::Source;

/// An attached program. Dropping the attachment detaches it.
#[expect(missing_debug_implementations, reason = "a source has none")]
pub struct Filter {
    /// The attachment of the program.
    pub attached: Attachment,
    /// The place where it runs: [`RxPath::Native`] or [`RxPath::Generic`].
    pub rx_path: RxPath,
    /// Number of receive queues of the interface.
    pub queues: u32,
    /// Native mode, with the error, if the program had to be attached in generic mode.
    pub tried: Vec<Refused>,
    /// Sockets for datagrams that the program passes to the stack; `None` if other processes have bound all the ports.
    pub stack_source: Option<Box<dyn Source>>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
    /// Detects changes of the interface.
    pub watch: Watch,
}

/// Attaches `program` of `object` to `interface`, in native mode if possible.
///
/// # Errors
/// The interface is down or missing, another program is attached, or the interface cannot run programs.
pub fn filter(interface: &str, object: &Object, program: &str, options: &Options) -> Result<Filter, Error> {
    let link = Link::open(interface)?;
    make_room(&link, &up_state(&link)?)?;
    // Opened before the program passes anything to it, so that no datagram is lost in between.
    let mut warnings = Vec::new();
    let stack_source = stack_source(&link, options, &mut warnings)?;
    let mut tried = Vec::new();
    let (attached, rx_path) = match attach(object, program, &link, Mode::Native) {
        Ok(attached) => (attached, RxPath::Native),
        Err(error) => {
            tried.push(Refused {
                rx_path: RxPath::Native,
                reason: error.to_string(),
            });
            (attach(object, program, &link, Mode::Generic)?, RxPath::Generic)
        }
    };
    let queues = link.queues();
    Ok(Filter {
        attached,
        rx_path,
        queues,
        tried,
        stack_source,
        warnings,
        watch: Watch::of_link(link)?,
    })
}
