//! Samplers: what counts the packets of entries that measure a share of them. Each rule that samples has its own, which its entries share, and
//! which it keeps as long as one of them is there. Which one it is says nothing about the rule.

use std::collections::BTreeSet;

use manager::device::Rule;

use crate::entry::{Bytes, Content, Entry, Key};
use crate::map::{Value, Variable};
use crate::program::{Form, Place, Program};
use crate::translate::Entries;

impl Program {
    /// The entries of rules, with their samplers, for a device that has `installed`.
    ///
    /// # Errors
    /// The program cannot express a rule; a sentence says which, and what to do.
    pub fn encode_all<'a>(
        &self,
        rules: impl IntoIterator<Item = &'a Rule>,
        installed: &Entries,
    ) -> Result<Vec<Entry>, String> {
        let mut parts = Vec::new();
        for rule in rules {
            let entries = self
                .encode(rule)
                .map_err(|why| format!("`{rule}` is not possible: {why}"))?;
            let samples = matches!(rule, Rule::Watch(watch) if watch.sample > 1);
            parts.push((entries, samples));
        }
        let mut taken = BTreeSet::new();
        let mut without = Vec::new();
        for (index, (entries, samples)) in parts.iter_mut().enumerate() {
            let old = entries
                .iter()
                .find_map(|entry| self.sampler(installed.get(&entry.key)?));
            match old {
                Some(number) if !*samples || taken.insert(number) => {
                    entries
                        .iter_mut()
                        .for_each(|entry| self.set_sampler(entry, number));
                }
                _ if *samples => without.push(index),
                _ => {}
            }
        }
        let mut free = (0_u128..).filter(|number| !taken.contains(number));
        for index in without {
            let Some((entries, _)) = parts.get_mut(index) else {
                continue;
            };
            let Some(width) = entries
                .iter()
                .find_map(|entry| self.place(entry))
                .map(|place| place.width)
            else {
                continue;
            };
            let number = free.next().filter(|number| number >> width.min(127) == 0);
            let number = number.ok_or_else(|| {
                let all = 1_u128.checked_shl(width).unwrap_or(u128::MAX);
                format!("the program samples the packets of {all} entries; use fewer intents with `sample`")
            })?;
            entries
                .iter_mut()
                .for_each(|entry| self.set_sampler(entry, number));
        }
        let mut parts: Vec<Vec<Entry>> = parts.into_iter().map(|(entries, _)| entries).collect();
        self.number_rules(&mut parts, installed)?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// Whether two entries are the same, apart from their samplers.
    pub(crate) fn is_same(&self, one: &Entry, other: &Entry) -> bool {
        let mut one = one.clone();
        if let Some(number) = self.sampler(other) {
            self.set_sampler(&mut one, number);
        }
        one == *other
    }

    /// The parameter of an entry that is its sampler.
    fn place(&self, entry: &Entry) -> Option<&Place> {
        let (Key::Table { table, .. }, Content::Action(action, _)) = (&entry.key, &entry.content) else {
            return None;
        };
        let is_sampler = |place: &&Place| place.value == Value::Variable(Variable::Sampler);
        self.rows.iter().find_map(|row| match &row.form {
            Form::Table {
                table: of,
                action: its,
                params,
                ..
            } if (of, its) == (table, action) => params.iter().find(is_sampler),
            _ => None,
        })
    }

    fn sampler(&self, entry: &Entry) -> Option<u128> {
        let place = self.place(entry)?;
        let Content::Action(_, params) = &entry.content else {
            return None;
        };
        params.get(&place.id)?.number()
    }

    fn set_sampler(&self, entry: &mut Entry, number: u128) {
        let Some(id) = self.place(entry).map(|place| place.id) else {
            return;
        };
        if let Content::Action(_, params) = &mut entry.content
            && let Some(param) = params.get_mut(&id)
        {
            *param = Bytes::from(number);
        }
    }
}
