//! Renders rules as commands of BMv2's `simple_switch_CLI`, for switches that somebody else configures.
//!
//! The CLI cannot remove an entry by its key, so the commands first clear the tables of the map. While they run, the switch
//! has no sinks. Run them while the switch's ports are down, or while no packet of the domain carries INT.

use std::collections::BTreeSet;
use std::fmt::Write;

use manager::device::Rules;

use crate::entry::{Bytes, Content, Entry, Field, Key};
use crate::map::Map;
use crate::message::{MatchType, P4Action, P4Info, P4MatchField, P4Table, Preamble};
use crate::program::{Form, LocalSettings, Program, Template};
use crate::translate::Entries;

/// Renders the commands after which a switch has exactly these rules in the tables of the map.
///
/// # Errors
/// One sentence, if the map does not fit the program or cannot express a rule.
pub fn commands(map: &Map, info: &P4Info, local: &LocalSettings, rules: &Rules) -> Result<String, String> {
    let program = Program::new(map, info, local)
        .map_err(|problems| format!("the map does not fit the program: {}", problems.join("; ")))?;
    let mut out = String::new();
    let mut seen = BTreeSet::new();
    // Reverse order of the kinds, so that entries that insert INT are removed before those that remove it.
    for template in program.templates.iter().rev() {
        if let Some(line) = emptied(template, info)
            && !seen.contains(&line)
        {
            out.push_str(&line);
            seen.insert(line);
        }
    }
    let mut entries = BTreeSet::new();
    for entry in program.encode_all(rules, &Entries::new())? {
        let line = command(&entry, info)?;
        // Several rules may share an entry, such as a clone session.
        if entries.insert(entry) {
            out.push_str(&line);
        }
    }
    Ok(out)
}

/// Returns the command that clears the table of a template, or `None` for clone sessions and groups.
fn emptied(template: &Template, info: &P4Info) -> Option<String> {
    let Form::Table { table, default, .. } = &template.form else {
        return None;
    };
    let name = &preamble(info.tables.iter().map(|table| &table.preamble), *table)?.name;
    Some(format!(
        "{} {name}\n",
        if *default {
            "table_reset_default"
        } else {
            "table_clear"
        }
    ))
}

/// Renders the command that adds an entry.
fn command(entry: &Entry, info: &P4Info) -> Result<String, String> {
    let mut line = String::new();
    match (&entry.key, &entry.content) {
        (Key::Group(group), _) => {
            return Err(format!(
                "multicast group {group} needs the driver `p4runtime`: simple_switch_CLI numbers their copies by itself"
            ));
        }
        (
            Key::Clone(session),
            Content::Copies {
                replicas, truncate, ..
            },
        ) => {
            if *truncate != 0 || replicas.len() != 1 {
                return Err(format!(
                    "simple_switch_CLI cannot truncate copies, or send them to several ports: clone session {session}; remove `truncate` from the map"
                ));
            }
            let port = replicas
                .iter()
                .find_map(|copy| copy.port.number())
                .unwrap_or_default();
            let _ = writeln!(line, "mirroring_add {session} {port}");
        }
        (Key::Default(table), Content::Action(action, params)) => {
            let (table, action) = table_and_action(info, *table, *action).ok_or_else(unknown_table)?;
            let _ = write!(
                line,
                "table_set_default {} {}",
                name(&table.preamble),
                name(&action.preamble)
            );
            write_params(&mut line, action, params);
            line.push('\n');
        }
        (
            Key::Table {
                table,
                priority,
                fields,
            },
            Content::Action(action, params),
        ) => {
            let (table, action) = table_and_action(info, *table, *action).ok_or_else(unknown_table)?;
            let _ = write!(
                line,
                "table_add {} {}",
                name(&table.preamble),
                name(&action.preamble)
            );
            for field in &table.match_fields {
                let _ = write!(line, " {}", field_text(field, fields.get(&field.id)));
            }
            line.push_str(" =>");
            write_params(&mut line, action, params);
            // BMv2 prefers the lowest priority number, P4Runtime the highest.
            if *priority != 0 {
                let _ = write!(line, " {}", i32::MAX - priority);
            }
            line.push('\n');
        }
        _ => return Err(unknown_table()),
    }
    Ok(line)
}

fn unknown_table() -> String {
    "an entry is of no table of the program; please report it".to_owned()
}

fn table_and_action(info: &P4Info, table: u32, action: u32) -> Option<(&P4Table, &P4Action)> {
    let table = info.tables.iter().find(|known| has_id(&known.preamble, table))?;
    let action = info
        .actions
        .iter()
        .find(|known| has_id(&known.preamble, action))?;
    Some((table, action))
}

fn has_id(preamble: &Option<Preamble>, id: u32) -> bool {
    preamble.as_ref().is_some_and(|preamble| preamble.id == id)
}

fn preamble<'a>(mut all: impl Iterator<Item = &'a Option<Preamble>>, id: u32) -> Option<&'a Preamble> {
    all.find_map(|preamble| preamble.as_ref().filter(|preamble| preamble.id == id))
}

fn name(preamble: &Option<Preamble>) -> &str {
    preamble.as_ref().map_or("", |preamble| preamble.name.as_str())
}

fn write_params(line: &mut String, action: &P4Action, params: &std::collections::BTreeMap<u32, Bytes>) {
    for param in &action.params {
        let _ = write!(
            line,
            " {}",
            params.get(&param.id).map_or_else(|| "0".to_owned(), hex)
        );
    }
}

/// Renders a field of a key. An omitted field matches everything.
fn field_text(declared: &P4MatchField, field: Option<&Field>) -> String {
    let width = u32::try_from(declared.bitwidth).unwrap_or(128).clamp(1, 128);
    let most = u128::MAX >> (128 - width);
    let all = format!("{most:#x}");
    match field {
        Some(Field::Exact(value)) => hex(value),
        // BMv2 implements optional fields as ternary fields.
        Some(Field::Optional(value)) => format!("{}&&&{all}", hex(value)),
        Some(Field::Ternary(value, mask)) => format!("{}&&&{}", hex(value), hex(mask)),
        Some(Field::Lpm(value, length)) => format!("{}/{length}", hex(value)),
        Some(Field::Range(low, high)) => format!("{}->{}", hex(low), hex(high)),
        None if declared.match_type == i32::from(MatchType::Lpm) => "0x0/0".to_owned(),
        None if declared.match_type == i32::from(MatchType::Range) => format!("0x0->{all}"),
        None => "0x0&&&0x0".to_owned(),
    }
}

fn hex(value: &Bytes) -> String {
    value
        .number()
        .map_or_else(|| format!("0x{value}"), |number| format!("{number:#x}"))
}
