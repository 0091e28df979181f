//! RDMA devices through libibverbs: memory that remote peers may write, and queue pairs that write to remote memory.
//!
//! Both ends of a connection exchange queue pair numbers and PSNs beforehand, outside this module. Any RoCEv2 device of the
//! kernel works, hardware or soft-RoCE.

use std::ffi::{CStr, c_int};
use std::io;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;

use memory::Region;

use crate::Error;
use library::{
    AddressVector, Capacity, Completion, CompletionQueue, Context, DeviceAttributes, Domain, GidEntry,
    Library, MemoryRegion, PortAttributes, QueuePairAttributes, QueuePairInit, ReceiveRequest, access,
    library, mask, state,
};

mod library;
mod sender;

pub use sender::{Refused, Sender};

/// RNR NAK timer code 12 (InfiniBand specification, table 45): the peer waits 0.64 ms before it retries a message for which
/// there was no receive buffer.
const RNR_TIMER_640_US: u8 = 12;
/// Local ACK timeout code 14 (InfiniBand specification, 9.7.6.1.3): 4.096 us * 2^14 = 67 ms.
const ACK_TIMEOUT_67_MS: u8 = 14;
/// Retries after a timeout or a sequence error before the connection breaks; 7 is the maximum.
const RETRIES: u8 = 7;
/// Value of `rnr_retry` in ibv_modify_qp(3) that means unlimited retries.
const RNR_RETRIES_UNLIMITED: u8 = 7;

/// Outstanding reads and atomic operations of a queue pair, both as requester and as responder.
pub const ATOMICS: u8 = 4;

/// A completed work request, as the device reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkCompletion {
    /// ID that was given with the request.
    pub wr_id: u64,
    /// Status: 0 is success; [`status_name`] names the others.
    pub status: u32,
    /// Immediate data of the received message.
    pub immediate: u32,
    /// Bytes of the received message.
    pub len: u32,
}

/// Checks the pointer that a call returned. Null is a failure, whose cause is in errno.
fn non_null<T>(
    pointer: *mut T,
    call: &'static str,
    subject: impl std::fmt::Display,
) -> Result<NonNull<T>, Error> {
    NonNull::new(pointer).ok_or_else(|| Error::last(call, subject))
}

/// Checks the result of a call that returns 0 or an errno.
fn check_errno(errno: c_int, call: &'static str, subject: impl std::fmt::Display) -> Result<(), Error> {
    if errno == 0 {
        Ok(())
    } else {
        Err(Error::new(call, subject, io::Error::from_raw_os_error(errno)))
    }
}

/// Checks whether this machine has libibverbs.
///
/// # Errors
/// Returns the message of the dynamic loader.
pub fn check_library() -> Result<(), &'static str> {
    library().map(|_| ())
}

/// Returns the meaning of a status, as worded by libibverbs.
pub fn status_name(status: u32) -> &'static str {
    let Ok(library) = library() else { return "unknown" };
    // SAFETY: the function returns one of its constant strings for any number.
    let name = unsafe { (library.ibv_wc_status_str)(status) };
    // SAFETY: as above.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("unknown")
}

/// Returns an address in the form of a device's GID table.
fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[derive(Debug)]
struct DeviceContext {
    library: &'static Library,
    context: NonNull<Context>,
    domain: NonNull<Domain>,
    port: GidPort,
}

/// A port of a device, with the entry of its GID table that holds our address.
#[derive(Clone, Copy, Debug)]
struct GidPort {
    number: u8,
    gid_index: u8,
    /// Path MTU, bytes.
    mtu: u16,
}

// SAFETY: libibverbs' contexts and protection domains may be used from any thread, and from several at once.
unsafe impl Send for DeviceContext {}
// SAFETY: as above.
unsafe impl Sync for DeviceContext {}

impl Drop for DeviceContext {
    fn drop(&mut self) {
        // SAFETY: created once and released once, after all objects made with it (they hold the `Arc`).
        unsafe {
            (self.library.ibv_dealloc_pd)(self.domain.as_ptr());
            (self.library.ibv_close_device)(self.context.as_ptr());
        }
    }
}

