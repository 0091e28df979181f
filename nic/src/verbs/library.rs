//! Bindings to libibverbs, loaded with `dlopen` at first use: builds, and machines without RDMA devices, do not need the
//! library.
//!
//! The structures follow its ABI, symbol version `IBVERBS_1.1` (`<infiniband/verbs.h>`), as far as they are used. That ABI has
//! been stable since 2006; one symbol is newer, `_ibv_query_gid_ex` of rdma-core 32 (2020). The assertions below compare the
//! layouts with C.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::OnceLock;

/// GID type `IBV_GID_TYPE_ROCE_V2` of infiniband/verbs.h.
pub(super) const ROCE_V2: u32 = 2;
/// `IBV_QPT_RC` of `enum ibv_qp_type`.
pub(super) const RELIABLE: u32 = 2;
/// `IBV_QPT_UC` of `enum ibv_qp_type`.
pub(super) const UNRELIABLE: u32 = 3;
/// `IBV_SEND_SIGNALED` of `enum ibv_send_flags`.
pub(super) const SIGNALED: u32 = 1 << 1;
/// `IBV_WC_WITH_IMM` of `enum ibv_wc_flags`.
pub(super) const WITH_IMMEDIATE: u32 = 1 << 1;

/// `struct ibv_device`, which is opaque.
#[repr(C)]
pub(super) struct Device([u8; 0]);
/// `struct ibv_pd`, which is opaque.
#[repr(C)]
pub(super) struct Domain([u8; 0]);

/// `struct ibv_context`, up to the functions that are not symbols of the library.
#[repr(C)]
pub(super) struct Context {
    device: *mut Device,
    others: [*const c_void; 11],
    pub(super) poll_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut Completion) -> c_int,
    more: [*const c_void; 13],
    pub(super) post_send:
        unsafe extern "C" fn(*mut QueuePair, *const SendRequest, *mut *const SendRequest) -> c_int,
    pub(super) post_recv:
        unsafe extern "C" fn(*mut QueuePair, *const ReceiveRequest, *mut *const ReceiveRequest) -> c_int,
}

