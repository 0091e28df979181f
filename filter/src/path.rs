//! Path patterns such as `101>*>103`, which a filter matches against the nodes of a flow's path.

/// Maximum number of steps in a pattern.
pub(crate) const MAX_STEPS: usize = 64;

/// A part of a path pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Node(u32),
    /// Any one node, even one with an unknown ID.
    One,
    /// Any number of nodes, including none.
    Any,
}

/// A pattern of consecutive steps that may match anywhere in a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pattern {
    steps: Vec<Step>,
}

impl Pattern {
    /// Creates a pattern. It matches anywhere in a path, so `*` at either end has no effect and is removed.
    pub(crate) fn new(mut steps: Vec<Step>) -> Self {
        steps.dedup_by(|one, other| *one == Step::Any && *other == Step::Any);
        let first = steps
            .iter()
            .position(|step| *step != Step::Any)
            .unwrap_or(steps.len());
        steps.drain(..first);
        while steps.last() == Some(&Step::Any) {
            steps.pop();
        }
        Self { steps }
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns whether the path contains the pattern. Each part between two `*` takes its first match; a later match would
    /// leave less of the path for the following parts.
    pub(crate) fn is_in(&self, path: &[u32]) -> bool {
        let mut rest = path;
        for part in self.steps.split(|step| *step == Step::Any) {
            if part.is_empty() {
                continue;
            }
            let Some(at) = rest.windows(part.len()).position(|nodes| fits(part, nodes)) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

fn fits(part: &[Step], nodes: &[u32]) -> bool {
    nodes
        .iter()
        .zip(part)
        .all(|(node, step)| *step == Step::One || *step == Step::Node(*node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_found_anywhere_in_a_path() {
        use Step::{Any, Node, One};
        let path = [101, 201, 301, 202, u32::MAX, 103];
        for (steps, expected) in [
            (vec![Node(101)], true),
            (vec![Node(103), Any], true),
            (vec![Node(101), Any, Node(103)], true),
            (vec![Node(103), Any, Node(101)], false),
            (vec![Node(101), Node(201), Node(301)], true),
            (vec![Node(101), Node(301)], false),
            (vec![Node(101), One, Node(301)], true),
            (vec![Node(202), One, Node(103)], true),
            (vec![Node(101), Any, Any, Node(201)], true),
            (vec![Node(201), Any, Node(301), Any, Node(202)], true),
            (vec![One, One, One, One, One, One], true),
            (vec![One, One, One, One, One, One, One], false),
            (vec![Any], true),
            (vec![Node(7)], false),
        ] {
            assert_eq!(Pattern::new(steps.clone()).is_in(&path), expected, "{steps:?}");
        }
        assert!(!Pattern::new(vec![Node(1)]).is_in(&[]));
    }
}
