/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The part of the kernel's interface that these programs use, so that no headers are needed to build them. All of it is
* stable ABI: numbers of helpers, map types and verdicts, and the layout of struct xdp_md (Linux, uapi/linux/bpf.h).
 */
#ifndef HOPWISE_BPF_H
#define HOPWISE_BPF_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef signed short s16;
typedef signed int s32;
typedef signed long long s64;

#define SEC(name) __attribute__((section(name), used))
#define inline_always inline __attribute__((always_inline))
#define noinline __attribute__((noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Definition of a map by BTF. */
#define MAP_UINT(name, value) int(*name)[value]
#define MAP_TYPE(name, type) type *name

enum map_type {
    MAP_HASH = 1,
    MAP_ARRAY = 2,
    MAP_PROG_ARRAY = 3,
    MAP_PERCPU_ARRAY = 6,
    MAP_LRU_HASH = 9,
    MAP_LPM_TRIE = 11,
    MAP_XSKMAP = 17,
    MAP_RINGBUF = 27,
};

enum map_flags {
    MAP_NO_PREALLOC = 1,
    MAP_MMAPABLE = 1 << 10,
};

enum update_flags { UPDATE_ANY, UPDATE_NOEXIST, UPDATE_EXIST };
enum ring_flags { RING_NO_WAKEUP = 1, RING_FORCE_WAKEUP = 2 };
enum ring_query { RING_AVAIL_DATA = 0, RING_SIZE = 1 };

enum xdp_action { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

struct xdp_md {
    u32 data;
    u32 data_end;
    u32 data_meta;
    u32 ingress_ifindex;
    u32 rx_queue_index;
    u32 egress_ifindex;
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const ktime_ns)(void) = (void *)5;
static u32 (*const prandom)(void) = (void *)7;
static u32 (*const cpu_id)(void) = (void *)8;
static long (*const tail_call)(struct xdp_md *frame, void *programs, u32 index) = (void *)12;
static long (*const redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*const adjust_meta)(struct xdp_md *frame, int delta) = (void *)54;
static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*const adjust_tail)(struct xdp_md *frame, int delta) = (void *)65;
static long (*const ring_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static void *(*const ring_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const ring_submit)(void *record, u64 flags) = (void *)132;
static void (*const ring_discard)(void *record, u64 flags) = (void *)133;
static u64 (*const ring_query)(void *ring, u64 flags) = (void *)134;
static long (*const bpf_loop)(u32 count, void *callback, void *context, u64 flags) = (void *)181;
static u64 (*const xdp_length)(struct xdp_md *frame) = (void *)188;
static long (*const xdp_load)(struct xdp_md *frame, u32 offset, void *to, u32 len) = (void *)189;
static long (*const xdp_store)(struct xdp_md *frame, u32 offset, const void *from, u32 len) = (void *)190;

static inline_always u16 from_be16(u16 value) { return __builtin_bswap16(value); }
static inline_always u32 from_be32(u32 value) { return __builtin_bswap32(value); }
static inline_always u64 from_be64(u64 value) { return __builtin_bswap64(value); }

#define LICENSE char _license[] SEC("license") = "Dual MIT/GPL"

#endif