/// Finds the port of a device that has the address.
fn find_port(library: &Library, context: NonNull<Context>, address: [u8; 16]) -> Option<GidPort> {
    let mut device = DeviceAttributes::default();
    // SAFETY: the device is open, and libibverbs writes fewer bytes than our structure has.
    if unsafe { (library.ibv_query_device)(context.as_ptr(), &raw mut device) } != 0 {
        return None;
    }
    for number in 1..=device.ports {
        let mut attributes = PortAttributes::default();
        // SAFETY: as above.
        if unsafe { (library.ibv_query_port)(context.as_ptr(), number, &raw mut attributes) } != 0 {
            continue;
        }
        // An address handle has eight bits for the index of the source GID.
        for gid_index in 0..=u8::try_from(attributes.gids.saturating_sub(1)).unwrap_or(u8::MAX) {
            let mut entry = GidEntry::default();
            let len = size_of::<GidEntry>();
            // SAFETY: as above; the length is given.
            let result = unsafe {
                (library._ibv_query_gid_ex)(
                    context.as_ptr(),
                    number.into(),
                    gid_index.into(),
                    &raw mut entry,
                    0,
                    len,
                )
            };
            if result == 0 && entry.kind == library::ROCE_V2 && entry.gid.0 == address {
                return Some(GidPort {
                    number,
                    gid_index,
                    mtu: 128 << attributes.active_mtu.clamp(1, 5),
                });
            }
        }
    }
    None
}

/// Returns whether the error means that no device has the address.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::ENODEV))
}

/// A device that speaks RoCEv2.
#[derive(Clone, Debug)]
pub struct Device(Arc<DeviceContext>);

impl Device {
    /// Opens the device that has this address. It works only in threads whose credentials and capabilities equal those that the
    /// calling thread has now.
    ///
    /// # Errors
    /// No device has the address, the device cannot be opened, or this machine has no libibverbs.
    pub fn open(address: IpAddr) -> Result<Self, Error> {
        let library = library().map_err(|reason| {
            let advice = "install libibverbs, of rdma-core 32 or newer, and its drivers (Debian: libibverbs1 ibverbs-providers)";
            Error::new("dlopen", "", io::Error::other(reason)).with_advice(advice.to_owned())
        })?;
        let mut count = 0;
        // SAFETY: the variable is written.
        let list = unsafe { (library.ibv_get_device_list)(&raw mut count) };
        let mut outcome = Err(io::Error::from_raw_os_error(libc::ENODEV));
        let count = if list.is_null() {
            0
        } else {
            usize::try_from(count).unwrap_or(0)
        };
        for index in 0..count {
            // SAFETY: the list has `count` devices.
            let device = unsafe { *list.add(index) };
            // SAFETY: the device is one of the list, which is valid until it is freed below.
            let context = NonNull::new(unsafe { (library.ibv_open_device)(device) });
            let opened = context
                .ok_or_else(io::Error::last_os_error)
                .and_then(|context| Self::from_context(library, context, gid(address)));
            // A device that could not be opened may have the address, so its error is more useful than "address not found" of
            // another one.
            let is_absent_so_far = outcome.as_ref().is_err_and(is_absent);
            if opened.is_ok() || is_absent_so_far {
                outcome = opened;
            }
            if outcome.is_ok() {
                break;
            }
        }
        if !list.is_null() {
            // SAFETY: it was made above; devices that were opened stay.
            unsafe { (library.ibv_free_device_list)(list) };
        }
        outcome.map_err(|error| {
            let advice = if is_absent(&error) {
                format!("no RoCEv2 device has {address}: `rdma link` lists the devices, `ibv_devinfo -v` their addresses (GIDs)")
            } else {
                "check the permissions of /dev/infiniband/uverbs*, and PrivateDevices= of a systemd unit".to_owned()
            };
            Error::new("ibv_open_device", address, error).with_advice(advice)
        })
    }

