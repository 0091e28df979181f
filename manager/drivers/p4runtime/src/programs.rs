//! The project's own P4 programs with their P4Info, as a controller sees them.

use crate::binary;
use crate::message::P4Info;
use crate::text::Message;

/// One P4 program of this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Included {
    /// Name of the program.
    pub name: &'static str,
    /// Description of the program.
    pub about: &'static str,
    /// The built-in pipeline map; `None` if the manager does not drive this program.
    pub map: Option<&'static str>,
    /// P4Info of the program in the text format.
    pub text: &'static str,
}

/// All programs of this project.
pub const INCLUDED: [Included; 5] = [
    Included {
        name: "int",
        about: "INT-MD 1.0 and 2.1, INT-MX and postcards: source, transit and sink; reports of paths, drops and queues",
        map: Some("hopwise-int"),
        text: include_str!("../../../../p4/v1model/int.p4info.txtpb"),
    },
    Included {
        name: "sf",
        about: "SF-INT, INT of constant size: source, transit with the nine rules, and sink; reports of records",
        map: Some("hopwise-sf"),
        text: include_str!("../../../../p4/v1model/sf.p4info.txtpb"),
    },
    Included {
        name: "aggregator",
        about: "aggregates of postcards, before a collector",
        map: Some("hopwise-aggregator"),
        text: include_str!("../../../../p4/v1model/aggregator.p4info.txtpb"),
    },
    Included {
        name: "dta_reporter",
        about: "the switch of `int` with DTA reports in place of Telemetry Reports: mappings, essential reports, congestion",
        map: Some("hopwise-dta-reporter"),
        text: include_str!("../../../../p4/v1model/dta_reporter.p4info.txtpb"),
    },
    Included {
        name: "dta_translator",
        about: "translates DTA reports into RoCEv2 operations on a collector's memory",
        map: Some("hopwise-dta-translator"),
        text: include_str!("../../../../p4/v1model/dta_translator.p4info.txtpb"),
    },
];

/// Numbers of a program's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of match-action tables.
    pub tables: usize,
    /// Number of actions defined.
    pub actions: usize,
    /// Number of register arrays, and their total size in bits.
    pub registers: (usize, u64),
    /// Number of counter arrays.
    pub counters: usize,
}

impl Included {
    /// Returns the program with this name, if there is one.
    pub fn named(name: &str) -> Option<&'static Self> {
        INCLUDED.iter().find(|program| program.name == name)
    }

    /// Parses the program's P4Info.
    ///
    /// # Errors
    /// A sentence from [`binary::info`]. It never occurs, because a test parses every included P4Info.
    pub fn info(&self) -> Result<P4Info, String> {
        binary::info(self.text)
    }

    /// Returns the name of the program's architecture, and the numbers of its objects.
    pub fn size(&self) -> (String, Size) {
        let root = Message::read(self.text).unwrap_or_default();
        let bits = root
            .all("registers")
            .map(|register| width(register) * u64::from(register.number("size")));
        let size = Size {
            tables: root.all("tables").count(),
            actions: root.all("actions").count(),
            registers: (root.all("registers").count(), bits.sum()),
            counters: root.all("counters").count() + root.all("direct_counters").count(),
        };
        let arch = root.first("pkg_info").map(|info| info.text("arch").to_owned());
        (arch.unwrap_or_default(), size)
    }
}

