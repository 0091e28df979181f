//! The filter language for flows and events, shared by the web UI, the API and the commands.
//!
//! ```text
//! src in 10.0.1.0/24 and queue_occupancy > 50 and not path ~ 101>*>103
//! ```
//!
//! A test is a field, an operator, and a value or a list of values in parentheses. `and`, `or`, `not` and parentheses
//! combine tests. A single word, address or quoted text is searched in the text of the flow. [`Field`] lists the fields.
//!
//! A test of a field that a row lacks is *unknown*, neither true nor false, even under `not` (three-valued logic, as in
//! [rules](detect::rule)). A filter selects the rows for which it is true.
//!
//! A filter can be evaluated on rows ([`Filter::matches`]) or translated to an equivalent ClickHouse condition
//! ([`Filter::to_clickhouse`]). Filters come from users: length, nesting and number of tests are bounded, and errors have a
//! position.
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
mod names;
mod parser;
mod path;
mod test;

pub use clickhouse::HAS_PORTS;
pub use complete::{Completion, complete};
pub use fault::Fault;
pub use field::{Field, View};
pub use names::{Names, codes_of, no_names};
pub use test::{Facts, Required};

use test::Expression;

/// A parsed condition that selects rows of a view.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter {
    root: Expression,
}

impl Filter {
    /// Parses a filter for rows of this view. `names` resolves names of nodes and of drop reasons. A blank filter matches
    /// every row.
    ///
    /// # Errors
    /// The first error in the text.
    pub fn parse(text: &str, view: View, names: &dyn Names) -> Result<Self, Fault> {
        parser::parse(text, view, names).map(|root| Self { root })
    }

    /// Returns whether the filter selects the row.
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        self.root.truth(facts) == Some(true)
    }

    /// Returns whether the filter is false for the row, whatever values its missing fields may have.
    pub fn excludes(&self, facts: &Facts<'_>) -> bool {
        self.root.truth(facts) == Some(false)
    }

    /// Returns whether the filter tests the path or values of nodes.
    pub fn asks_nodes(&self) -> bool {
        self.root.asks_nodes()
    }

    /// Returns the fields that the filter tests, without duplicates.
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        self.root.fields(&mut fields);
        fields
    }

    /// Returns, in ascending order, the values of this metric at which the result can change. Between two of them it is
    /// constant.
    pub fn bounds(&self, metric: detect::Metric) -> Vec<u64> {
        let mut bounds = Vec::new();
        self.root.bounds(Field::Value(metric), &mut bounds);
        bounds.sort_unstable();
        bounds.dedup();
        bounds
    }

    /// Returns the number of tests and values, which determines the cost of evaluating the filter.
    pub fn tests(&self) -> usize {
        self.root.tests()
    }

    /// Returns the properties that every matching row has, for index lookups.
    pub fn required(&self) -> Required {
        self.root.required()
    }

    /// Translates the filter to a ClickHouse condition on the tables `events` and `flows`. `parameter` gets the type and
    /// text of a value and returns its placeholder, so no value appears in the statement's text.
    pub fn to_clickhouse(&self, parameter: &mut dyn FnMut(&str, String) -> String) -> String {
        clickhouse::condition(&self.root, parameter)
    }
}

/// Fuzz entry point: any text is either rejected with a position inside it or usable, and every completion fits its
/// position.
///
/// # Panics
/// If one of these properties is violated.
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
            for Completion { from, .. } in complete(&text[..at], view, &["spine 1"], &["link_down"]) {
                assert!(from <= at && text.is_char_boundary(from), "{from} of {at}");
            }
        }
    }
}
