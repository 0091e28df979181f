//! Experiment `p4-resources`: resources of a Tofino 1 that the P4 programs in `p4/tna` need, from the compiler's reports (DTA,
//! Table 3 and Fig. 13). It measures nothing: the reports are part of the repository.

use serde_json::Value;

use super::{
    page::{Cell, Comparison, Findings, Table, fixed, linear, named, row},
    rows::{Observations, Results, judgement, listed},
    settings::Settings,
};
use crate::{
    figures::failed,
    svg::{Series, Style},
};
use terminal::CliError;

/// The file into which `scripts/build-p4-tna` collects the compiler's reports.
const REPORT: &str = include_str!("../../../p4/tna/resources.json");
/// The programs, in the order of the table's columns.
const PROGRAMS: [&str; 6] = [
    "int",
    "sf",
    "postcards",
    "aggregator",
    "dta_reporter",
    "dta_translator",
];
/// A resource of the chip.
#[derive(Clone, Copy)]
struct Resource {
    /// Name in the compiler's report.
    name: &'static str,
    /// Name in tables.
    title: &'static str,
    /// Short name for plots.
    label: &'static str,
}

impl Resource {
    const fn new(name: &'static str, title: &'static str, label: &'static str) -> Self {
        Self { name, title, label }
    }
}

const RESOURCES: [Resource; 12] = [
    Resource::new("phv_containers", "PHV containers", "PHV"),
    Resource::new("sram", "SRAM blocks", "SRAM"),
    Resource::new("tcam", "TCAM blocks", "TCAM"),
    Resource::new("map_ram", "map RAM blocks", "map RAM"),
    Resource::new("meter_alu", "stateful (meter) ALUs", "meters"),
    Resource::new("statistics_alu", "statistics ALUs", "counters"),
    Resource::new("hash_bit", "hash bits", "hash bits"),
    Resource::new("hash_distribution", "hash distribution units", "hashes"),
    Resource::new("crossbar_byte", "match crossbar bytes", "crossbar"),
    Resource::new("gateway", "gateways", "gateways"),
    Resource::new("logical_table", "logical tables", "tables"),
    Resource::new("instruction", "instructions (VLIW)", "VLIW"),
];
/// Counts that have no limit per chip: name in the report, name in tables.
const COUNTS: [(&str, &str); 4] = [
    ("ingress_stages", "stages at ingress"),
    ("egress_stages", "stages at egress"),
    ("match_tables", "tables"),
    ("registers", "registers"),
];

/// Units of a resource that one program uses, and units that the chip has.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Use {
    used: u64,
    available: u64,
}

impl Use {
    fn percent(self) -> f64 {
        self.used as f64 * 100.0 / self.available as f64
    }

    fn text(self) -> String {
        format!("{} of {} ({:.1} %)", self.used, self.available, self.percent())
    }
}

/// The compiler's report on all programs, as JSON.
struct Report(Value);

impl Report {
    fn read(text: &str) -> Result<Self, CliError> {
        let report: Value = serde_json::from_str(text).map_err(failed)?;
        let names: Vec<&String> = report["programs"]
            .as_object()
            .into_iter()
            .flat_map(|programs| programs.keys())
            .collect();
        let mut known = PROGRAMS;
        known.sort_unstable();
        if names == known {
            Ok(Self(report))
        } else {
            Err(failed(format!("the report is of other programs: {names:?}")))
        }
    }

    fn resource(&self, program: &str, name: &str) -> Result<Use, CliError> {
        let pair = &self.0["programs"][program][name];
        let (Some(used), Some(available)) = (pair[0].as_u64(), pair[1].as_u64()) else {
            return Err(failed(format!("the report of {program} lacks {name}")));
        };
        Ok(Use { used, available })
    }

    fn count(&self, program: &str, name: &str) -> Result<u64, CliError> {
        let count = self.0["programs"][program][name].as_u64();
        count.ok_or_else(|| failed(format!("the report of {program} lacks {name}")))
    }
}