/// Returns the width of a register in bits, or 0 for a structure.
fn width(register: &Message) -> u64 {
    let bits = register
        .first("type_spec")
        .and_then(|spec| spec.first("bitstring"))
        .and_then(|bits| bits.first("bit"));
    bits.map_or(0, |bits| bits.number("bitwidth").into())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn alias(message: &Message) -> &str {
        message
            .first("preamble")
            .map_or("", |preamble| preamble.text("alias"))
    }

    fn id(message: &Message) -> u32 {
        message
            .first("preamble")
            .map_or(0, |preamble| preamble.number("id"))
    }

    fn table(table: &Message, root: &Message, out: &mut String) {
        let field = |field: &Message| {
            let kind = field.text("match_type").to_lowercase();
            format!("`{}` {kind} {}", field.text("name"), field.number("bitwidth"))
        };
        let fields: Vec<String> = table.all("match_fields").map(field).collect();
        let action = |reference: &Message| {
            let action = root
                .all("actions")
                .find(|action| id(action) == reference.number("id"));
            let name = format!("`{}`", action.map_or("", |action| alias(action)));
            if reference.text("scope") == "DEFAULT_ONLY" {
                name + " (default only)"
            } else {
                name
            }
        };
        let actions: Vec<String> = table.all("action_refs").map(action).collect();
        let key = if fields.is_empty() {
            "–".to_owned()
        } else {
            fields.join(", ")
        };
        let (name, id, size) = (alias(table), id(table), table.number("size"));
        writeln!(
            out,
            "| `{name}` | {id:#010x} | {key} | {} | {size} |",
            actions.join(", ")
        )
        .unwrap();
    }

    fn section(program: &Included, out: &mut String) {
        let root = Message::read(program.text).unwrap();
        let (arch, size) = program.size();
        let (arrays, bits) = size.registers;
        writeln!(out, "\n## {}\n\n{}.\n", program.name, program.about).unwrap();
        let capabilities = format!(
            "Architecture {arch}; {} tables; {arrays} arrays of registers, {bits} bits",
            size.tables
        );
        writeln!(out, "{capabilities}.").unwrap();
        match program.map {
            Some(map) => writeln!(
                out,
                "The manager drives it by the [pipeline map](pipeline-maps.md) `{map}`."
            )
            .unwrap(),
            None => writeln!(out, "The manager does not drive it.").unwrap(),
        }
        writeln!(
            out,
            "\n| table | id | key: kind and bits | actions | entries |\n| --- | --- | --- | --- | --- |"
        )
        .unwrap();
        root.all("tables").for_each(|one| table(one, &root, out));
        writeln!(
            out,
            "\n| action | id | parameters and bits |\n| --- | --- | --- |"
        )
        .unwrap();
        for action in root.all("actions") {
            let param = |param: &Message| format!("`{}` {}", param.text("name"), param.number("bitwidth"));
            let params: Vec<String> = action.all("params").map(param).collect();
            let params = if params.is_empty() {
                "–".to_owned()
            } else {
                params.join(", ")
            };
            writeln!(out, "| `{}` | {:#010x} | {params} |", alias(action), id(action)).unwrap();
        }
        writeln!(
            out,
            "\n| registers or counters | id | bits | number |\n| --- | --- | --- | --- |"
        )
        .unwrap();
        for array in root.all("registers") {
            let (name, id, bits, size) = (alias(array), id(array), width(array), array.number("size"));
            writeln!(out, "| `{name}` | {id:#010x} | {bits} | {size} |").unwrap();
        }
        for array in root.all("counters") {
            let (name, id, size) = (alias(array), id(array), array.number("size"));
            writeln!(out, "| `{name}` | {id:#010x} | packets | {size} |").unwrap();
        }
    }

    /// The numbers of the constants of a P4 source whose names begin with `prefix`, without it.
    fn codes(source: &str, prefix: &str) -> String {
        let code = |line: &str| {
            let (name, number) = line
                .strip_prefix("const bit<")?
                .split_once("> ")?
                .1
                .split_once(" = ")?;
            let name = name.strip_prefix(prefix)?.to_lowercase();
            Some(format!("{} `{name}`", number.trim_end_matches(';')))
        };
        let codes: Vec<String> = source.lines().filter_map(code).collect();
        assert!(codes.len() > 4, "{prefix}: {codes:?}");
        codes.join(", ")
    }

    /// What the numbers of the reporter's entries mean.
    fn codes_of_reporter(out: &mut String) {
        let source = include_str!("../../../../p4/shared/reporter.p4");
        let [events, keys, fields] = ["ON_", "KEY_", "FIELD_"].map(|prefix| codes(source, prefix));
        writeln!(
            out,
            "
Codes of its entries:

- `event`: {events}.
- `position`, `number`: a packet makes the reports of its mappings in the order of their numbers, 0 to 63. Each pass looks up the first entry at its position, and goes on behind the number of that: an entry of mapping N has `position` `0-N`. An entry at a position behind its number ends the mappings of its packet, and is counted as `misplaced`; pipeline maps with such an entry are refused.
- `flow_kind`: 0 no flow, 2 IPv4, 3 IPv6.
- `of_key`: {keys}; of `append` to one list, 0.
- `word_0` to `word_7`, `delta`, `of_value`, `field`: the low byte is {fields}; `interfaces` and `ports` are two of two bytes, times are of this node, in ns, and `_high` and `_low` their words. The high byte is the number of a hop of the path, from 1, or 0: the hop that the report is about. A word of 0 ends the data."
        )
        .unwrap();
    }

    #[test]
    fn the_reference_of_programs_is_current() {
        let mut page = "# P4 programs reference

<!-- Made from P4Info by `cargo test -p hopwise-p4runtime`; do not edit. To accept a change: make docs -->

What a controller sees of the project's [P4 programs](../../p4/README.md): `hopwise p4 list` names them, and `hopwise p4 list PROGRAM` prints the P4Info.
"
        .to_owned();
        for program in &INCLUDED {
            section(program, &mut page);
            if program.name == "dta_reporter" {
                codes_of_reporter(&mut page);
            }
        }
        testkit::compare_page("docs/reference/p4-programs.md", &page);
    }

    #[test]
    fn every_program_has_a_p4info() {
        for program in INCLUDED {
            let info = program.info().unwrap();
            let (arch, size) = program.size();
            assert_eq!(
                (arch.as_str(), info.tables.len()),
                ("v1model", size.tables),
                "{}",
                program.name
            );
        }
    }
}