    /// Wraps an open device, or closes it if it does not have the address.
    fn from_context(
        library: &'static Library,
        context: NonNull<Context>,
        address: [u8; 16],
    ) -> io::Result<Self> {
        let port = find_port(library, context, address);
        let domain = match port {
            // SAFETY: the device is open.
            Some(_) => NonNull::new(unsafe { (library.ibv_alloc_pd)(context.as_ptr()) })
                .ok_or_else(io::Error::last_os_error),
            None => Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)),
        };
        match (port, domain) {
            (Some(port), Ok(domain)) => Ok(Self(Arc::new(DeviceContext {
                library,
                context,
                domain,
                port,
            }))),
            (_, domain) => {
                // SAFETY: opened once, closed once, and nothing was made with it.
                unsafe { (library.ibv_close_device)(context.as_ptr()) };
                Err(domain.err().unwrap_or_else(|| io::ErrorKind::Other.into()))
            }
        }
    }

    /// Returns the largest path MTU of the device's port, bytes.
    pub fn mtu(&self) -> u16 {
        self.0.port.mtu
    }

    /// Registers a region for local access by the device and, with `is_remote`, for remote writes and atomics under its rkey.
    ///
    /// # Errors
    /// The system refused, usually because of the limit of locked memory.
    pub fn register(&self, region: Arc<Region>, is_remote: bool) -> Result<RegisteredRegion, Error> {
        self.register_from(region, 0, is_remote)
    }

    /// Registers the region from byte `start` on. The bytes before it are not accessible remotely.
    ///
    /// # Errors
    /// The same as for [`Device::register`]; or `start` is not inside the region.
    pub fn register_from(
        &self,
        region: Arc<Region>,
        start: u64,
        is_remote: bool,
    ) -> Result<RegisteredRegion, Error> {
        let Some(len) = region.len().checked_sub(start).filter(|len| *len > 0) else {
            return Err(Error::new(
                "ibv_reg_mr",
                start,
                io::ErrorKind::InvalidInput.into(),
            ));
        };
        let first_byte = region.as_ptr().wrapping_add(start as usize);
        let remote_flags = if is_remote {
            access::REMOTE_WRITE | access::REMOTE_ATOMIC
        } else {
            0
        };
        let flags = access::LOCAL_WRITE | remote_flags;
        // SAFETY: `first_byte` and the bytes from there are in the mapping. It lives as long as the registration, which holds the
        // region. Regions permit writes by a device at any time.
        let raw = unsafe {
            (self.0.library.ibv_reg_mr)(self.0.domain.as_ptr(), first_byte.cast(), len as usize, flags)
        };
        let raw = non_null(raw, "ibv_reg_mr", region.len()).map_err(|error| {
            let advice = match error.errno() {
                // The kernel does not let devices write to memory of files on a disk.
                Some(libc::EFAULT | libc::EOPNOTSUPP) => {
                    "a device can write only what stays in memory: put it on a tmpfs (/dev/shm) or hugetlbfs"
                }
                _ => "the device could not register the memory: raise the limit of locked memory (`ulimit -l`, LimitMEMLOCK=)",
            };
            error.with_advice(advice.to_owned())
        })?;
        // SAFETY: it was just made.
        let (lkey, rkey) = unsafe { ((*raw.as_ptr()).lkey, (*raw.as_ptr()).rkey) };
        Ok(RegisteredRegion {
            raw,
            lkey,
            rkey,
            start,
            region,
            device: self.clone(),
        })
    }

    fn completion_queue(&self, requests: u32) -> Result<NonNull<CompletionQueue>, Error> {
        let none = std::ptr::null_mut();
        let requests = c_int::try_from(requests).unwrap_or(c_int::MAX);
        // SAFETY: the device is open; the queue has no channel and no context.
        let queue =
            unsafe { (self.0.library.ibv_create_cq)(self.0.context.as_ptr(), requests, none, none, 0) };
        non_null(queue, "ibv_create_cq", requests)
    }

    /// Creates a queue pair with up to `depth` outstanding requests, which can receive `receives` messages with immediate data
    /// before it is polled.
    ///
    /// # Errors
    /// The device cannot create one.
    pub fn queue_pair(&self, reliable: bool, depth: u32, receives: u32) -> Result<QueuePair, Error> {
        let transport = if reliable { "RC" } else { "UC" };
        let mut pair = QueuePair {
            raw: None,
            send_queue: Some(self.completion_queue(depth + 1)?),
            receive_queue: None,
            number: 0,
            reliable,
            device: self.clone(),
        };
        pair.receive_queue = Some(self.completion_queue(receives + 1)?);
        let mut init = QueuePairInit {
            context: std::ptr::null_mut(),
            send_cq: pair.send_queue.map_or(std::ptr::null_mut(), NonNull::as_ptr),
            recv_cq: pair.receive_queue.map_or(std::ptr::null_mut(), NonNull::as_ptr),
            shared: std::ptr::null_mut(),
            capacity: Capacity {
                max_send_wr: depth,
                max_recv_wr: receives.max(1),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            kind: if reliable {
                library::RELIABLE
            } else {
                library::UNRELIABLE
            },
            signal_all: 0,
        };
        // SAFETY: the domain and both queues are open.
        let raw = unsafe { (self.0.library.ibv_create_qp)(self.0.domain.as_ptr(), &raw mut init) };
        let raw = non_null(raw, "ibv_create_qp", transport)?;
        pair.raw = Some(raw);
        // SAFETY: it was just made.
        pair.number = unsafe { (*raw.as_ptr()).number };
        let flags = access::REMOTE_WRITE | if reliable { access::REMOTE_ATOMIC } else { 0 };
        let attributes = QueuePairAttributes {
            state: state::INIT,
            access: flags as u32,
            port: self.0.port.number,
            ..QueuePairAttributes::default()
        };
        pair.modify(
            attributes,
            mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::ACCESS,
            transport,
        )?;
        Ok(pair)
    }
}

