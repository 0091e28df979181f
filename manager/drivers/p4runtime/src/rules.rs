//! Rules of filters: each comparison of the conjunctive normal form is an entry of a table of its own, with the clauses that it makes true, and
//! the rule is an entry with the clauses that must all hold. All have the number of the filter, of which each filter by rule has its own, which it
//! keeps as long as its entry is there.
//!
//! A number says nothing about the rule, and the text of a rule is not on the device: it is written anew from the entries, in normal form.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use detect::table::Row as TermRow;
use detect::{RuleSet, Table};
use manager::device::{Filter, Rule, Rules};

use crate::entry::{Bytes, Content, Entry, Field, Key};
use crate::map::{Kind, Value, Variable};
use crate::program::{Form, Place, Program, Row};
use crate::translate::{Entries, Given};
use crate::variable::RESULTS;

impl Program {
    /// The first number of a filter by rule.
    pub(crate) fn first_rule_filter(&self) -> u8 {
        self.map.settings.rule_filters.first().copied().unwrap_or(0)
    }

    /// The entries of a rule of a filter, as if it had the first number.
    ///
    /// # Errors
    /// The program cannot express it; a sentence says what to do.
    pub(crate) fn encode_rule(&self, text: &str) -> Result<Vec<Entry>, String> {
        if let Some(problem) = self.capabilities().rules.problem(text) {
            return Err(format!("of the rule `{text}`: {problem}"));
        }
        let rules =
            RuleSet::compile(&[("rule".to_owned(), text.to_owned())]).map_err(|error| error.to_string())?;
        let table = Table::split(&rules).table;
        let number = self.first_rule_filter();
        let mut entries = Vec::new();
        for ((row, clauses), (_, place)) in table.comparisons().iter().zip(self.rows(Kind::Term)) {
            entries.push(self.entry(place, &Given::Term(number, row, *clauses))?);
        }
        for (_, place) in self.rows(Kind::Clauses) {
            entries.push(self.entry(place, &Given::Clauses(number, table.clauses[0]))?);
        }
        Ok(entries)
    }

    /// Gives filters by rule their numbers: those that they have on the device, or else free ones, best such that nothing has there.
    ///
    /// # Errors
    /// There are more filters than numbers.
    pub(crate) fn number_rules(&self, parts: &mut [Vec<Entry>], installed: &Entries) -> Result<(), String> {
        let [first, last] = *self.map.settings.rule_filters.as_slice() else {
            return Ok(());
        };
        let mut taken: BTreeSet<u128> = BTreeSet::new();
        let mut without = Vec::new();
        for (index, entries) in parts.iter_mut().enumerate() {
            if !entries.iter().any(|entry| self.number_of(entry).is_some()) {
                continue;
            }
            match self
                .number_in(entries, installed)
                .filter(|number| taken.insert(*number))
            {
                Some(number) => entries.iter_mut().for_each(|entry| self.renumber(entry, number)),
                None => without.push(index),
            }
        }
        let used: BTreeSet<u128> = installed
            .values()
            .filter_map(|entry| self.number_of(entry))
            .collect();
        for index in without {
            let free = || (u128::from(first)..=u128::from(last)).filter(|number| !taken.contains(number));
            let number = free()
                .find(|number| !used.contains(number))
                .or_else(|| free().next());
            let number = number.ok_or_else(|| {
                let room = last - first + 1;
                format!("the program has {room} filters by rule; use fewer intents with filter = \"rule\"")
            })?;
            taken.insert(number);
            parts[index]
                .iter_mut()
                .for_each(|entry| self.renumber(entry, number));
        }
        Ok(())
    }

    /// The parts of a rule with the number that it has on the device.
    pub(crate) fn as_numbered(&self, mut parts: Vec<Entry>, installed: &Entries) -> Vec<Entry> {
        if let Some(number) = self.number_in(&parts, installed) {
            parts.iter_mut().for_each(|entry| self.renumber(entry, number));
        }
        parts
    }

    /// Whether the device has more comparisons or rules with the number of these entries than they are: it then decides otherwise.
    pub(crate) fn has_more(&self, parts: &[Entry], installed: &Entries) -> bool {
        let Some(number) = parts.iter().find_map(|entry| self.number_of(entry)) else {
            return false;
        };
        let is_part = |entry: &&Entry| {
            let kind = self.row_of(entry).map(|row| row.kind);
            matches!(kind, Some(Kind::Term | Kind::Clauses)) && self.number_of(entry) == Some(number)
        };
        installed.values().filter(is_part).count() > parts.iter().filter(is_part).count()
    }

    /// The rule of the filter with this number, in normal form.
    pub(crate) fn rule_text(&self, number: u128, installed: &Entries) -> Option<String> {
        let entries: Vec<&Entry> = installed
            .values()
            .filter(|entry| self.number_of(entry) == Some(number))
            .collect();
        let mut rules = self.rows(Kind::Clauses).flat_map(|(_, row)| {
            entries
                .iter()
                .filter_map(|entry| self.values(row, entry)?.get(&Variable::Clauses).copied())
        });
        let (wanted, _) = rules.next().filter(|_| rules.next().is_none())?;
        // In the order of their tables.
        let terms: Vec<(String, u128)> = self
            .rows(Kind::Term)
            .flat_map(|(_, row)| entries.iter().filter_map(|entry| self.term(row, entry)))
            .collect();
        let clause = |bit: u32| {
            let makes = |(_, clauses): &&(String, u128)| clauses >> bit & 1 == 1;
            let terms: Vec<&str> = terms
                .iter()
                .filter(makes)
                .map(|(text, _)| text.as_str())
                .collect();
            format!("({})", terms.join(" or "))
        };
        let clauses: Vec<String> = (0..64).filter(|bit| wanted >> bit & 1 == 1).map(clause).collect();
        Some(clauses.join(" and "))
    }

