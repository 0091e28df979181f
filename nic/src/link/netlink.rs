//! Two requests to the kernel's routing netlink: how is a link, and set its XDP program.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::LinkState;

/// An attached XDP program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct XdpProgram {
    /// The kernel's number of it.
    pub(crate) id: u32,
    /// In the driver, or else in the stack.
    pub(crate) native: bool,
}

/// Longest answer we read, bytes. A link with virtual functions has much to say.
const ANSWER: usize = 1 << 16;
/// Of the netlink header, and of the link's header behind it.
const HEADER: usize = 16;
const LINK: usize = 16;
/// `NLA_TYPE_MASK`: two bits of an attribute's type are flags.
const TYPE: u16 = 0x3fff;
/// `IFLA_XDP_*`.
const XDP_FD: u16 = 1;
const XDP_ATTACHED: u16 = 2;
const XDP_FLAGS: u16 = 3;
const XDP_PROGRAM: u16 = 4;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;

/// How the link with this index is.
pub(super) fn link(socket: &OwnedFd, index: u32) -> io::Result<LinkState> {
    let answer = ask(socket, libc::RTM_GETLINK, 0, index, &[])?;
    Ok(read(answer.get(LINK..).unwrap_or(&[])))
}

/// Attaches the program of descriptor `program`, or detaches with -1.
pub(super) fn set_xdp(socket: &OwnedFd, index: u32, program: i32, native: bool) -> io::Result<()> {
    // XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE.
    let flags: u32 = if native { 4 } else { 2 };
    let inner =
        [attribute(XDP_FD, &program.to_ne_bytes()), attribute(XDP_FLAGS, &flags.to_ne_bytes())].concat();
    let nested = attribute(libc::IFLA_XDP | NESTED, &inner);
    ask(socket, libc::RTM_SETLINK, libc::NLM_F_ACK as u16, index, &nested).map(drop)
}

/// Sends a request about a link; gives what is behind the header of the answer.
fn ask(socket: &OwnedFd, kind: u16, flags: u16, index: u32, attributes: &[u8]) -> io::Result<Vec<u8>> {
    let mut request = Vec::with_capacity(HEADER + LINK + attributes.len());
    request.extend(((HEADER + LINK + attributes.len()) as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend((libc::NLM_F_REQUEST as u16 | flags).to_ne_bytes());
    // Sequence and port; we ask one thing at a time.
    request.extend([0; 8]);
    // Family, type, index, flags, mask.
    request.extend([0; 4]);
    request.extend(index.to_ne_bytes());
    request.extend([0; 8]);
    request.extend(attributes);
    let fd = socket.as_raw_fd();
    // SAFETY: the kernel reads the request.
    let sent = unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0_u8; ANSWER];
    // SAFETY: the kernel writes at most as much as there is room for.
    let len = unsafe { libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    answer.truncate(len);
    if half(&answer, 4) == libc::NLMSG_ERROR as u16 {
        return match (word(&answer, HEADER) as i32).wrapping_neg() {
            0 => Ok(Vec::new()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        };
    }
    answer.drain(..HEADER.min(len));
    Ok(answer)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = 4 + value.len();
    let mut bytes = (len as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

/// What of a link's attributes matters to us.
fn read(attributes: &[u8]) -> LinkState {
    let mut state = LinkState::default();
    for (kind, value) in walk(attributes) {
        match kind {
            libc::IFLA_MTU => state.mtu = word(value, 0),
            libc::IFLA_NUM_RX_QUEUES => state.most_queues = word(value, 0),
            // `rx_dropped`, and `rx_missed_errors`: those the device itself had no room for.
            libc::IFLA_STATS64 => state.dropped = long(value, 6 * 8) + long(value, 15 * 8),
            libc::IFLA_XDP => state.program = program(value),
            _ => {}
        }
    }
    state
}

fn program(attributes: &[u8]) -> Option<XdpProgram> {
    /// `XDP_ATTACHED_DRV`, `XDP_ATTACHED_HW`.
    const NATIVE: [u8; 2] = [1, 3];
    let find = |wanted| walk(attributes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let id = word(find(XDP_PROGRAM)?, 0);
    let attached = find(XDP_ATTACHED).and_then(|value| value.first().copied()).unwrap_or(0);
    (id != 0).then_some(XdpProgram { id, native: NATIVE.contains(&attached) })
}

/// Attributes: a length (with its header), a type, a value, padded to four bytes.
fn walk(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(half(bytes, 0));
        let value = bytes.get(4..len)?;
        let kind = half(bytes, 2) & TYPE;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array(bytes, at))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array(bytes, at))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(array(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_walked_to_their_end_and_not_beyond() {
        let bytes =
            [attribute(3, b"veth0\0"), attribute(NESTED | 43, &attribute(XDP_PROGRAM, &7_u32.to_ne_bytes()))]
                .concat();
        let found: Vec<_> = walk(&bytes).map(|(kind, value)| (kind, value.len())).collect();
        assert_eq!(found, [(3, 6), (43, 8)]);
        for end in 0..bytes.len() {
            assert!(walk(&bytes[..end]).count() < 2, "{end}");
        }
        // A length below that of its own header ends the walk.
        assert_eq!(walk(&[1, 0, 3, 0, 9, 9, 9, 9]).count(), 0);
    }

    #[test]
    fn the_program_is_read_with_where_it_is() {
        let told = |attached: u8, id: u32| {
            let inner =
                [attribute(XDP_ATTACHED, &[attached]), attribute(XDP_PROGRAM, &id.to_ne_bytes())].concat();
            read(&attribute(libc::IFLA_XDP | NESTED, &inner)).program
        };
        assert_eq!(told(1, 9), Some(XdpProgram { id: 9, native: true }));
        assert_eq!(told(2, 9), Some(XdpProgram { id: 9, native: false }));
        assert_eq!(told(0, 0), None);
        assert_eq!(read(&[]), LinkState::default());
    }
}
