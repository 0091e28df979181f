//! Names in responses: static strings where the program writes them, owned text where a command reads them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map},
    ops::Deref,
};

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A name out of a fixed set.
pub type Name = Cow<'static, str>;

/// Counts by name, for example drops by reason.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(transparent)]
pub struct NamedCounts(BTreeMap<Name, u64>);

impl NamedCounts {
    /// Adds to the count of `name`.
    pub fn add(&mut self, name: impl Into<Name>, count: u64) {
        *self.0.entry(name.into()).or_default() += count;
    }

    /// Collects the counts that are not zero.
    pub fn nonzero<N: Into<Name>>(counts: impl IntoIterator<Item = (N, u64)>) -> Self {
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

impl<N: Into<Name>> FromIterator<(N, u64)> for NamedCounts {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(counts: I) -> Self {
        Self(
            counts
                .into_iter()
                .map(|(name, count)| (name.into(), count))
                .collect(),
        )
    }
}

impl<N: Into<Name>, const LEN: usize> From<[(N, u64); LEN]> for NamedCounts {
    fn from(counts: [(N, u64); LEN]) -> Self {
        counts.into_iter().collect()
    }
}

impl Deref for NamedCounts {
    type Target = BTreeMap<Name, u64>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'a> IntoIterator for &'a NamedCounts {
    type Item = (&'a Name, &'a u64);
    type IntoIter = btree_map::Iter<'a, Name, u64>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl IntoIterator for NamedCounts {
    type Item = (Name, u64);
    type IntoIter = btree_map::IntoIter<Name, u64>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(feature = "schema")]
impl<const LEN: usize> PartialEq<[(&str, u64); LEN]> for NamedCounts {
    fn eq(&self, other: &[(&str, u64); LEN]) -> bool {
        self.0
            .iter()
            .map(|(name, count)| (name.as_ref(), *count))
            .eq(other.iter().copied())
    }
}
