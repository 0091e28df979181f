//! Text format of rules, for operators and scripts: one rule per line, as a kind and `key=value` pairs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};
use std::str::FromStr;
use std::sync::Arc;

use detect::{Metric, Prefix};
use manager::device::{Encoding, Filter, FilterAlgorithm, L4Checksum, Mode, Rule, Rules, Watch};
use manager::flows::{ANY_PORT, FlowMatch, Ports};
use manager::instruction;

/// Largest DSCP (RFC 2474: six bits).
const MAX_DSCP: u8 = 63;
/// Number of the last bit of the INT instruction bitmap.
const MAX_INSTRUCTION_BIT: u8 = 15;

/// The contents of a file of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Rules of the file.
    pub rules: Rules,
    /// Lines that have no effect, without comments: not a rule, or a second rule for the same entry. They are preserved.
    pub foreign: Vec<String>,
}

impl Content {
    /// Parses lines. Empty lines and comments (a leading `#`, or ` #` within a line) are skipped.
    pub fn parse(text: &str) -> Self {
        let mut content = Self::default();
        let mut entries = BTreeSet::new();
        for line in text.lines() {
            let line = strip_comment(line);
            if line.is_empty() {
                continue;
            }
            match parse_rule(line) {
                Ok(rule) if content.rules.contains(&rule) => {}
                // If several rules need the same entry, the first one applies.
                Ok(rule) if entries.insert(entry_id(&rule)) => {
                    content.rules.insert(rule);
                }
                _ => content.foreign.push(line.to_owned()),
            }
        }
        content
    }