/// `struct ibv_mr` of infiniband/verbs.h.
#[repr(C)]
pub(super) struct MemoryRegion {
    pointers: [*mut c_void; 3],
    len: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// The first field of `struct ibv_cq`.
#[repr(C)]
pub(super) struct CompletionQueue {
    pub(super) context: *mut Context,
}

/// The first fields of `struct ibv_qp`.
#[repr(C)]
pub(super) struct QueuePair {
    pub(super) context: *mut Context,
    pointers: [*mut c_void; 5],
    handle: u32,
    pub(super) number: u32,
}

/// `union ibv_gid` of infiniband/verbs.h.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Gid(pub(super) [u8; 16]);

/// `struct ibv_gid_entry` of infiniband/verbs.h.
#[repr(C)]
#[derive(Default)]
pub(super) struct GidEntry {
    pub(super) gid: Gid,
    index: u32,
    port: u32,
    pub(super) kind: u32,
    interface: u32,
}

/// `struct ibv_device_attr`, with space for fields added later.
#[repr(C, align(8))]
pub(super) struct DeviceAttributes {
    others: [u8; 227],
    pub(super) ports: u8,
    more: [u8; 284],
}

impl Default for DeviceAttributes {
    fn default() -> Self {
        Self {
            others: [0; 227],
            ports: 0,
            more: [0; 284],
        }
    }
}

/// `struct ibv_port_attr`, with space for fields added later.
#[repr(C, align(8))]
#[derive(Default)]
pub(super) struct PortAttributes {
    state: u32,
    max_mtu: u32,
    /// Code of the MTU: 1 is 256 bytes, each further value doubles it.
    pub(super) active_mtu: u32,
    pub(super) gids: c_int,
    others: [u32; 28],
}

/// `struct ibv_qp_cap` of infiniband/verbs.h.
#[repr(C)]
#[derive(Default)]
pub(super) struct Capacity {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr` of infiniband/verbs.h.
#[repr(C)]
pub(super) struct QueuePairInit {
    pub(super) context: *mut c_void,
    pub(super) send_cq: *mut CompletionQueue,
    pub(super) recv_cq: *mut CompletionQueue,
    pub(super) shared: *mut c_void,
    pub(super) capacity: Capacity,
    pub(super) kind: u32,
    pub(super) signal_all: c_int,
}

/// `struct ibv_ah_attr`, including `ibv_global_route`.
#[repr(C)]
#[derive(Default)]
pub(super) struct AddressVector {
    pub(super) destination: Gid,
    pub(super) flow_label: u32,
    pub(super) source_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) gap: u8,
    pub(super) lid: u16,
    pub(super) service_level: u8,
    pub(super) path_bits: u8,
    pub(super) rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

/// `struct ibv_qp_attr` of infiniband/verbs.h.
#[repr(C)]
#[derive(Default)]
pub(super) struct QueuePairAttributes {
    pub(super) state: u32,
    pub(super) current: u32,
    pub(super) path_mtu: u32,
    pub(super) migration: u32,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) peer: u32,
    pub(super) access: u32,
    pub(super) capacity: Capacity,
    pub(super) address_vector: AddressVector,
    pub(super) alternate_address_vector: AddressVector,
    pub(super) pkey_index: u16,
    pub(super) alternate_pkey_index: u16,
    pub(super) notify: u8,
    pub(super) draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alternate_port: u8,
    pub(super) alternate_timeout: u8,
    pub(super) rate_limit: u32,
}

/// States of `enum ibv_qp_state`.
pub(super) mod state {
    pub(in crate::verbs) const INIT: u32 = 1;
    pub(in crate::verbs) const READY_TO_RECEIVE: u32 = 2;
    pub(in crate::verbs) const READY_TO_SEND: u32 = 3;
}

/// Bits of `enum ibv_qp_attr_mask`.
pub(super) mod mask {
    pub(in crate::verbs) const STATE: c_int = 1;
    pub(in crate::verbs) const ACCESS: c_int = 1 << 3;
    pub(in crate::verbs) const PKEY_INDEX: c_int = 1 << 4;
    pub(in crate::verbs) const PORT: c_int = 1 << 5;
    pub(in crate::verbs) const ADDRESS_VECTOR: c_int = 1 << 7;
    pub(in crate::verbs) const PATH_MTU: c_int = 1 << 8;
    pub(in crate::verbs) const TIMEOUT: c_int = 1 << 9;
    pub(in crate::verbs) const RETRY_CNT: c_int = 1 << 10;
    pub(in crate::verbs) const RNR_RETRY: c_int = 1 << 11;
    pub(in crate::verbs) const RQ_PSN: c_int = 1 << 12;
    pub(in crate::verbs) const MAX_RD_ATOMIC: c_int = 1 << 13;
    pub(in crate::verbs) const MIN_RNR_TIMER: c_int = 1 << 15;
    pub(in crate::verbs) const SQ_PSN: c_int = 1 << 16;
    pub(in crate::verbs) const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub(in crate::verbs) const PEER: c_int = 1 << 20;

    use std::ffi::c_int;
}

/// Bits of `enum ibv_access_flags`.
pub(super) mod access {
    use std::ffi::c_int;

    pub(in crate::verbs) const LOCAL_WRITE: c_int = 1;
    pub(in crate::verbs) const REMOTE_WRITE: c_int = 1 << 1;
    pub(in crate::verbs) const REMOTE_ATOMIC: c_int = 1 << 3;
}

/// `struct ibv_sge` of infiniband/verbs.h.
#[repr(C)]
pub(super) struct Sge {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) lkey: u32,
}

/// Member `rdma` of the union `wr`: the target of a write.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RdmaTarget {
    pub(super) address: u64,
    pub(super) rkey: u32,
}

/// Member `atomic` of the union `wr`: the target and operands of an atomic operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AtomicTarget {
    pub(super) address: u64,
    pub(super) compare_add: u64,
    pub(super) swap: u64,
    pub(super) rkey: u32,
}

/// The union `wr` of `struct ibv_send_wr`.
#[repr(C)]
pub(super) union RemoteTarget {
    pub(super) rdma: RdmaTarget,
    pub(super) atomic: AtomicTarget,
}

/// `struct ibv_send_wr` of infiniband/verbs.h.
#[repr(C)]
pub(super) struct SendRequest {
    pub(super) wr_id: u64,
    pub(super) next: *const SendRequest,
    pub(super) sg_list: *const Sge,
    pub(super) num_sge: c_int,
    pub(super) operation: u32,
    pub(super) flags: u32,
    /// Immediate data in network byte order.
    pub(super) immediate: u32,
    pub(super) target: RemoteTarget,
    pub(super) unused: [u64; 7],
}

/// Operations of `enum ibv_wr_opcode`.
pub(super) mod operation {
    pub(in crate::verbs) const WRITE: u32 = 0;
    pub(in crate::verbs) const WRITE_WITH_IMMEDIATE: u32 = 1;
    pub(in crate::verbs) const FETCH_AND_ADD: u32 = 6;
}

/// `struct ibv_recv_wr` of infiniband/verbs.h.
#[repr(C)]
pub(super) struct ReceiveRequest {
    pub(super) wr_id: u64,
    pub(super) next: *const ReceiveRequest,
    pub(super) sg_list: *const Sge,
    pub(super) num_sge: c_int,
}

/// `struct ibv_wc` of infiniband/verbs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Completion {
    pub(super) wr_id: u64,
    pub(super) status: u32,
    operation: u32,
    vendor: u32,
    pub(super) len: u32,
    /// Immediate data in network byte order.
    pub(super) immediate: u32,
    pair: u32,
    source_pair: u32,
    pub(super) flags: u32,
    pkey_index: u16,
    lid: u16,
    service_level: u8,
    path_bits: u8,
}

// `offsetof` and `sizeof` on 64-bit machines, from rdma-core 44.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Context, poll_cq) == 96);
    assert!(offset_of!(Context, post_send) == 208 && offset_of!(Context, post_recv) == 216);
    assert!(offset_of!(MemoryRegion, lkey) == 36 && offset_of!(MemoryRegion, rkey) == 40);
    assert!(offset_of!(QueuePair, number) == 52);
    assert!(offset_of!(GidEntry, kind) == 24 && size_of::<GidEntry>() == 32);
    assert!(offset_of!(DeviceAttributes, ports) == 227 && size_of::<DeviceAttributes>() >= 232);
    assert!(offset_of!(PortAttributes, active_mtu) == 8 && offset_of!(PortAttributes, gids) == 12);
    assert!(size_of::<PortAttributes>() >= 52);
    assert!(offset_of!(QueuePairInit, capacity) == 32 && offset_of!(QueuePairInit, kind) == 52);
    assert!(size_of::<QueuePairInit>() == 64);
    assert!(offset_of!(QueuePairAttributes, rq_psn) == 20 && offset_of!(QueuePairAttributes, access) == 32);
    assert!(
        offset_of!(QueuePairAttributes, address_vector) == 56
            && offset_of!(QueuePairAttributes, alternate_address_vector) == 88
    );
    assert!(
        offset_of!(AddressVector, source_index) == 20
            && offset_of!(AddressVector, is_global) == 29
            && offset_of!(AddressVector, port) == 30
    );
    assert!(
        offset_of!(QueuePairAttributes, max_rd_atomic) == 126 && offset_of!(QueuePairAttributes, port) == 129
    );
    assert!(offset_of!(QueuePairAttributes, rnr_retry) == 132 && size_of::<QueuePairAttributes>() == 144);
    assert!(offset_of!(SendRequest, immediate) == 36 && offset_of!(SendRequest, target) == 40);
    assert!(
        offset_of!(RdmaTarget, rkey) == 8
            && offset_of!(AtomicTarget, compare_add) == 8
            && offset_of!(AtomicTarget, rkey) == 24
    );
    assert!(size_of::<SendRequest>() == 128 && size_of::<ReceiveRequest>() == 32 && size_of::<Sge>() == 16);
    assert!(offset_of!(Completion, len) == 20 && offset_of!(Completion, immediate) == 24);
    assert!(offset_of!(Completion, flags) == 36 && size_of::<Completion>() == 48);
};

macro_rules! library {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// Functions loaded from libibverbs.
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        impl Library {
            fn load() -> Result<Self, String> {
                // SAFETY: the names end with 0; the library is never unloaded, so its functions stay valid.
                let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
                if handle.is_null() {
                    return Err(loader_error());
                }
                $(
                    // SAFETY: the handle is the library's, and the name ends with 0.
                    let $name = unsafe { libc::dlsym(handle, concat!(stringify!($name), "\0").as_ptr().cast()) };
                    if $name.is_null() {
                        return Err(loader_error());
                    }
                )+
                // SAFETY: `<infiniband/verbs.h>` declares the functions with these types.
                Ok(Self { $($name: unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>($name) },)+ })
            }
        }
    };
}

library! {
    ibv_get_device_list(*mut c_int) -> *mut *mut Device;
    ibv_free_device_list(*mut *mut Device);
    ibv_open_device(*mut Device) -> *mut Context;
    ibv_close_device(*mut Context) -> c_int;
    ibv_query_device(*mut Context, *mut DeviceAttributes) -> c_int;
    ibv_query_port(*mut Context, u8, *mut PortAttributes) -> c_int;
    _ibv_query_gid_ex(*mut Context, u32, u32, *mut GidEntry, u32, usize) -> c_int;
    ibv_alloc_pd(*mut Context) -> *mut Domain;
    ibv_dealloc_pd(*mut Domain) -> c_int;
    ibv_reg_mr(*mut Domain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    ibv_dereg_mr(*mut MemoryRegion) -> c_int;
    ibv_create_cq(*mut Context, c_int, *mut c_void, *mut c_void, c_int) -> *mut CompletionQueue;
    ibv_destroy_cq(*mut CompletionQueue) -> c_int;
    ibv_create_qp(*mut Domain, *mut QueuePairInit) -> *mut QueuePair;
    ibv_destroy_qp(*mut QueuePair) -> c_int;
    ibv_modify_qp(*mut QueuePair, *mut QueuePairAttributes, c_int) -> c_int;
    ibv_wc_status_str(u32) -> *const c_char;
}

impl std::fmt::Debug for Library {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("libibverbs")
    }
}

/// Returns the loader's error message.
fn loader_error() -> String {
    // SAFETY: no arguments; the text belongs to this thread until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be loaded".to_owned();
    }
    // SAFETY: as above; it ends with 0.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns the library, loading it at the first call.
///
/// # Errors
/// Returns the loader's message if it cannot be loaded.
pub(super) fn library() -> Result<&'static Library, &'static str> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY
        .get_or_init(Library::load)
        .as_ref()
        .map_err(String::as_str)
}