    /// What each filter by rule on the device does, by its number: as in `rules` where the filter is one of them, else as its entries say.
    pub fn rule_filters(&self, installed: &Entries, rules: &Rules) -> BTreeMap<u128, String> {
        let known = |filter: &Filter| {
            let is_same = |rule: &&Rule| matches!(rule, Rule::Filter(one) if one.key == filter.key && one.rule.is_some());
            rules.iter().find(is_same).map(Rule::to_string)
        };
        let mut filters: BTreeMap<u128, String> = BTreeMap::new();
        let rows = || self.rows.iter().filter(|row| row.kind == Kind::Filter);
        for entry in installed.values() {
            let Some(number) = self.number_of(entry) else {
                continue;
            };
            let of = |row| self.filter(row, &self.values(row, entry)?, installed);
            let Some(filter) = rows().find_map(of) else {
                continue;
            };
            let text = known(&filter).unwrap_or_else(|| Rule::Filter(Arc::new(filter)).to_string());
            let all = filters.entry(number).or_default();
            // Flows of both versions of IP are two entries.
            if !all.split("; ").any(|one| one == text) {
                all.push_str(if all.is_empty() { "" } else { "; " });
                all.push_str(&text);
            }
        }
        filters
    }

    /// The comparison of an entry in words, and the clauses that it makes true.
    fn term(&self, row: &Row, entry: &Entry) -> Option<(String, u128)> {
        let values = self.values(row, entry)?;
        let number = |variable: Variable| values.get(&variable).map(|(low, _)| *low);
        let byte = |variable: Variable| u8::try_from(number(variable)?).ok();
        let comparison = |variable: Variable| {
            let results = byte(variable)?;
            u8::try_from(RESULTS.iter().position(|one| *one == results)?).ok()
        };
        let term = TermRow {
            value: u64::try_from(number(Variable::TermValue)?).ok()?,
            node: u32::try_from(number(Variable::TermNode)?).ok()?,
            hops: u32::try_from(number(Variable::TermHops)?).ok()?,
            subject: byte(Variable::TermSubject)?,
            aggregate: byte(Variable::TermAggregate)?,
            comparison: comparison(Variable::TermIf)?,
            hops_comparison: comparison(Variable::TermHopsIf)?,
            clause: 0,
        };
        Some((term.text()?, number(Variable::Clauses)?))
    }

    /// The number that the filter among these entries has on the device.
    fn number_in(&self, entries: &[Entry], installed: &Entries) -> Option<u128> {
        let is_filter = |entry: &&Entry| self.row_of(entry).is_some_and(|row| row.kind == Kind::Filter);
        entries
            .iter()
            .filter(is_filter)
            .find_map(|entry| self.number_of(installed.get(&entry.key)?))
    }

    /// The row of the table and action of an entry that has the number of a filter by rule, and its place.
    fn row_of(&self, entry: &Entry) -> Option<&Row> {
        let (Key::Table { table, .. }, Content::Action(action, _)) = (&entry.key, &entry.content) else {
            return None;
        };
        self.rows.iter().find(|row| match &row.form {
            Form::Table {
                table: of,
                action: its,
                ..
            } => (of, its) == (table, action) && number_place(row).is_some(),
            Form::Clone { .. } | Form::Group { .. } => false,
        })
    }

    fn number_of(&self, entry: &Entry) -> Option<u128> {
        let (place, in_key) = number_place(self.row_of(entry)?)?;
        match (&entry.key, &entry.content) {
            (Key::Table { fields, .. }, _) if in_key => match fields.get(&place.id)? {
                Field::Exact(number) => number.number(),
                _ => None,
            },
            (_, Content::Action(_, params)) => params.get(&place.id)?.number(),
            _ => None,
        }
    }

    fn renumber(&self, entry: &mut Entry, number: u128) {
        let Some((id, in_key)) = self
            .row_of(entry)
            .and_then(number_place)
            .map(|(place, key)| (place.id, key))
        else {
            return;
        };
        match (&mut entry.key, &mut entry.content) {
            (Key::Table { fields, .. }, _) if in_key => {
                fields.insert(id, Field::Exact(Bytes::from(number)));
            }
            (_, Content::Action(_, params)) => {
                params.insert(id, Bytes::from(number));
            }
            _ => {}
        }
    }
}

/// The field (`true`) or parameter of a row that is the number of a filter by rule.
fn number_place(row: &Row) -> Option<(&Place, bool)> {
    let Form::Table { fields, params, .. } = &row.form else {
        return None;
    };
    let is_number = |place: &&Place| place.value == Value::Variable(Variable::FilterNumber);
    let field = fields.iter().find(is_number).map(|place| (place, true));
    field.or_else(|| params.iter().find(is_number).map(|place| (place, false)))
}