pub(super) fn run(_: &Settings) -> Result<Findings, CliError> {
    let report = Report::read(REPORT)?;
    let compiler = report.0["compiler"].as_str().unwrap_or("unknown");
    Ok(Findings {
        comparisons: comparisons(&report)?,
        ..Findings::new(
            "The programs of [`p4/tna`](../../p4/README.md#tofino) were compiled for a Tofino 1. The figures are those of the compiler's and the assembler's own \
             reports. They are sizes: nobody has run the programs, and nothing here says how fast they are.",
            [
                format!("compiler: {compiler}; the reports are in `p4/tna/resources.json`, which a check compares with the sources"),
                "a stage of a Tofino 1, of which there are 12, has 80 SRAM blocks, 24 TCAM blocks, 48 map RAM blocks, 4 meter ALUs, 4 statistics ALUs, 416 hash bits, 6 hash \
                 distribution units, 194 crossbar bytes, 16 gateways, 16 logical tables and 32 instructions"
                    .into(),
                "the paper's text, as this project has it, lacks the rows of Table 3 and the bars of Fig. 13; what the text says of them stands above".into(),
            ],
            [programs(&report)?, reporters(&report)?],
        )
    })
}

fn comparisons(report: &Report) -> Result<Vec<Comparison>, CliError> {
    let sram = report.resource("dta_translator", "sram")?;
    let alu = report.resource("dta_translator", "meter_alu")?;
    let [sram_of_both, hash_bits_of_both] = ["sram", "hash_bit"].map(|name| -> Result<String, CliError> {
        let dta = report.resource("dta_reporter", name)?;
        let udp = report.resource("postcards", name)?;
        Ok(format!("{} and {}", dta.text(), udp.text()))
    });
    Ok(vec![
        Comparison::new(
            "SRAM of the translator (Table 3)",
            "3 % for batches of Append, 16 x 4 B, 255 lists",
            format!("{} for the whole program, with 1,024 lists", sram.text()),
        ),
        Comparison::new(
            "meter ALUs of the translator (Table 3)",
            "a relatively high cost, which grows by one access for each entry of a batch",
            format!(
                "{} for the whole program; 16 are the words of a batch",
                alu.text()
            ),
        ),
        Comparison::new(
            "retransmission in the translator (Table 3)",
            "a small cost, for 65,000 reporters",
            "not in the program",
        ),
        Comparison::new(
            "a reporter by DTA, compared with one that makes reports over UDP (5.5)",
            "comparable",
            format!(
                "`dta_reporter` and `postcards`: SRAM {}; hash bits {}",
                sram_of_both?, hash_bits_of_both?
            ),
        ),
        Comparison::new(
            "a reporter by DTA, compared with one that makes RoCEv2 (Fig. 13)",
            "several resources halved",
            "hopwise has no such program; `dta_translator` generates RoCEv2, and does more",
        ),
    ])
}

/// Computes the remarks from the rows.
pub(super) fn observe(results: &Results) -> Observations {
    let rows = results.table("programs");
    let mut limited = rows.with(&[]);
    limited.retain(|row| !row.text("available").is_empty() && !row.text("resource").starts_with("stages"));
    let largest = PROGRAMS.iter().filter_map(|program| {
        let shares = limited
            .iter()
            .map(|row| (row.number(program) / row.number("available"), row));
        let (share, row) = shares.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        Some(format!(
            "`{program}` {}, {:.0} %",
            row.text("resource"),
            100.0 * share
        ))
    });
    let mut remarks: Vec<String> = listed("Each program's largest share of a resource: {}.", largest)
        .into_iter()
        .collect();
    remarks.push(judgement(
        "`dta_reporter` watches, measures and copies packets as `postcards` does, but for drops, and sends a DTA Key-Write in place of a Telemetry Report: \
         the second table is what that changes.",
    ));
    Observations::remarks(remarks)
}

