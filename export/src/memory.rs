//! Divides a memory budget among deliveries by scaling their batch sizes.

/// The smallest size of a batch, bytes.
pub const MIN_BATCH: usize = 64 << 10;

/// Memory needs of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The configured size of a batch, bytes.
    pub batch: usize,
    /// Number of copies of a batch in memory at once: records, the next page, encoded requests.
    pub copies: usize,
    /// Memory independent of the batch size, bytes.
    pub fixed: usize,
}

impl Claim {
    /// Returns the memory needed with batches of this size, bytes.
    pub fn bytes(&self, batch: usize) -> usize {
        self.fixed.saturating_add(self.copies.saturating_mul(batch))
    }
}

/// Returns the batch size of each delivery, so that together they use at most `memory` bytes. If the configured sizes do not
/// fit, the part above [`MIN_BATCH`] is scaled down by the same factor for all.
///
/// # Errors
/// Not even the smallest batches fit; the error is the number of bytes that they need.
pub fn share(memory: usize, claims: &[Claim]) -> Result<Vec<usize>, usize> {
    let mut minimum = 0_usize;
    let mut scalable = 0_usize;
    for claim in claims {
        minimum = minimum.saturating_add(claim.bytes(claim.batch.min(MIN_BATCH)));
        let above = claim.batch.saturating_sub(MIN_BATCH);
        scalable = scalable.saturating_add(claim.copies.saturating_mul(above));
    }
    let available = memory.checked_sub(minimum).ok_or(minimum)?;
    let mut batches = Vec::with_capacity(claims.len());
    for claim in claims {
        let mut above = claim.batch.saturating_sub(MIN_BATCH);
        if scalable > available {
            above = (above as u128 * available as u128 / scalable as u128) as usize;
        }
        batches.push(claim.batch.min(MIN_BATCH) + above);
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::rng::Rng;

    #[test]
    fn what_fits_is_given_and_what_does_not_is_cut_by_the_same_part() {
        let claim = |batch| Claim {
            batch,
            copies: 5,
            fixed: 1 << 20,
        };
        let claims = [claim(8 << 20), claim(16 << 20)];
        assert_eq!(share(256 << 20, &claims), Ok(vec![8 << 20, 16 << 20]));
        let cut = share(62 << 20, &claims).unwrap();
        assert!(
            cut[0] < 5 << 20 && cut[1] < 9 << 20 && cut[1] > 7 << 20,
            "{cut:?}"
        );
        assert_eq!(share(2 << 20, &claims), Err((2 << 20) + 10 * MIN_BATCH));
        assert_eq!(share(0, &[]), Ok(Vec::new()));
    }

    #[test]
    fn shares_never_exceed_the_memory_and_leave_nothing_that_would_be_used() {
        for seed in 0..5_000 {
            let mut rng = Rng(seed);
            let claims: Vec<Claim> = (0..1 + rng.below(20))
                .map(|_| Claim {
                    batch: MIN_BATCH + rng.below(256 << 20),
                    copies: 1 + rng.below(12),
                    fixed: rng.below(16 << 20),
                })
                .collect();
            let memory = rng.below(1 << 30);
            let Ok(batches) = share(memory, &claims) else {
                assert!(claims.iter().map(|claim| claim.bytes(MIN_BATCH)).sum::<usize>() > memory);
                continue;
            };
            let held: usize = claims
                .iter()
                .zip(&batches)
                .map(|(claim, batch)| claim.bytes(*batch))
                .sum();
            assert!(held <= memory, "{seed}: {held} of {memory}");
            let is_whole = claims
                .iter()
                .zip(&batches)
                .all(|(claim, batch)| claim.batch == *batch);
            let rounded: usize = claims.iter().map(|claim| claim.copies).sum();
            assert!(is_whole || held + rounded >= memory, "{seed}: {held} of {memory}");
            assert!(batches.iter().all(|batch| *batch >= MIN_BATCH));
        }
    }
}
