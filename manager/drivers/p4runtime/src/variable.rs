//! Values in the entries of a pipeline map: constants, and variables that a rule or the device's settings give.

use std::fmt;

use settings::read::{Node, Reader};
use settings::setting::{Setting, Shown};

/// Results of a comparison that make each operator true, by the operator's number in [`detect::table::Row`]. A bit set of less (4),
/// equal (2) and greater (1).
pub(crate) const RESULTS: [u8; 6] = [4, 6, 1, 3, 2, 5];

/// The value of a match field or parameter in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A constant of up to 128 bits.
    Number(u128),
    /// A constant inclusive range of a match field.
    Range(u64, u64),
    /// A value from the rule or the device's settings.
    Variable(Variable),
}

/// Declares the variables with their names in maps, their scopes, and their descriptions in the reference.
macro_rules! variables {
    ($($(#[doc = $text:literal])+ $name:ident = $word:literal in $kinds:ident),* $(,)?) => {
        /// A value that the rule or the device gives.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Variable {
            $($(#[doc = $text])+ $name),*
        }

        impl Variable {
            /// All variables, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the variable's name in a map.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }

            /// Returns the description for the reference.
            pub fn text(self) -> String {
                let lines: &[&str] = match self { $(Self::$name => &[$($text),+]),* };
                lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
            }

            /// Returns the scope, which says what kinds of rules have this variable.
            pub(crate) fn scope(self) -> Scope {
                match self { $(Self::$name => Scope::$kinds),* }
            }
        }
    };
}

/// The kinds of rules that have a variable; `RuleKind::has` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Any,
    Port,
    Session,
    Forwarding,
    Watch,
    Filter,
    Rule,
    Term,
    Clauses,
    Flows,
}

variables! {
    /// The node id of the device.
    Node = "node" in Any,
    /// The port by which reports leave.
    ReportPort = "report_port" in Any,
    /// The source address of reports.
    ReportSource = "report_source" in Any,
    /// The source MAC address of reports.
    ReportSourceMac = "report_source_mac" in Any,
    /// The MAC address to which reports are sent: the collector's, or the next router's.
    ReportMac = "report_mac" in Any,
    /// The port of a rule.
    Port = "port" in Port,
    /// The address of the collector.
    Collector = "collector" in Session,
    /// The UDP port of the collector.
    CollectorPort = "collector_port" in Session,
    /// The destination of a route of the device's settings. Such an entry is made for each route.
    Route = "route" in Forwarding,
    /// The port of the route.
    RoutePort = "route_port" in Forwarding,
    /// The MAC address of that port.
    RouteSourceMac = "route_source_mac" in Forwarding,
    /// The MAC address of the next hop.
    RouteMac = "route_mac" in Forwarding,
    /// A port whose MTU the device's settings have. Such an entry is made for each.
    MtuPort = "mtu_port" in Forwarding,
    /// The MTU of that port, bytes.
    Mtu = "mtu" in Forwarding,
    /// The source prefix of the flows.
    Src = "src" in Flows,
    /// The destination prefix of the flows.
    Dst = "dst" in Flows,
    /// The source ports of the flows.
    Sport = "sport" in Flows,
    /// The destination ports of the flows.
    Dport = "dport" in Flows,
    /// The IP protocol of the flows.
    Proto = "proto" in Flows,
    /// The DSCP before INT marks the packet.
    Dscp = "dscp" in Watch,
    /// The threshold: a greater difference is reported.
    Threshold = "threshold" in Filter,
    /// The number of a filter by rule, from `rule_filters`: no other one of the device has it.
    FilterNumber = "filter" in Rule,
    /// The clauses of a rule, a bit each: those that a comparison makes true, or those that must all hold.
    Clauses = "clauses" in Clauses,
    /// The value that is compared: flow latency 0, hops 1, loop 2, hop latency 3, queue occupancy 4, queue congestion 5, link utilization 6.
    TermSubject = "term_subject" in Term,
    /// The aggregation of the values of the hops: none 0, max 1, min 2, sum 3, avg 4, count 5, count of those for which it is true 6, any 7, all 8.
    TermAggregate = "term_aggregate" in Term,
    /// Only hops of this node; all-ones: every hop.
    TermNode = "term_node" in Term,
    /// When the comparison is true: 4 if less than `term_value`, 2 if equal, 1 if greater, or their sums.
    TermIf = "term_if" in Term,
    /// The right side of the comparison.
    TermValue = "term_value" in Term,
    /// Likewise, for the number of hops for which it is true.
    TermHopsIf = "term_hops_if" in Term,
    /// The right side of that.
    TermHops = "term_hops" in Term,
    /// The remaining hop count.
    Hops = "hops" in Watch,
    /// One packet of this many is measured; 1: all.
    Sample = "sample" in Watch,
    /// The number of what counts the packets of an entry that measures a share: no other such entry of the device has it.
    Sampler = "sampler" in Watch,
    /// The 4-byte words of a node's record.
    Words = "words" in Watch,
    /// The number of instruction bits that are set.
    Count = "count" in Watch,
    /// The instruction bitmap, bit 0 the most significant of 16.
    Bits = "bits" in Watch,
    /// Instruction bits 0 to 3.
    Bits0To3 = "bits_0_3" in Watch,
    /// Instruction bits 4 to 7.
    Bits4To7 = "bits_4_7" in Watch,
    /// Instruction bits 8 to 11.
    Bits8To11 = "bits_8_11" in Watch,
    /// Instruction bits 12 to 15.
    Bits12To15 = "bits_12_15" in Watch,
}

impl Variable {
    /// Returns the value of this variable for a comparison of a rule, or `None` if it is not one of a comparison.
    pub(crate) fn comparison_value(self, row: &detect::table::Row) -> Option<u128> {
        match self {
            Self::TermSubject => Some(row.subject.into()),
            Self::TermAggregate => Some(row.aggregate.into()),
            Self::TermNode => Some(row.node.into()),
            Self::TermIf => Some(true_results(row.comparison)),
            Self::TermValue => Some(row.value.into()),
            Self::TermHopsIf => Some(true_results(row.hops_comparison)),
            Self::TermHops => Some(row.hops.into()),
            _ => None,
        }
    }

    /// Returns whether the variable selects packets, so that it belongs in a key.
    pub(crate) fn is_key(self) -> bool {
        matches!(
            self,
            Self::Route | Self::Src | Self::Dst | Self::Sport | Self::Dport | Self::Proto | Self::Dscp
        )
    }

    /// Returns which 4 bits of the instruction bitmap it is, counted from the least significant nibble.
    pub(crate) fn nibble(self) -> Option<u32> {
        match self {
            Self::Bits0To3 => Some(3),
            Self::Bits4To7 => Some(2),
            Self::Bits8To11 => Some(1),
            Self::Bits12To15 => Some(0),
            _ => None,
        }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Setting for Value {
    const KIND: &'static str =
        "a number, a range such as \"0-3\", or the name of a value in quotes, such as \"port\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let Some(word) = node.get_ref().as_str() else {
            return u64::read(node, reader).map(|number| Self::Number(number.into()));
        };
        if let Some(range) = range(word) {
            return Some(range);
        }
        let variable = Variable::ALL.iter().find(|variable| variable.name() == word);
        if variable.is_none() {
            let words: Vec<&str> = Variable::ALL.iter().map(|variable| variable.name()).collect();
            let advice = settings::read::nearest(word, &words).map_or_else(
                || format!("use one of: {}", words.join(", ")),
                |name| format!("did you mean `{name}`?"),
            );
            reader.refuse(node.span(), format!("there is no value `{word}`; {advice}"));
        }
        variable.copied().map(Self::Variable)
    }

    fn show(&self) -> Shown {
        match self {
            // Numbers in a file have at most 64 bits.
            Self::Number(number) => u64::try_from(*number).unwrap_or(u64::MAX).show(),
            Self::Range(first, last) => format!("{first}-{last}").show(),
            Self::Variable(variable) => variable.name().to_owned().show(),
        }
    }
}

/// Parses an inclusive range such as `0-3`.
fn range(word: &str) -> Option<Value> {
    let (first, last) = word.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let last: u64 = last.parse().ok()?;
    (first <= last).then_some(Value::Range(first, last))
}

/// Returns the results that make a comparison operator true.
fn true_results(comparison: u8) -> u128 {
    RESULTS.get(usize::from(comparison)).copied().unwrap_or(0).into()
}