/// Returns a program's shares of the resources as a series of bars.
fn bars(report: &Report, program: &str) -> Result<Series, CliError> {
    let mut bars = Series::new(program, Style::Bars, []);
    for (index, resource) in (0_u32..).zip(RESOURCES) {
        let share = report.resource(program, resource.name)?.percent();
        bars.points.push((f64::from(index), share).into());
    }
    Ok(bars)
}

fn plot(table: &mut Table, report: &Report, title: &str, programs: &[&str]) -> Result<(), CliError> {
    let series = programs.iter().map(|program| bars(report, program));
    let axes = [
        named(RESOURCES.map(|resource| resource.label)),
        linear("of the chip (%)"),
    ];
    table.plot(
        title,
        "by the compiler's reports",
        axes,
        series.collect::<Result<_, _>>()?,
    );
    Ok(())
}

fn programs(report: &Report) -> Result<Table, CliError> {
    let columns = format!("resource,available,{}", PROGRAMS.join(","));
    let mut table = Table::new("programs", "What the programs take of a Tofino 1", columns);
    for (name, about) in COUNTS {
        let mut row = row![about, name.ends_with("stages").then_some(Cell::Count(12))];
        for program in PROGRAMS {
            row.push(Cell::Count(report.count(program, name)?));
        }
        table.push(row);
    }
    for Resource { name, title, .. } in RESOURCES {
        let mut row = row![title, report.resource(PROGRAMS[0], name)?.available];
        for program in PROGRAMS {
            row.push(Cell::Count(report.resource(program, name)?.used));
        }
        table.push(row);
    }
    plot(&mut table, report, "Shares of a Tofino 1", &PROGRAMS)?;
    Ok(table)
}

fn reporters(report: &Report) -> Result<Table, CliError> {
    let columns = "resource,postcards,dta_reporter,ratio,postcards_percent,dta_reporter_percent";
    let mut table = Table::new("reporters", "Reports over UDP and by DTA", columns);
    for Resource { name, title, .. } in RESOURCES {
        let udp = report.resource("postcards", name)?;
        let dta = report.resource("dta_reporter", name)?;
        let ratio = (udp.used > 0).then(|| fixed(dta.used as f64 / udp.used as f64, 2));
        let shares = [udp, dta].map(|usage| fixed(usage.percent(), 1));
        table.push(row![title, udp.used, dta.used, ratio, shares]);
    }
    let title = "A reporter over UDP and one by DTA";
    plot(&mut table, report, title, &["postcards", "dta_reporter"])?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_other_programs_is_refused() {
        assert!(Report::read(REPORT).is_ok());
        let error = Report::read(r#"{"programs":{"int":{}}}"#)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("the report is of other programs: [\"int\"]"),
            "{error}"
        );
        let report = Report(serde_json::json!({ "programs": { "int": { "sram": [24, 960] } } }));
        assert_eq!(
            report.resource("int", "sram").unwrap().text(),
            "24 of 960 (2.5 %)"
        );
        assert!(report.resource("int", "tcam").is_err());
    }

    #[test]
    fn the_largest_share_is_that_of_the_rows() {
        let csv = format!(
            "resource,available,{}\nstages,12{}\ntables,{}\nSRAM blocks,100{}\nTCAM blocks,10{}\n",
            PROGRAMS.join(","),
            ",12".repeat(PROGRAMS.len()),
            ",97".repeat(PROGRAMS.len()),
            ",60".repeat(PROGRAMS.len()),
            ",5".repeat(PROGRAMS.len())
        );
        let remarks = observe(&Results::parse([("programs", &*csv)])).remarks;
        assert!(
            remarks[0].starts_with("Each program's largest share of a resource: `int` SRAM blocks, 60 %; "),
            "{remarks:?}"
        );
    }
}
