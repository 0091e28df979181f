//! RDMA cards, by libibverbs (feature `verbs`): memory that a card may write, and queue pairs that write to others' memory.
//!
//! Connecting is by numbers that both ends tell each other beforehand. Any RoCEv2 device of the kernel will do, a card or soft-RoCE.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;

use memory::Region;

use crate::Error;

mod sender;

pub use sender::{Refused, Sender};

#[repr(C)]
struct RawCard([u8; 0]);
#[repr(C)]
struct RawPair([u8; 0]);
#[repr(C)]
struct RawMemory([u8; 0]);

/// What was done: as the card tells it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// The number given with the request.
    pub work: u64,
    /// 0 is success; [`status_name`] names the others.
    pub status: u32,
    /// Immediate data of what was received.
    pub immediate: u32,
    /// Bytes of what was received.
    pub len: u32,
    is_receive: u32,
}

unsafe extern "C" {
    fn hopwise_card_open(address: *const u8, out: *mut *mut RawCard, mtu: *mut c_int) -> c_int;
    fn hopwise_card_close(card: *mut RawCard);
    fn hopwise_register(
        card: *mut RawCard,
        at: *mut c_void,
        len: usize,
        for_others: c_int,
        out: *mut *mut RawMemory,
        lkey: *mut u32,
        rkey: *mut u32,
    ) -> c_int;
    fn hopwise_unregister(memory: *mut RawMemory);
    fn hopwise_pair_make(
        card: *mut RawCard,
        reliable: c_int,
        depth: u32,
        receives: u32,
        out: *mut *mut RawPair,
        number: *mut u32,
    ) -> c_int;
    fn hopwise_pair_close(pair: *mut RawPair);
    fn hopwise_pair_connect(
        card: *mut RawCard,
        pair: *mut RawPair,
        peer: *const u8,
        number: u32,
        rq_psn: u32,
        sq_psn: u32,
        mtu: u32,
    ) -> c_int;
    fn hopwise_pair_post(
        pair: *mut RawPair,
        work: u64,
        with: c_int,
        local: u64,
        len: u32,
        lkey: u32,
        remote: u64,
        rkey: u32,
        value: u64,
        tell: c_int,
    ) -> c_int;
    fn hopwise_pair_receive(pair: *mut RawPair, count: u32) -> c_int;
    fn hopwise_pair_poll(pair: *mut RawPair, of_received: c_int, out: *mut Done, most: c_int) -> c_int;
    fn hopwise_status_name(status: u32) -> *const c_char;
}

fn good(result: c_int, call: &'static str, about: impl std::fmt::Display) -> Result<(), Error> {
    if result == 0 { Ok(()) } else { Err(Error::new(call, about, io::Error::from_raw_os_error(result))) }
}

/// What a status means, in libibverbs' words.
pub fn status_name(status: u32) -> &'static str {
    // SAFETY: the function returns one of its constant strings for any number.
    unsafe { CStr::from_ptr(hopwise_status_name(status)) }.to_str().unwrap_or("unknown")
}

/// An address as a card's table holds it.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[derive(Debug)]
struct Opened {
    raw: NonNull<RawCard>,
    mtu: u16,
}

// SAFETY: libibverbs' contexts and protection domains may be used from any thread, and from several at once.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once, after all that was made with it (which holds the `Arc`).
        unsafe { hopwise_card_close(self.raw.as_ptr()) }
    }
}

/// A device that speaks RoCEv2.
#[derive(Clone, Debug)]
pub struct Card(Arc<Opened>);

