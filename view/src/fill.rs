//! Pages of response rows, bounded in number and in bytes of JSON.

use std::io;

use serde::Serialize;

/// Collects at most `limit` rows and about `max_bytes` of JSON, but at least one row. Also returns true if there are more rows.
pub fn fill<T: Serialize>(rows: impl Iterator<Item = T>, limit: usize, max_bytes: usize) -> (Vec<T>, bool) {
    let mut page = Vec::new();
    let mut bytes = 0;
    for row in rows {
        bytes += size(&row);
        if page.len() == limit || (bytes > max_bytes && !page.is_empty()) {
            return (page, true);
        }
        page.push(row);
    }
    (page, false)
}

/// Returns the length of a row as JSON with a separator, bytes.
fn size(row: &impl Serialize) -> usize {
    let mut counter = Counter(0);
    // Neither the counter nor the response types can fail.
    let _ = serde_json::to_writer(&mut counter, row);
    counter.0 + 1
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_with_its_rows_or_its_bytes() {
        assert_eq!(fill(0..3, 3, 100), (vec![0, 1, 2], false));
        assert_eq!(fill(0..4, 3, 100), (vec![0, 1, 2], true));
        // Each row has ten digits, and something between it and the next.
        assert_eq!(fill([1_000_000_000_u64; 5].into_iter(), 10, 33).0.len(), 3);
        assert_eq!(fill(["long"; 2].into_iter(), 10, 1), (vec!["long"], true));
    }
}