/// Memory registered with a device, until this is dropped.
#[derive(Debug)]
pub struct RegisteredRegion {
    raw: NonNull<MemoryRegion>,
    lkey: u32,
    rkey: u32,
    start: u64,
    region: Arc<Region>,
    device: Device,
}

// SAFETY: a registration belongs to no thread.
unsafe impl Send for RegisteredRegion {}

impl RegisteredRegion {
    /// Returns the rkey, which authorizes remote writes.
    pub fn key(&self) -> u32 {
        self.rkey
    }

    /// Returns the virtual address by which remote peers address its first byte.
    pub fn address(&self) -> u64 {
        self.region.as_ptr() as u64 + self.start
    }

    /// Returns the number of registered bytes.
    pub fn len(&self) -> u64 {
        self.region.len() - self.start
    }

    /// Returns whether it has no bytes, which never holds for registered memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the registered memory region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

impl Drop for RegisteredRegion {
    fn drop(&mut self) {
        // SAFETY: registered once and deregistered once; the region is still mapped.
        unsafe { (self.device.0.library.ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}

/// The remote end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// IP address of the peer.
    pub address: IpAddr,
    /// Number of the peer's queue pair.
    pub queue_pair: u32,
    /// PSN of the peer's first packet, 24 bits.
    pub psn: u32,
    /// PSN of our first packet, 24 bits.
    pub own_psn: u32,
    /// Path MTU of the connection, bytes.
    pub mtu: u16,
}

/// A queue pair of an RDMA device.
#[derive(Debug)]
pub struct QueuePair {
    /// The verbs object. It and the next two are `None` while the queue pair is being created.
    raw: Option<NonNull<library::QueuePair>>,
    /// Completions of sent requests.
    send_queue: Option<NonNull<CompletionQueue>>,
    /// Completions of received messages.
    receive_queue: Option<NonNull<CompletionQueue>>,
    number: u32,
    reliable: bool,
    device: Device,
}

// SAFETY: a queue pair is not bound to a thread; one thread uses it at a time, since every use takes `&mut self`.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// Returns the number of the queue pair.
    pub fn number(&self) -> u32 {
        self.number
    }

    fn modify(
        &mut self,
        mut attributes: QueuePairAttributes,
        mask: c_int,
        subject: impl std::fmt::Display,
    ) -> Result<(), Error> {
        let errno = match self.raw {
            // SAFETY: the pair is open; the attributes are read.
            Some(raw) => unsafe {
                (self.device.0.library.ibv_modify_qp)(raw.as_ptr(), &raw mut attributes, mask)
            },
            None => libc::EINVAL,
        };
        check_errno(errno, "ibv_modify_qp", subject)
    }

    /// Connects the queue pair: moves it to the states "ready to receive" and "ready to send".
    ///
    /// # Errors
    /// The device refused, usually because there is no route to the address.
    pub fn connect(&mut self, peer: &Peer) -> Result<(), Error> {
        let subject = format!("to {} queue pair {}", peer.address, peer.queue_pair);
        let address_vector = AddressVector {
            destination: library::Gid(gid(peer.address)),
            source_index: self.device.0.port.gid_index,
            hop_limit: 64,
            is_global: 1,
            port: self.device.0.port.number,
            ..AddressVector::default()
        };
        let receiving = QueuePairAttributes {
            state: state::READY_TO_RECEIVE,
            path_mtu: mtu_code(peer.mtu),
            peer: peer.queue_pair,
            rq_psn: peer.psn,
            max_dest_rd_atomic: ATOMICS,
            min_rnr_timer: RNR_TIMER_640_US,
            address_vector,
            ..QueuePairAttributes::default()
        };
        let reliable_mask = if self.reliable {
            mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER
        } else {
            0
        };
        let base_mask = mask::STATE | mask::ADDRESS_VECTOR | mask::PATH_MTU | mask::PEER | mask::RQ_PSN;
        self.modify(receiving, base_mask | reliable_mask, &subject)?;
        let sending = QueuePairAttributes {
            state: state::READY_TO_SEND,
            sq_psn: peer.own_psn,
            timeout: ACK_TIMEOUT_67_MS,
            retry_cnt: RETRIES,
            rnr_retry: RNR_RETRIES_UNLIMITED,
            max_rd_atomic: ATOMICS,
            ..QueuePairAttributes::default()
        };
        let reliable_mask = mask::TIMEOUT | mask::RETRY_CNT | mask::RNR_RETRY | mask::MAX_RD_ATOMIC;
        let mask = mask::STATE | mask::SQ_PSN | if self.reliable { reliable_mask } else { 0 };
        self.modify(sending, mask, &subject)
    }

    /// Posts `count` receive requests for messages with immediate data; without them, the senders must wait.
    ///
    /// # Errors
    /// The receive queue is full.
    pub fn receive(&mut self, count: u32) -> Result<(), Error> {
        let request = ReceiveRequest {
            wr_id: 0,
            next: std::ptr::null(),
            sg_list: std::ptr::null(),
            num_sge: 0,
        };
        for _ in 0..count {
            let Some(raw) = self.raw else { break };
            let mut failed = std::ptr::null();
            // SAFETY: the pair is open, and with it its device; a request of no bytes refers to no memory, and is copied.
            let errno = unsafe {
                ((*(*raw.as_ptr()).context).post_recv)(raw.as_ptr(), &raw const request, &raw mut failed)
            };
            check_errno(errno, "ibv_post_recv", count)?;
        }
        Ok(())
    }

    /// Polls for completions of received messages.
    pub fn poll_received<'a>(&mut self, out: &'a mut [WorkCompletion]) -> &'a [WorkCompletion] {
        poll(self.receive_queue, out)
    }

