//! Clocks, precise waits, and CPU affinity.

use std::io;
use std::time::Duration;

use crate::error::Error;
use crate::sys;

/// Returns the wall clock time, ns since the Unix epoch. It jumps when the clock is set.
pub fn now() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// Returns the time of the monotonic clock in ns, for intervals.
pub fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the CPU time of this process, user and system, including ended threads.
pub fn process_cpu_time() -> Duration {
    Duration::from_nanos(read(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// Returns the CPU time of the calling thread, user and system.
pub fn thread_cpu_time() -> Duration {
    Duration::from_nanos(read(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Sleeps for about `duration`, plus the thread's timer slack (50 us unless changed).
pub(crate) fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// Sets the calling thread's timer slack to the minimum (1 ns), so that its waits do not end up to 50 us late.
pub fn wake_precisely() {
    // SAFETY: no pointers. One nanosecond is the minimum, so it cannot fail.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Binds the calling thread to one CPU core, numbered from 0 as in `/proc/cpuinfo`.
///
/// # Errors
/// There is no such core, or this process may not use it.
pub fn pin(core: usize) -> Result<(), Error> {
    set_affinity(core).map_err(Error::failed("sched_setaffinity", format_args!("core {core}")))
}

fn set_affinity(core: usize) -> io::Result<()> {
    if core >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a `cpu_set_t` is an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `core` is less than CPU_SETSIZE, the bits in the set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the kernel reads `size_of_val(&set)` bytes from `set`, which lives through the call.
    sys::check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) }).map(drop)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec, to valid memory; these clocks exist on every Linux, so it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    nanoseconds(at.tv_sec, at.tv_nsec)
}

/// Converts a `timespec` to ns; 0 for times before the epoch.
pub(crate) fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let whole = u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000);
    whole.saturating_add(u64::try_from(nanoseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run() {
        let (start, wall) = (monotonic(), now());
        assert!(wall > 1_700_000_000_000_000_000, "later than 2023");
        assert!(monotonic() >= start);
        assert_eq!(nanoseconds(2, 3), 2_000_000_003);
        assert_eq!(nanoseconds(-1, 3), 3);
    }

    #[test]
    fn a_thread_can_be_pinned_and_only_to_a_core_that_exists() {
        std::thread::spawn(|| {
            pin(0).unwrap();
            let refused = pin(100_000).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "sched_setaffinity core 100000: Invalid argument (os error 22)"
            );
            assert!(pin(1023).is_err());
        })
        .join()
        .unwrap();
    }
}
