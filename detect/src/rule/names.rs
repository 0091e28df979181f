//! Suggestions for misspelled names in rules and filters, by edit distance.

/// Maximum length of a word that can be a misspelled name, bytes.
const MAX_BYTES: usize = 40;

/// Returns the known name closest to `written`, or `None` if more than a third of its letters differ.
pub(crate) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if written.len() > MAX_BYTES {
        return None;
    }
    known
        .map(|name| (distance(&written.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= (name.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns the edit distance from `a` to `b`: the number of letters to insert, delete, replace or swap with their neighbor.
/// Takes time proportional to the product of the lengths.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = above;
        above = row;
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_slips() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("hops", "hops", 0),
            ("hosp", "hops", 1),
            ("hop", "hops", 1),
            ("ab", "cd", 2),
        ];
        for (a, b, expected) in cases {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn nearest_gives_slips_and_nothing_else() {
        let near = |written| nearest(written, ["queue_occupancy", "hops", "us", "ms"].into_iter());
        assert_eq!(near("queue_ocupancy"), Some("queue_occupancy"));
        assert_eq!(near("Hops"), Some("hops"));
        assert_eq!(near("u"), Some("us"));
        assert_eq!(near("bananas"), None);
        assert_eq!(near(&"q".repeat(10_000)), None);
    }
}
