//! Metrics of this process from `/proc`, under the names that all Prometheus client libraries use.

use std::fs;

use super::Text;

/// Clock ticks per second in `/proc` (USER_HZ), the same on all architectures.
const TICKS_PER_SECOND: f64 = 100.0;
/// Number of the first field after the program name.
const FIRST_FIELD: usize = 3;
/// Size of a memory page, bytes.
const PAGE_BYTES: f64 = 4096.0;

/// Writes the process metrics; values that the system does not provide are omitted.
pub(super) fn write_process(text: &mut Text) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let system_stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let stat = Stat::parse(&stat);
    let files = fs::read_dir("/proc/self/fd").map(|files| files.count() as f64);
    let boot_time = system_stat
        .lines()
        .find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
    metrics!(text [for stat in &stat] [] {
        "process_cpu_seconds_total" => stat.cpu_seconds, "CPU time, user and system, seconds.";
    });
    metrics!(text [for files in files] [] { "process_open_fds" => files, "Open file descriptors."; });
    metrics!(text [for limit in limit(&limits, "Max open files")] [] {
        "process_max_fds" => limit, "Limit on open file descriptors.";
    });
    metrics!(text [for stat in &stat] [] {
        "process_virtual_memory_bytes" => stat.virtual_bytes, "Virtual memory, bytes.";
        "process_resident_memory_bytes" => stat.resident_bytes, "Resident memory, bytes.";
    });
    metrics!(text [for stat in &stat; for boot_time in boot_time] [] {
        "process_start_time_seconds" => boot_time + stat.start_seconds, "Start of the process, Unix time.";
    });
    metrics!(text [for stat in &stat] [] { "process_threads" => stat.threads, "Threads."; });
}

/// Values from `/proc/self/stat` (proc(5)).
#[derive(PartialEq, Debug)]
struct Stat {
    cpu_seconds: f64,
    threads: f64,
    /// Start of the process, seconds after boot.
    start_seconds: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The program name in parentheses may contain parentheses and spaces: parse after the last one. Fields count from 1.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<f64> = rest
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        Some(Self {
            cpu_seconds: (*fields.get(14 - FIRST_FIELD)? + *fields.get(15 - FIRST_FIELD)?) / TICKS_PER_SECOND,
            threads: *fields.get(20 - FIRST_FIELD)?,
            start_seconds: *fields.get(22 - FIRST_FIELD)? / TICKS_PER_SECOND,
            virtual_bytes: *fields.get(23 - FIRST_FIELD)?,
            resident_bytes: *fields.get(24 - FIRST_FIELD)? * PAGE_BYTES,
        })
    }
}

/// Returns the soft limit with this name; `None` if it is unlimited.
fn limit(limits: &str, name: &str) -> Option<f64> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_process_are_read() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 12345 1000000 300 18446744073709551615 1";
        let stat = Stat {
            cpu_seconds: 3.0,
            threads: 9.0,
            start_seconds: 123.45,
            virtual_bytes: 1e6,
            resident_bytes: 300.0 * PAGE_BYTES,
        };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse(""), None);
        let limits = "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 524288               files\n";
        assert_eq!(limit(limits, "Max open files"), Some(1024.0));
    }
}
