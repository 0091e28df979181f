//! Descriptors that a test opens again after it has closed them: a port, a lock, the queue of an interface, a file system.
//!
//! A process that another test starts holds copies of all descriptors of this one from its creation to the middle of its `exec`, which
//! can take long on a busy machine. Neither a lock around starting processes nor `vfork` prevents that: the kernel lets the parent go
//! on before it closes the copies. So whoever opens something again repeats it.

use std::{
    thread,
    time::{Duration, Instant},
};

/// The longest time from the creation of a process to the start of its program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats `open` until it succeeds. After a minute it returns the last error: then the copy is not of a process that is being started.
///
/// # Errors
/// Those of `open`.
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