    /// Renders all lines: rules in canonical order, then foreign lines.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for rule in &self.rules {
            text.push_str(&rule_line(rule));
            text.push('\n');
        }
        for line in &self.foreign {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// Returns a string that identifies the table entry of a rule ([`Rule::same_entry`]).
fn entry_id(rule: &Rule) -> String {
    let mut text = String::new();
    match rule {
        Rule::Encoding(_) => text.push_str("encoding"),
        Rule::Session(_) => text.push_str("session"),
        Rule::DtaMap(_) => text.push_str("dta_map"),
        Rule::Watch(watch) => {
            text.push_str("watch");
            let _ = write_key(&mut text, &watch.key);
        }
        Rule::Filter(filter) => {
            text.push_str("filter");
            let _ = write_key(&mut text, &filter.key);
        }
        _ => text = rule_line(rule),
    }
    text
}

/// Returns the line without comment and surrounding space.
fn strip_comment(line: &str) -> &str {
    let line = line.trim();
    if line.starts_with('#') {
        ""
    } else {
        line.split(" #").next().unwrap_or_default().trim_end()
    }
}

/// Renders a rule as a line.
pub fn rule_line(rule: &Rule) -> String {
    let mut line = String::new();
    // Writing to a string cannot fail.
    let _ = write_rule(&mut line, rule);
    line
}

fn write_rule(out: &mut String, rule: &Rule) -> std::fmt::Result {
    match rule {
        Rule::Encoding(encoding) => {
            write!(
                out,
                "encoding dscp={} l4_checksum={}",
                encoding.dscp,
                encoding.l4_checksum.name()
            )
        }
        Rule::Session(collector) => write!(out, "session collector={collector}"),
        // For display only: it does not parse back, and devices behind files get no DTA map.
        Rule::DtaMap(map) => write!(out, "dta_map collectors={}", map.collectors.join(",")),
        Rule::Sink(port) => write!(out, "sink port={port}"),
        Rule::Instruction(bit) => write!(out, "instruction bit={bit} # {}", instruction::name(*bit)),
        Rule::Filter(filter) => {
            out.push_str("filter");
            write_key(out, &filter.key)?;
            let algorithm = filter.algorithm.name();
            let metric = filter.metric.name();
            write!(
                out,
                " algorithm={algorithm} metric={metric} threshold={}",
                filter.threshold
            )?;
            filter
                .rule
                .iter()
                .try_for_each(|rule| write!(out, " rule={rule}"))
        }
        Rule::Forwarding => out.write_str("forwarding"),
        Rule::Source(port) => write!(out, "source port={port}"),
        Rule::Watch(watch) => {
            out.push_str("watch");
            write_key(out, &watch.key)?;
            let Watch {
                mode,
                bits,
                hops,
                sample,
                drops,
                ..
            } = **watch;
            let drops = if drops { "yes" } else { "no" };
            write!(
                out,
                " mode={} bits={bits:#06x} hops={hops} sample={sample} drops={drops} # {}",
                mode.name(),
                instruction::names(bits)
            )
        }
    }
}

fn write_key(out: &mut String, key: &FlowMatch) -> std::fmt::Result {
    write_pair(out, "src", key.src)?;
    write_pair(out, "dst", key.dst)?;
    write_pair(out, "sport", ports_text(key.sport))?;
    write_pair(out, "dport", ports_text(key.dport))?;
    write_pair(out, "proto", key.proto)?;
    write_pair(out, "dscp", key.dscp)
}

fn write_pair(out: &mut String, name: &str, value: Option<impl Display>) -> std::fmt::Result {
    match value {
        Some(value) => write!(out, " {name}={value}"),
        None => Ok(()),
    }
}

fn ports_text((first, last): Ports) -> Option<String> {
    match (first, last) {
        ANY_PORT => None,
        _ if first == last => Some(first.to_string()),
        _ => Some(format!("{first}-{last}")),
    }
}

/// Parses the rule of a line without a comment.
///
/// # Errors
/// A sentence that describes the first problem.
pub fn parse_rule(line: &str) -> Result<Rule, String> {
    // The condition of a rule extends to the end of the line and may contain spaces.
    let (line, condition) = match line.split_once(" rule=") {
        Some((line, condition)) => (line, Some(condition.trim())),
        None => (line, None),
    };
    let mut words = line.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let mut pairs = Pairs::parse(words)?;
    let rule = match kind {
        "encoding" => {
            let l4_checksum = pairs.word("l4_checksum", |word| {
                [L4Checksum::Update, L4Checksum::Leave, L4Checksum::Zero]
                    .into_iter()
                    .find(|treatment| treatment.name() == word)
            })?;
            Rule::Encoding(Encoding {
                dscp: pairs.number("dscp", MAX_DSCP)?,
                l4_checksum,
            })
        }
        "session" => Rule::Session(pairs.value("collector")?),
        "sink" => Rule::Sink(pairs.value("port")?),
        "instruction" => Rule::Instruction(pairs.number("bit", MAX_INSTRUCTION_BIT)?),
        "filter" => {
            let algorithm = pairs.word("algorithm", FilterAlgorithm::from_name)?;
            if (algorithm == FilterAlgorithm::Rule) != condition.is_some() {
                return Err("a filter has a `rule` if that is its algorithm".to_owned());
            }
            Rule::Filter(Arc::new(Filter {
                key: pairs.key()?,
                algorithm,
                metric: pairs.word("metric", Metric::from_name)?,
                threshold: pairs.value("threshold")?,
                rule: condition.map(Arc::from),
            }))
        }
        "forwarding" => Rule::Forwarding,
        "source" => Rule::Source(pairs.value("port")?),
        "watch" => Rule::Watch(Arc::new(Watch {
            key: pairs.key()?,
            mode: pairs.word("mode", Mode::from_name)?,
            bits: pairs.word("bits", |text| {
                u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
            })?,
            hops: pairs.value("hops")?,
            sample: pairs.value("sample")?,
            drops: pairs.word("drops", |word| match word {
                "yes" => Some(true),
                "no" => Some(false),
                _ => None,
            })?,
        })),
        _ => return Err(format!("there is no rule `{kind}`")),
    };
    pairs.finish()?;
    Ok(rule)
}

/// The `key=value` pairs of a line that are not parsed yet.
struct Pairs<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Pairs<'a> {
    fn parse(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut pairs = BTreeMap::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("`{word}` is not key=value"))?;
            if pairs.insert(key, value).is_some() {
                return Err(format!("`{key}` is given twice"));
            }
        }
        Ok(Self(pairs))
    }

    fn optional<T: FromStr>(&mut self, key: &str) -> Result<Option<T>, String> {
        let value = self
            .0
            .remove(key)
            .map(|text| text.parse().map_err(|_| invalid_value(key, text)));
        value.transpose()
    }

    fn value<T: FromStr>(&mut self, key: &str) -> Result<T, String> {
        self.optional(key)?.ok_or_else(|| format!("`{key}` is missing"))
    }

    fn number(&mut self, key: &str, max: u8) -> Result<u8, String> {
        let number = self.value(key)?;
        if number <= max {
            Ok(number)
        } else {
            Err(invalid_value(key, &number.to_string()))
        }
    }

    fn word<T>(&mut self, key: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let text = self.0.remove(key).ok_or_else(|| format!("`{key}` is missing"))?;
        parse(text).ok_or_else(|| invalid_value(key, text))
    }

    fn ports(&mut self, key: &str) -> Result<Ports, String> {
        let Some(text) = self.0.remove(key) else {
            return Ok(ANY_PORT);
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
            _ => Err(invalid_value(key, text)),
        }
    }

    fn key(&mut self) -> Result<FlowMatch, String> {
        let dscp: Option<u8> = self.optional("dscp")?;
        if let Some(dscp) = dscp.filter(|dscp| *dscp > MAX_DSCP) {
            return Err(invalid_value("dscp", &dscp.to_string()));
        }
        Ok(FlowMatch {
            src: self.optional::<Prefix>("src")?,
            dst: self.optional::<Prefix>("dst")?,
            sport: self.ports("sport")?,
            dport: self.ports("dport")?,
            proto: self.optional("proto")?,
            dscp,
        })
    }

    fn finish(self) -> Result<(), String> {
        self.0
            .keys()
            .next()
            .map_or(Ok(()), |key| Err(format!("there is no key `{key}` here")))
    }
}

