//! Assigns samplers. A sampler is a counter in the P4 program that selects one packet in N. Each rule that samples has a
//! separate sampler, shared by its entries, and keeps it while any of them exists. Its number says nothing about the rule.

use std::collections::BTreeSet;

use manager::device::Rule;

use crate::entry::{Bytes, Content, Entry, Key};
use crate::map::{Value, Variable};
use crate::program::{BoundValue, Form, Program};
use crate::translate::Entries;

impl Program {
    /// Encodes rules, with their sampler and filter numbers, for a device that has the entries `installed`.
    ///
    /// # Errors
    /// A sentence with a fix about the first rule that the program cannot express.
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
        // First the samplers that installed entries have, then free ones for the other rules.
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
                .find_map(|entry| self.sampler_param(entry))
                .map(|param| param.width)
            else {
                continue;
            };
            // The sampler must fit in its parameter.
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

    /// Returns whether two entries are equal except for their samplers.
    pub(crate) fn is_same(&self, one: &Entry, other: &Entry) -> bool {
        let mut one = one.clone();
        if let Some(number) = self.sampler(other) {
            self.set_sampler(&mut one, number);
        }
        one == *other
    }

    /// Returns the parameter of an entry that holds the sampler's number.
    fn sampler_param(&self, entry: &Entry) -> Option<&BoundValue> {
        let (Key::Table { table, .. }, Content::Action(action, _)) = (&entry.key, &entry.content) else {
            return None;
        };
        let sampler = Value::Variable(Variable::Sampler);
        self.templates.iter().find_map(|template| match &template.form {
            Form::Table {
                table: template_table,
                action: template_action,
                params,
                ..
            } if (template_table, template_action) == (table, action) => {
                params.iter().find(|param| param.value == sampler)
            }
            _ => None,
        })
    }

    fn sampler(&self, entry: &Entry) -> Option<u128> {
        let param = self.sampler_param(entry)?;
        let Content::Action(_, params) = &entry.content else {
            return None;
        };
        params.get(&param.id)?.number()
    }

    fn set_sampler(&self, entry: &mut Entry, number: u128) {
        let Some(id) = self.sampler_param(entry).map(|param| param.id) else {
            return;
        };
        if let Content::Action(_, params) = &mut entry.content
            && let Some(param) = params.get_mut(&id)
        {
            *param = Bytes::from(number);
        }
    }
}
