//! Memory that several deliveries share: how large their batches may be, so that all they hold stays within a bound.

/// What a delivery holds at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Bytes of a batch, as it would have them.
    pub batch: usize,
    /// How many batches it holds in all forms: records, a page that is read, requests.
    pub forms: usize,
    /// Bytes that it holds whatever its batches are.
    pub fixed: usize,
}

/// The least bytes of a batch.
pub const LEAST: usize = 64 << 10;

impl Claim {
    /// Bytes that it holds with a batch of this size.
    pub fn bytes(&self, batch: usize) -> usize {
        self.fixed.saturating_add(self.forms.saturating_mul(batch))
    }
}

/// The bytes of a batch of each, so that all together hold at most `memory`: as each would have them; if that is too much, what is above
/// [`LEAST`] is cut by the same part for all.
///
/// # Errors
/// Not even the least batches fit: the bytes that they need.
pub fn share(memory: usize, claims: &[Claim]) -> Result<Vec<usize>, usize> {
    let sum = |of: &dyn Fn(&Claim) -> usize| claims.iter().map(of).fold(0, usize::saturating_add);
    let least = sum(&|claim| claim.bytes(claim.batch.min(LEAST)));
    let rest = memory.checked_sub(least).ok_or(least)?;
    let wanted = sum(&|claim| claim.forms.saturating_mul(claim.batch.saturating_sub(LEAST)));
    let one = |claim: &Claim| {
        let above = claim.batch.saturating_sub(LEAST);
        let above = if wanted <= rest {
            above
        } else {
            (above as u128 * rest as u128 / wanted as u128) as usize
        };
        claim.batch.min(LEAST) + above
    };
    Ok(claims.iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::rng::Rng;

    #[test]
    fn what_fits_is_given_and_what_does_not_is_cut_by_the_same_part() {
        let claim = |batch| Claim {
            batch,
            forms: 5,
            fixed: 1 << 20,
        };
        let claims = [claim(8 << 20), claim(16 << 20)];
        assert_eq!(share(256 << 20, &claims), Ok(vec![8 << 20, 16 << 20]));
        let cut = share(62 << 20, &claims).unwrap();
        assert!(
            cut[0] < 5 << 20 && cut[1] < 9 << 20 && cut[1] > 7 << 20,
            "{cut:?}"
        );
        assert_eq!(share(2 << 20, &claims), Err((2 << 20) + 10 * LEAST));
        assert_eq!(share(0, &[]), Ok(Vec::new()));
    }

    #[test]
    fn shares_never_exceed_the_memory_and_leave_nothing_that_would_be_used() {
        for seed in 0..5_000 {
            let mut rng = Rng(seed);
            let claims: Vec<Claim> = (0..1 + rng.below(20))
                .map(|_| Claim {
                    batch: LEAST + rng.below(256 << 20),
                    forms: 1 + rng.below(12),
                    fixed: rng.below(16 << 20),
                })
                .collect();
            let memory = rng.below(1 << 30);
            let Ok(batches) = share(memory, &claims) else {
                assert!(claims.iter().map(|claim| claim.bytes(LEAST)).sum::<usize>() > memory);
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
            let rounded: usize = claims.iter().map(|claim| claim.forms).sum();
            assert!(is_whole || held + rounded >= memory, "{seed}: {held} of {memory}");
            assert!(batches.iter().all(|batch| *batch >= LEAST));
        }
    }
}
