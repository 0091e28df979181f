/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* One lock over all CPUs. A CPU holds it while it passes a datagram to user space and stores the values reported: a copy of a few
 * hundred bytes.
 *
 * Without the lock, two CPUs could write their records to the ring in one order and the values reported in the other. The values
 * stored here would then differ from those the collector reported last, and the program could suppress a value that the collector
 * would have reported. The kernel's own spin locks cannot be held across a call to the ring. Datagrams without a change do not
 * need the lock.
 */
#ifndef HOPWISE_LOCK_H
#define HOPWISE_LOCK_H

#include "bpf.h"

static struct {
    u32 locked;
    u32 pad[15];
} lock __attribute__((aligned(64)));

/* Attempts to take the lock, at most: some milliseconds. Interrupts may delay its holder. */
#define MAX_LOCK_ATTEMPTS (1 << 20)

static long try_lock(u32 i, u32 *locked)
{
    (void)i;
    if (*(volatile u32 *)&lock.locked)
        return 0;
    *locked = __sync_val_compare_and_swap(&lock.locked, 0, 1) == 0;
    return *locked;
}

/* 1: the lock is taken. */
static inline_always u32 lock_acquire(void)
{
    u32 locked = 0;

    if (__sync_val_compare_and_swap(&lock.locked, 0, 1) == 0)
        return 1;
    bpf_loop(MAX_LOCK_ATTEMPTS, try_lock, &locked, 0);
    return locked;
}

/* The exchange orders all earlier stores before it, on every architecture. */
static inline_always void lock_release(void) { __sync_lock_test_and_set(&lock.locked, 0); }

#endif