    /// Polls for completions of sent requests.
    fn poll_sent<'a>(&mut self, out: &'a mut [WorkCompletion]) -> &'a [WorkCompletion] {
        poll(self.send_queue, out)
    }
}

/// Polls a queue for completions: as many as `out` can hold, but at most 16.
fn poll(queue: Option<NonNull<CompletionQueue>>, out: &mut [WorkCompletion]) -> &[WorkCompletion] {
    let mut completions = [Completion::default(); 16];
    let max = out.len().min(completions.len());
    let Some(queue) = queue else { return &[] };
    // SAFETY: the queue is open, and with it its device; at most `max` entries of `completions` are written.
    let count = unsafe {
        ((*(*queue.as_ptr()).context).poll_cq)(queue.as_ptr(), max as c_int, completions.as_mut_ptr())
    };
    let count = usize::try_from(count).unwrap_or(0).min(max);
    for (out, completion) in out.iter_mut().zip(&completions[..count]) {
        let has_immediate = completion.flags & library::WITH_IMMEDIATE != 0;
        let immediate = if has_immediate {
            u32::from_be(completion.immediate)
        } else {
            0
        };
        *out = WorkCompletion {
            wr_id: completion.wr_id,
            status: completion.status,
            immediate,
            len: completion.len,
        };
    }
    &out[..count]
}

/// Returns the verbs code of a path MTU.
fn mtu_code(bytes: u16) -> u32 {
    match bytes {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        _ => 1,
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let library = self.device.0.library;
        // SAFETY: each was created once and is destroyed once, the pair before its queues, and all before their device.
        unsafe {
            self.raw.map(|raw| (library.ibv_destroy_qp)(raw.as_ptr()));
            self.send_queue
                .map(|queue| (library.ibv_destroy_cq)(queue.as_ptr()));
            self.receive_queue
                .map(|queue| (library.ibv_destroy_cq)(queue.as_ptr()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_no_nic_has_is_refused_with_advice() {
        let error = Device::open([192, 0, 2, 1].into()).unwrap_err().to_string();
        assert!(
            error.contains("libibverbs1") || error.contains("rdma link"),
            "{error}"
        );
    }

    #[test]
    fn path_mtus_are_numbered_as_the_specification_does() {
        assert_eq!([256, 512, 1024, 2048, 4096].map(mtu_code), [1, 2, 3, 4, 5]);
        assert_eq!([300, 1500, 9000].map(mtu_code), [1, 3, 5]);
    }
}
