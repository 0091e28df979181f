/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* One lock over all CPUs, held while a datagram is reported and what was reported is stored: a copy of a few hundred bytes.
 *
 * Without it two CPUs could put their records into the ring in one order and write what they reported in the other; what the
 * collector reported last would then not be what we think, and a later value could be suppressed that it would have reported. The
 * kernel's own spin locks cannot be held across a call to the ring. Datagrams without a change do not come here.
 */
#ifndef HOPWISE_LOCK_H
#define HOPWISE_LOCK_H

#include "bpf.h"

static struct {
    u32 held;
    u32 pad[15];
} lock __attribute__((aligned(64)));

/* Looks at the lock, at most; some milliseconds. Its holder runs with interrupts of its CPU, which may take a while. */
#define PATIENCE (1 << 20)

static long lock_try(u32 i, u32 *taken)
{
    (void)i;
    if (*(volatile u32 *)&lock.held)
        return 0;
    *taken = __sync_val_compare_and_swap(&lock.held, 0, 1) == 0;
    return *taken;
}

/* 1: taken. */
static inline_always u32 lock_take(void)
{
    u32 taken = 0;

    if (__sync_val_compare_and_swap(&lock.held, 0, 1) == 0)
        return 1;
    bpf_loop(PATIENCE, lock_try, &taken, 0);
    return taken;
}

/* An exchange orders what was written before it, on every machine. */
static inline_always void lock_give(void) { __sync_lock_test_and_set(&lock.held, 0); }

#endif
