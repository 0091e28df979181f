//! Filters of flows and events: a condition in one language, the same in the UI, the API and the commands.
//!
//! ```text
//! src in 10.0.1.0/24 and queue_occupancy > 50 and not path ~ 101>*>103
//! ```
//!
//! A test is a field, an operator and one value, or several in parentheses; `and`, `or`, `not` and parentheses combine them. What is only a
//! word, an address or a text in quotes is searched in the text of the flow. [`Field`] lists the fields.
//!
//! A field that a row lacks is *unknown*: a test of it is neither true nor false, not even under `not`, as in [rules](detect::rule). Only
//! rows of which the whole is true are shown.
//!
//! A filter is compared with rows here ([`Filter::matches`]), or written as a condition of ClickHouse ([`Filter::to_clickhouse`]), which
//! says the same. Texts come from outside: their length, depth and number of tests are bounded, and errors have a position.
//!
//! # Example
//! ```
//! use filter::{Facts, Filter, View, no_names};
//! use wire::FlowKey;
//!
//! let filter = Filter::parse("src in 10.0.1.0/24 and port == 443 and path ~ 101>*>103", View::Flows, &no_names)?;
//! let flow: FlowKey = "10.0.1.7:5000>10.9.0.1:443/6".parse().unwrap();
//! let facts = Facts { flow: Some(&flow), path: &[101, 201, 103], ..Facts::default() };
//! assert!(filter.matches(&facts));
//! assert!(!filter.matches(&Facts { path: &[101, 201], ..facts }));
//! # Ok::<(), filter::Fault>(())
//! ```
#![forbid(unsafe_code)]

mod clickhouse;
mod complete;
mod fault;
mod field;
mod lexer;
mod parser;
mod path;
mod test;

pub use clickhouse::HAS_PORTS;
pub use complete::{Completion, complete};
pub use fault::Fault;
pub use field::{Field, View};
pub use test::{Facts, Required};

use test::Expression;

/// A condition that selects rows of a view.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter {
    root: Expression,
}

impl Filter {
    /// Reads a filter of rows of this view. `names` gives the id of a node that is written by its name. A text of blanks is true of each row.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(text: &str, view: View, names: &dyn Fn(&str) -> Option<u32>) -> Result<Self, Fault> {
        parser::parse(text, view, names).map(|root| Self { root })
    }

    /// Returns whether the row is shown.
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        self.root.truth(facts) == Some(true)
    }

    /// Returns whether the row is not shown, whatever the fields that it lacks may be.
    pub fn excludes(&self, facts: &Facts<'_>) -> bool {
        self.root.truth(facts) == Some(false)
    }

    /// Returns whether a test is about the path, or about values of nodes.
    pub fn asks_nodes(&self) -> bool {
        self.root.asks_nodes()
    }

    /// Returns the fields that the filter tests, each once.
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        self.root.fields(&mut fields);
        fields
    }

    /// Returns the values of this metric at which the result may change, ascending; between two of them it is
    /// the same.
    pub fn bounds(&self, metric: detect::Metric) -> Vec<u64> {
        let mut bounds = Vec::new();
        self.root.bounds(Field::Value(metric), &mut bounds);
        bounds.sort_unstable();
        bounds.dedup();
        bounds
    }

    /// Returns the number of tests and values, which is the cost of a match.
    pub fn tests(&self) -> usize {
        self.root.tests()
    }

    /// Returns the properties that every matching row has, to look rows up in an index.
    pub fn required(&self) -> Required {
        self.root.required()
    }

    /// Renders the filter as a ClickHouse condition on the tables `events` and `flows`. `parameter` is given
    /// the type and the text of a value, and returns the placeholder by which the statement refers to it: no
    /// value is part of the text.
    pub fn to_clickhouse(&self, parameter: &mut dyn FnMut(&str, String) -> String) -> String {
        clickhouse::condition(&self.root, parameter)
    }
}

/// Returns `None` for every name, for [`Filter::parse`] where no node has a name.
pub fn no_names(_: &str) -> Option<u32> {
    None
}

/// Runs the fuzz body: any text is either refused at a position inside it or can be used, and each completion
/// can be inserted at its position.
///
/// # Panics
/// If that does not hold.
pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for view in View::ALL {
        match Filter::parse(&text, view, &no_names) {
            Err(fault) => {
                let covered = fault.position.checked_add(fault.length);
                assert!(
                    covered.is_some_and(|end| text.get(fault.position..end).is_some()),
                    "{fault:?}"
                );
            }
            Ok(filter) => {
                let _ = (filter.matches(&Facts::default()), filter.required());
                let mut values = 0;
                let written = filter.to_clickhouse(&mut |_, _| {
                    values += 1;
                    format!("{{p{values}:T}}")
                });
                assert_eq!(
                    written.matches('(').count(),
                    written.matches(')').count(),
                    "{written}"
                );
            }
        }
        for at in [0, text.len() / 2, text.len()].map(|at| text.floor_char_boundary(at)) {
            for Completion { from, .. } in complete(&text[..at], view, &["spine 1"]) {
                assert!(from <= at && text.is_char_boundary(from), "{from} of {at}");
            }
        }
    }
}
