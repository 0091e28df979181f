//! Rules of filters (the rule language) as table entries.
//!
//! A rule is encoded in conjunctive normal form. Each comparison is one entry in a separate table, with a bitmask of the
//! clauses that it satisfies. One more entry has the bitmask of the required clauses. All entries carry the filter's number,
//! which no other filter has as long as its entry exists. For example, `(a or b) and c` with the number 1 becomes
//!
//! | table | match | action |
//! | --- | --- | --- |
//! | 1st comparison | filter 1 | is `a` true: clauses 0b01 |
//! | 2nd comparison | filter 1 | is `b` true: clauses 0b01 |
//! | 3rd comparison | filter 1 | is `c` true: clauses 0b10 |
//! | required clauses | filter 1, clauses 0b11 all true | report |
//!
//! A number says nothing about the rule, whose text the device does not store. For display, the entries are rendered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use detect::table::Row as Comparison;
use detect::{RuleSet, Table};
use manager::device::{Rule, Rules};

use crate::entry::{Bytes, Content, Entry, Field, Key};
use crate::map::{RuleKind, Value, Variable};
use crate::program::{Form, Program, Template};
use crate::translate::{Entries, RuleValues, low_value};
use crate::variable::RESULTS;

impl Program {
    /// Returns the lowest number for filters by rule.
    pub(crate) fn first_rule_filter(&self) -> u8 {
        self.map.settings.rule_filters.first().copied().unwrap_or(0)
    }

    /// Encodes the rule of a filter with the lowest number, which [`Self::number_rules`] replaces.
    ///
    /// # Errors
    /// A sentence with a fix if the program cannot express the rule.
    pub(crate) fn encode_rule(&self, text: &str) -> Result<Vec<Entry>, String> {
        if let Some(problem) = self.capabilities().rules.problem(text) {
            return Err(format!("of the rule `{text}`: {problem}"));
        }
        let rules =
            RuleSet::compile(&[("rule".to_owned(), text.to_owned())]).map_err(|error| error.to_string())?;
        let table = Table::split(&rules).table;
        let number = self.first_rule_filter();
        let mut entries = Vec::new();
        let templates = self.templates(RuleKind::Term);
        for ((comparison, clauses), template) in table.comparisons().iter().zip(templates) {
            entries.push(self.entry(template, &RuleValues::Term(number, comparison, *clauses))?);
        }
        for template in self.templates(RuleKind::Clauses) {
            entries.push(self.entry(template, &RuleValues::Clauses(number, table.clauses[0]))?);
        }
        Ok(entries)
    }

    /// Assigns numbers to filters by rule. A filter keeps the number that it has on the device. Others get free ones,
    /// preferably numbers that no entry on the device has. Each element of `filters` holds the entries of one filter.
    ///
    /// # Errors
    /// A sentence if there are more filters than numbers.
    pub(crate) fn number_rules(&self, filters: &mut [Vec<Entry>], installed: &Entries) -> Result<(), String> {
        let [first, last] = *self.map.settings.rule_filters.as_slice() else {
            return Ok(());
        };
        let mut taken: BTreeSet<u128> = BTreeSet::new();
        let mut unnumbered = Vec::new();
        for (index, entries) in filters.iter_mut().enumerate() {
            if !entries.iter().any(|entry| self.number_of(entry).is_some()) {
                continue;
            }
            match self
                .number_in(entries, installed)
                .filter(|number| taken.insert(*number))
            {
                Some(number) => entries.iter_mut().for_each(|entry| self.renumber(entry, number)),
                None => unnumbered.push(index),
            }
        }
        let used: BTreeSet<u128> = installed
            .values()
            .filter_map(|entry| self.number_of(entry))
            .collect();
        for index in unnumbered {
            let mut free = (u128::from(first)..=u128::from(last)).filter(|number| !taken.contains(number));
            let first_free = free.clone().next();
            let number = free.find(|number| !used.contains(number)).or(first_free);
            let number = number.ok_or_else(|| {
                let room = last - first + 1;
                format!("the program has {room} filters by rule; use fewer intents with filter = \"rule\"")
            })?;
            taken.insert(number);
            filters[index]
                .iter_mut()
                .for_each(|entry| self.renumber(entry, number));
        }
        Ok(())
    }