fn invalid_value(key: &str, text: &str) -> String {
    format!("invalid value `{text}` for `{key}`")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One rule of each kind, and of each form of a key.
    pub(crate) fn every_rule() -> Rules {
        let key = FlowMatch {
            src: "10.0.0.0/8".parse().ok(),
            dst: "10.1.0.9".parse().ok(),
            sport: (1000, 2000),
            dport: (80, 80),
            proto: Some(6),
            dscp: Some(10),
        };
        let watch = |key, mode| Watch {
            key,
            mode,
            bits: 0xf700,
            hops: 16,
            sample: 1,
            drops: true,
        };
        let v6 = FlowMatch {
            dst: "fd00::/16".parse().ok(),
            ..FlowMatch::default()
        };
        Rules::from([
            Rule::Encoding(Encoding {
                dscp: 9,
                l4_checksum: L4Checksum::Zero,
            }),
            Rule::Session("127.0.0.1:9555".parse().unwrap()),
            Rule::Sink(1),
            Rule::Instruction(0),
            Rule::Instruction(2),
            Rule::Filter(Arc::new(Filter {
                key,
                algorithm: FilterAlgorithm::PerHop,
                metric: Metric::HopLatency,
                threshold: 20_000,
                rule: None,
            })),
            Rule::Filter(Arc::new(Filter {
                key: v6,
                algorithm: FilterAlgorithm::Rule,
                metric: Metric::FlowPath,
                threshold: 0,
                rule: Some("max(queue_occupancy) > 50 or loop".into()),
            })),
            Rule::Forwarding,
            Rule::Source(1),
            Rule::Watch(Arc::new(watch(key, Mode::Md))),
            Rule::Watch(Arc::new(watch(v6, Mode::Postcard))),
            Rule::Watch(Arc::new(Watch {
                sample: 9,
                drops: false,
                ..watch(FlowMatch::default(), Mode::Mx)
            })),
        ])
    }

    #[test]
    fn rules_survive_text() {
        let content = Content {
            rules: every_rule(),
            foreign: vec!["ask=ops".to_owned()],
        };
        let text = content.render();
        assert_eq!(Content::parse(&text), content);
        let expected = "encoding dscp=9 l4_checksum=zero\nsession collector=127.0.0.1:9555\nsink port=1\n\
            instruction bit=0 # node_id\ninstruction bit=2 # hop_latency\n\
            filter dst=fd00::/16 algorithm=rule metric=flow_path threshold=0 rule=max(queue_occupancy) > 50 or loop\n\
            filter src=10.0.0.0/8 dst=10.1.0.9/32 sport=1000-2000 dport=80 proto=6 dscp=10 algorithm=per_hop \
            metric=hop_latency threshold=20000\nforwarding\nsource port=1\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("\nwatch dst=fd00::/16 mode=postcard bits=0xf700 hops=16 sample=1 drops=yes #"),
            "{text}"
        );
        assert!(text.ends_with("\nask=ops\n"), "{text}");
    }

    #[test]
    fn comments_are_left_out_and_contradictions_are_not_in_force() {
        let content = Content::parse(
            "# sink port=9\n\n  sink port=1   # by hand\nencoding dscp=1 l4_checksum=leave\nencoding dscp=2 l4_checksum=leave\n",
        );
        let first = Rule::Encoding(Encoding {
            dscp: 1,
            l4_checksum: L4Checksum::Leave,
        });
        assert_eq!(content.rules, Rules::from([first, Rule::Sink(1)]));
        assert_eq!(content.foreign, ["encoding dscp=2 l4_checksum=leave"]);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        let refused = |line: &str| parse_rule(line).unwrap_err();
        assert_eq!(refused("teleport"), "there is no rule `teleport`");
        assert_eq!(refused("sink 1"), "`1` is not key=value");
        assert_eq!(refused("sink"), "`port` is missing");
        assert_eq!(refused("sink port=1 port=2"), "`port` is given twice");
        assert_eq!(refused("sink port=-1"), "invalid value `-1` for `port`");
        assert_eq!(refused("sink port=1 speed=2"), "there is no key `speed` here");
        assert_eq!(refused("instruction bit=16"), "invalid value `16` for `bit`");
        assert_eq!(
            refused("encoding dscp=64 l4_checksum=leave"),
            "invalid value `64` for `dscp`"
        );
        let watch = |pairs: &str| {
            refused(&format!(
                "watch {pairs} mode=md bits=0x8000 hops=1 sample=1 drops=no"
            ))
        };
        assert_eq!(watch("dport=9-8"), "invalid value `9-8` for `dport`");
        assert_eq!(watch("dscp=64"), "invalid value `64` for `dscp`");
        assert_eq!(watch("src=10.0.0.0/99"), "invalid value `10.0.0.0/99` for `src`");
        assert_eq!(
            refused("watch mode=md bits=8000 hops=1 sample=1 drops=no"),
            "invalid value `8000` for `bits`"
        );
    }
}