impl Card {
    /// The device that has this address.
    ///
    /// # Errors
    /// If there is none, or it cannot be opened.
    pub fn open(address: IpAddr) -> Result<Self, Error> {
        let (mut raw, mut mtu) = (std::ptr::null_mut(), 0);
        // SAFETY: 16 bytes are read, and the two variables written.
        let result = unsafe { hopwise_card_open(octets(address).as_ptr(), &raw mut raw, &raw mut mtu) };
        let advice = || {
            format!(
                "no RoCEv2 device has {address}: `rdma link` lists the devices, `ibv_devinfo -v` their addresses (GIDs)"
            )
        };
        good(result, "ibv_open_device", address).map_err(|error| error.with_advice(advice()))?;
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::new("ibv_open_device", address, io::ErrorKind::Other.into()))?;
        Ok(Self(Arc::new(Opened { raw, mtu: u16::try_from(mtu).unwrap_or(1024) })))
    }

    /// The largest path MTU of its port, bytes.
    pub fn mtu(&self) -> u16 {
        self.0.mtu
    }

    /// Lets the card read a region, and with `for_others` lets those who know its key write it and add to it.
    ///
    /// # Errors
    /// If the system does not allow it: usually the limit of locked memory.
    pub fn register(&self, region: Arc<Region>, for_others: bool) -> Result<Registered, Error> {
        self.register_from(region, 0, for_others)
    }

    /// The same of what lies from byte `start` on: what is before it, nobody else can touch.
    ///
    /// # Errors
    /// As for [`Card::register`]; `start` is not inside the region.
    pub fn register_from(
        &self,
        region: Arc<Region>,
        start: u64,
        for_others: bool,
    ) -> Result<Registered, Error> {
        let (mut raw, mut lkey, mut rkey) = (std::ptr::null_mut(), 0, 0);
        let Some(len) = region.len().checked_sub(start).filter(|len| *len > 0) else {
            return Err(Error::new("ibv_reg_mr", start, io::ErrorKind::InvalidInput.into()));
        };
        let at = region.as_ptr().wrapping_add(start as usize);
        // SAFETY: `at` and the bytes from there lie in the mapping; it lives as long as the registration, which holds the region; what the card writes there at any moment is
        // what regions are for.
        let result = unsafe {
            hopwise_register(
                self.0.raw.as_ptr(),
                at.cast(),
                len as usize,
                for_others.into(),
                &raw mut raw,
                &raw mut lkey,
                &raw mut rkey,
            )
        };
        let advice = "the card could not take the memory: raise the limit of locked memory (`ulimit -l`, LimitMEMLOCK=)";
        good(result, "ibv_reg_mr", region.len()).map_err(|error| error.with_advice(advice.to_owned()))?;
        let raw =
            NonNull::new(raw).ok_or_else(|| Error::new("ibv_reg_mr", "", io::ErrorKind::Other.into()))?;
        Ok(Registered { raw, lkey, rkey, start, region, _card: self.clone() })
    }

    /// A queue pair that can have `depth` requests outstanding and takes `receives` immediates before it must be asked.
    ///
    /// # Errors
    /// If the card cannot make one.
    pub fn pair(&self, reliable: bool, depth: u32, receives: u32) -> Result<Pair, Error> {
        let (mut raw, mut number) = (std::ptr::null_mut(), 0);
        let card = self.0.raw.as_ptr();
        // SAFETY: the card is open, and the two variables are written.
        let result = unsafe {
            hopwise_pair_make(card, reliable.into(), depth, receives, &raw mut raw, &raw mut number)
        };
        good(result, "ibv_create_qp", if reliable { "RC" } else { "UC" })?;
        let raw =
            NonNull::new(raw).ok_or_else(|| Error::new("ibv_create_qp", "", io::ErrorKind::Other.into()))?;
        Ok(Pair { raw, number, card: self.clone() })
    }
}

/// Memory that a card may touch, until this is dropped.
#[derive(Debug)]
pub struct Registered {
    raw: NonNull<RawMemory>,
    lkey: u32,
    rkey: u32,
    start: u64,
    region: Arc<Region>,
    _card: Card,
}

// SAFETY: a registration belongs to no thread.
unsafe impl Send for Registered {}

impl Registered {
    /// R_Key: who knows it may write.
    pub fn key(&self) -> u32 {
        self.rkey
    }

    /// The virtual address by which others name its first byte.
    pub fn address(&self) -> u64 {
        self.region.as_ptr() as u64 + self.start
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.region.len() - self.start
    }

    /// Whether it has none. Nothing is registered that is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered once, given back once; the region is still mapped.
        unsafe { hopwise_unregister(self.raw.as_ptr()) }
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair.
    pub queue_pair: u32,
    /// The number of its first packet, 24 bits.
    pub psn: u32,
    /// The number of our first packet.
    pub own_psn: u32,
    /// Path MTU, bytes.
    pub mtu: u16,
}

/// A queue pair.
#[derive(Debug)]
pub struct Pair {
    raw: NonNull<RawPair>,
    number: u32,
    card: Card,
}

// SAFETY: a queue pair belongs to no thread; it is used by one at a time, since every use takes `&mut self`.
unsafe impl Send for Pair {}

impl Pair {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Makes it ready to receive and to send.
    ///
    /// # Errors
    /// If the card refuses: usually because there is no route to the address.
    pub fn connect(&mut self, peer: &Peer) -> Result<(), Error> {
        let (card, address) = (self.card.0.raw.as_ptr(), octets(peer.address));
        // SAFETY: both are open; 16 bytes are read.
        let result = unsafe {
            hopwise_pair_connect(
                card,
                self.raw.as_ptr(),
                address.as_ptr(),
                peer.queue_pair,
                peer.psn,
                peer.own_psn,
                peer.mtu.into(),
            )
        };
        good(result, "ibv_modify_qp", format_args!("to {} queue pair {}", peer.address, peer.queue_pair))
    }

    /// Takes `count` more messages with immediate data; without, their senders wait.
    ///
    /// # Errors
    /// If there is no room for so many.
    pub fn receive(&mut self, count: u32) -> Result<(), Error> {
        // SAFETY: the pair is open; a receive request of no bytes refers to no memory.
        good(unsafe { hopwise_pair_receive(self.raw.as_ptr(), count) }, "ibv_post_recv", count)
    }

    /// What was received.
    pub fn received<'a>(&mut self, out: &'a mut [Done]) -> &'a [Done] {
        self.poll(true, out)
    }

    /// What was sent and is done.
    fn sent<'a>(&mut self, out: &'a mut [Done]) -> &'a [Done] {
        self.poll(false, out)
    }

    fn poll<'a>(&mut self, of_received: bool, out: &'a mut [Done]) -> &'a [Done] {
        let most = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        // SAFETY: at most `most` entries of `out` are written.
        let count =
            unsafe { hopwise_pair_poll(self.raw.as_ptr(), of_received.into(), out.as_mut_ptr(), most) };
        out.get(..usize::try_from(count).unwrap_or(0)).unwrap_or_default()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: made once, closed once, before its card.
        unsafe { hopwise_pair_close(self.raw.as_ptr()) }
    }
}