    /// Returns the entries of a filter, renumbered to the number that it has on the device.
    pub(crate) fn as_numbered(&self, mut entries: Vec<Entry>, installed: &Entries) -> Vec<Entry> {
        if let Some(number) = self.number_in(&entries, installed) {
            entries.iter_mut().for_each(|entry| self.renumber(entry, number));
        }
        entries
    }

    /// Returns whether the device has more comparisons or clauses with this number, so that it decides differently.
    pub(crate) fn has_extra_parts(&self, entries: &[Entry], installed: &Entries) -> bool {
        let Some(number) = entries.iter().find_map(|entry| self.number_of(entry)) else {
            return false;
        };
        self.count_parts(installed.values(), number) > self.count_parts(entries, number)
    }

    /// Counts the comparison and clause entries with this number.
    fn count_parts<'a>(&self, entries: impl IntoIterator<Item = &'a Entry>, number: u128) -> usize {
        entries
            .into_iter()
            .filter(|entry| {
                let kind = self.template_of(entry).map(|template| template.kind);
                matches!(kind, Some(RuleKind::Term | RuleKind::Clauses))
                    && self.number_of(entry) == Some(number)
            })
            .count()
    }

    /// Renders the rule of the filter with this number in normal form, or returns `None` if its entries are incomplete.
    pub(crate) fn rule_text(&self, number: u128, installed: &Entries) -> Option<String> {
        let entries: Vec<&Entry> = installed
            .values()
            .filter(|entry| self.number_of(entry) == Some(number))
            .collect();
        let mut rules = self.templates(RuleKind::Clauses).flat_map(|template| {
            entries
                .iter()
                .filter_map(|entry| self.values(template, entry)?.get(&Variable::Clauses).copied())
        });
        let (required, _) = rules.next()?;
        if rules.next().is_some() {
            return None;
        }
        // In the order of the comparisons' tables.
        let terms: Vec<(String, u128)> = self
            .templates(RuleKind::Term)
            .flat_map(|template| entries.iter().filter_map(|entry| self.term(template, entry)))
            .collect();
        let clauses: Vec<String> = (0..64)
            .filter(|bit| required >> bit & 1 == 1)
            .map(|bit| {
                let terms: Vec<&str> = terms
                    .iter()
                    .filter(|(_, clauses)| clauses >> bit & 1 == 1)
                    .map(|(text, _)| text.as_str())
                    .collect();
                format!("({})", terms.join(" or "))
            })
            .collect();
        Some(clauses.join(" and "))
    }

    /// Describes each filter by rule on the device, by number: as in `rules` if it is there, or else by its entries.
    pub fn rule_filters(&self, installed: &Entries, rules: &Rules) -> BTreeMap<u128, String> {
        let mut filters: BTreeMap<u128, String> = BTreeMap::new();
        for entry in installed.values() {
            let Some(number) = self.number_of(entry) else {
                continue;
            };
            let filter = self
                .templates(RuleKind::Filter)
                .find_map(|template| self.filter(template, &self.values(template, entry)?, installed));
            let Some(filter) = filter else { continue };
            let known = rules.iter().find(
                |rule| matches!(rule, Rule::Filter(other) if other.key == filter.key && other.rule.is_some()),
            );
            let text = match known {
                Some(rule) => rule.to_string(),
                None => Rule::Filter(Arc::new(filter)).to_string(),
            };
            let all = filters.entry(number).or_default();
            // Flows of both IP versions have two entries with the same description.
            if !all.split("; ").any(|one| one == text) {
                all.push_str(if all.is_empty() { "" } else { "; " });
                all.push_str(&text);
            }
        }
        filters
    }

    /// Renders the comparison of an entry. Returns it with the bitmask of the clauses that it satisfies.
    fn term(&self, template: &Template, entry: &Entry) -> Option<(String, u128)> {
        let values = self.values(template, entry)?;
        let term = Comparison {
            value: u64::try_from(low_value(&values, Variable::TermValue)?).ok()?,
            node: u32::try_from(low_value(&values, Variable::TermNode)?).ok()?,
            hops: u32::try_from(low_value(&values, Variable::TermHops)?).ok()?,
            subject: u8::try_from(low_value(&values, Variable::TermSubject)?).ok()?,
            aggregate: u8::try_from(low_value(&values, Variable::TermAggregate)?).ok()?,
            comparison: comparison(low_value(&values, Variable::TermIf)?)?,
            hops_comparison: comparison(low_value(&values, Variable::TermHopsIf)?)?,
            clause: 0,
        };
        Some((term.text()?, low_value(&values, Variable::Clauses)?))
    }

    /// Returns the number that the filter of these entries has on the device.
    fn number_in(&self, entries: &[Entry], installed: &Entries) -> Option<u128> {
        entries
            .iter()
            .filter(|entry| {
                self.template_of(entry)
                    .is_some_and(|template| template.kind == RuleKind::Filter)
            })
            .find_map(|entry| self.number_of(installed.get(&entry.key)?))
    }

    /// Returns the template for an entry's table and action, if the template contains a filter number.
    fn template_of(&self, entry: &Entry) -> Option<&Template> {
        let (Key::Table { table, .. }, Content::Action(action, _)) = (&entry.key, &entry.content) else {
            return None;
        };
        self.templates.iter().find(|template| match &template.form {
            Form::Table {
                table: template_table,
                action: template_action,
                ..
            } => (template_table, template_action) == (table, action) && filter_number(template).is_some(),
            Form::Clone { .. } | Form::Group { .. } => false,
        })
    }

    /// Returns the filter number in an entry.
    fn number_of(&self, entry: &Entry) -> Option<u128> {
        match (
            filter_number(self.template_of(entry)?)?,
            &entry.key,
            &entry.content,
        ) {
            (Place::Field(id), Key::Table { fields, .. }, _) => match fields.get(&id)? {
                Field::Exact(number) => number.number(),
                _ => None,
            },
            (Place::Param(id), _, Content::Action(_, params)) => params.get(&id)?.number(),
            _ => None,
        }
    }

    /// Replaces the filter number in an entry.
    fn renumber(&self, entry: &mut Entry, number: u128) {
        let Some(place) = self.template_of(entry).and_then(filter_number) else {
            return;
        };
        match (place, &mut entry.key, &mut entry.content) {
            (Place::Field(id), Key::Table { fields, .. }, _) => {
                fields.insert(id, Field::Exact(Bytes::from(number)));
            }
            (Place::Param(id), _, Content::Action(_, params)) => {
                params.insert(id, Bytes::from(number));
            }
            _ => {}
        }
    }
}

/// Returns the index of the comparison operator that is true for these results.
fn comparison(results: u128) -> Option<u8> {
    let index = RESULTS
        .iter()
        .position(|true_results| u128::from(*true_results) == results)?;
    u8::try_from(index).ok()
}

/// The position of the filter number in an entry.
enum Place {
    /// In the match field with this id.
    Field(u32),
    /// In the action parameter with this id.
    Param(u32),
}

/// Returns the position of the filter number in a template's entries, if they have one.
fn filter_number(template: &Template) -> Option<Place> {
    let Form::Table { fields, params, .. } = &template.form else {
        return None;
    };
    let number = Value::Variable(Variable::FilterNumber);
    let field = fields.iter().find(|bound| bound.value == number);
    let param = params.iter().find(|bound| bound.value == number);
    field
        .map(|bound| Place::Field(bound.id))
        .or_else(|| param.map(|bound| Place::Param(bound.id)))
}
