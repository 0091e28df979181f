//! Retries for resources that a test opens again after closing them: a port, a lock, an interface's queue, a file system.
//!
//! A child process that another test starts holds copies of all descriptors of this process until its `exec` has closed them,
//! which can take long on a busy machine. A lock around the starting of processes does not prevent this, nor does `vfork`: the
//! kernel lets the parent continue before it closes the copies. So a test that reopens a resource must retry.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Longest time to wait for a child process to reach `exec`.
const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats `open` until it succeeds, for at most a minute: by then no starting process holds a copy.
///
/// # Errors
/// The last error of `open`.
pub fn open_again<T, E>(mut open: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let end = Instant::now() + PATIENCE;
    loop {
        match open() {
            Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        process::{Command, Stdio},
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::open_again;

    /// A lock ends when the last copy of its file is closed.
    #[test]
    fn a_lock_is_taken_again_while_processes_are_started() {
        let path = std::env::temp_dir().join(format!("hopwise-descriptors-{}", std::process::id()));
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        let mut command = Command::new("true");
                        assert!(command.stdin(Stdio::null()).status().unwrap().success());
                    }
                });
            }
            let failed = (0..500).filter(|_| {
                let held = open_again(|| {
                    let file = File::create(&path).unwrap();
                    file.try_lock().map(|()| file)
                });
                thread::yield_now();
                held.is_err()
            });
            let failed = failed.count();
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(failed, 0);
        });
        std::fs::remove_file(path).unwrap();
    }
}
