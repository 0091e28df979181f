//! The recursive-descent parser of the rule language: tokens to an [`Expression`].
//!
//! ```text
//! rule       = and { "or" and }
//! and        = unary { "and" unary }
//! unary      = "not" unary | ( "(" rule ")" | "loop" | comparison ) [ "for" reports [ "reports" ] ]
//! comparison = value sign number | number sign value | ( "any" | "all" ) "(" hop sign number ")"
//! value      = "flow_latency" | "hops" | hop | aggregate "(" hop ")" | "count" "(" hop sign number ")" | remembered
//! remembered = ( "previous" | "change" ) "(" one ")" | "average" "(" one [ "," weight ] ")"
//! one        = "flow_latency" | "hops" | ( "max" | "min" | "sum" | "count" ) "(" hop ")"
//! hop        = metric [ "@" node ]
//! aggregate  = "max" | "min" | "sum" | "avg" | "count" | "any" | "all"
//! ```

use super::error::Fault;
use super::expression::{Expression, ForError};
use super::history::{History, MAX_VALUE};
use super::lexer::{Lexer, Number, SpannedToken, Token, Unit};
use super::names;
use super::term::{Aggregate, Comparison, Subject, Term};
use crate::metric::Metric;
use crate::observation::{NO_NODE, UTILIZATION_ONE};

/// Maximum length of a rule's text, bytes.
pub(crate) const MAX_TEXT: usize = 4096;
/// Maximum nesting of parentheses and `not`, which bounds the recursion.
const MAX_DEPTH: usize = 64;

const AGGREGATES: [Aggregate; 7] = [
    Aggregate::Max,
    Aggregate::Min,
    Aggregate::Sum,
    Aggregate::Avg,
    Aggregate::Count,
    Aggregate::Any,
    Aggregate::All,
];

/// Default weight of a new value in an average, 256ths: a quarter.
const DEFAULT_WEIGHT: u8 = 64;

/// Parses the text of a rule.
pub(crate) fn parse(text: &str) -> Result<Expression, Fault> {
    if text.len() > MAX_TEXT {
        let message = format!("the rule has {} bytes; at most {MAX_TEXT} are read", text.len());
        return Err(Fault::new(0, 0, message));
    }
    let mut lexer = Lexer::new(text);
    let current = lexer.next()?;
    let mut parser = Parser {
        text,
        lexer,
        current,
        depth: 0,
    };
    let expression = parser.parse_or()?;
    match parser.current.token {
        Token::End => Ok(expression),
        Token::Close => Err(parser.fault("this `)` closes nothing")),
        Token::Comparison(_) => {
            Err(parser.fault("comparisons are not chained: write `1 < hops and hops < 5`"))
        }
        _ => Err(parser.fault("expected `and`, `or` or the end of the rule")),
    }
}

struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// The next token, which is not consumed yet.
    current: SpannedToken<'a>,
    /// Current nesting of parentheses and `not`.
    depth: usize,
}

/// The left side of a comparison, or a complete condition.
enum Value {
    Comparable(Term),
    Complete(Term),
}

impl<'a> Parser<'a> {
    /// Consumes the current token and returns it.
    fn advance(&mut self) -> Result<SpannedToken<'a>, Fault> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.current, next))
    }

    /// Consumes the current token if it equals `token`, and returns whether it does.
    fn accept(&mut self, token: Token<'_>) -> Result<bool, Fault> {
        let is_match = self.current.token == token;
        if is_match {
            self.advance()?;
        }
        Ok(is_match)
    }

    /// Consumes the `)` that closes `open`.
    fn expect_close(&mut self, open: SpannedToken<'_>) -> Result<(), Fault> {
        if self.accept(Token::Close)? {
            return Ok(());
        }
        if self.current.token == Token::End {
            return Err(Fault::new(
                open.start,
                open.len,
                "this `(` is never closed".into(),
            ));
        }
        Err(self.fault("expected `)`"))
    }

    fn fault(&self, message: &str) -> Fault {
        Self::fault_at(self.current, message.to_owned())
    }

    fn fault_at(spanned: SpannedToken<'_>, message: String) -> Fault {
        Fault::new(spanned.start, spanned.len, message)
    }

    /// Parses conditions joined by `or` (`rule` in the grammar).
    fn parse_or(&mut self) -> Result<Expression, Fault> {
        let mut operands = vec![self.parse_and()?];
        while self.accept(Token::Or)? {
            operands.push(self.parse_and()?);
        }
        Ok(if operands.len() == 1 {
            operands.remove(0)
        } else {
            Expression::Or(operands)
        })
    }

    /// Parses conditions joined by `and` (`and` in the grammar).
    fn parse_and(&mut self) -> Result<Expression, Fault> {
        let mut operands = vec![self.parse_unary()?];
        while self.accept(Token::And)? {
            operands.push(self.parse_unary()?);
        }
        Ok(if operands.len() == 1 {
            operands.remove(0)
        } else {
            Expression::And(operands)
        })
    }

    /// Parses a comparison, a parenthesis or a `not` (`unary` in the grammar).
    fn parse_unary(&mut self) -> Result<Expression, Fault> {
        if !matches!(self.current.token, Token::Not | Token::Open) {
            let comparison = self.parse_comparison().map(Expression::Term)?;
            return self.parse_for(comparison);
        }
        if self.depth == MAX_DEPTH {
            return Err(self.fault(&format!("`not` and parentheses nest deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        let open = self.advance()?;
        let expression = if open.token == Token::Not {
            Expression::Not(Box::new(self.parse_unary()?))
        } else {
            let inner = self.parse_or()?;
            self.expect_close(open)?;
            self.parse_for(inner)?
        };
        self.depth -= 1;
        Ok(expression)
    }

    /// Parses `for 5` or `for 5 reports` after a condition.
    fn parse_for(&mut self, condition: Expression) -> Result<Expression, Fault> {
        if self.current.token != Token::Name("for") {
            return Ok(condition);
        }
        let word = self.advance()?;
        let spanned = self.current;
        let Token::Number(number) = spanned.token else {
            return Err(self.fault("expected a number of reports behind `for`, such as 5"));
        };
        let is_plain_number = number.decimals == 0 && number.unit == Unit::None;
        let reports = u16::try_from(number.digits)
            .ok()
            .filter(|&reports| is_plain_number && reports >= 2);
        let reports = reports.ok_or_else(|| {
            self.fault("`for` counts the reports of a flow, from 2 to 65535: write `for 5`")
        })?;
        self.advance()?;
        self.accept(Token::Name("reports"))?;
        condition.lasting(reports, false).map_err(|error| {
            let message = match error {
                ForError::Nested => "there is a `for` in this condition already",
                ForError::Choice => {
                    "`for` counts one comparison, or several joined by `and`: the sides of an `or` may take turns; \
                     give each its own `for`"
                }
            };
            Self::fault_at(word, message.to_owned())
        })
    }

    /// Parses a comparison with the number on either side, or a complete condition such as `loop`.
    fn parse_comparison(&mut self) -> Result<Term, Fault> {
        if let Token::Number(number) = self.current.token {
            let spanned = self.advance()?;
            let sign = self.parse_sign("a number")?;
            let term = match self.parse_value()? {
                Value::Comparable(term) => term,
                Value::Complete(_) => {
                    return Err(Self::fault_at(
                        spanned,
                        "what follows is true or false by itself: it is not compared with a number".into(),
                    ));
                }
            };
            return self.complete_term(term, sign.mirrored(), number, spanned);
        }
        let term = match self.parse_value()? {
            Value::Complete(term) => return Ok(term),
            Value::Comparable(term) => term,
        };
        let sign = self.parse_sign("a value")?;
        let (number, spanned) = self.parse_number()?;
        self.complete_term(term, sign, number, spanned)
    }

    /// Consumes a comparison sign; `after` describes its left side for error messages.
    fn parse_sign(&mut self, after: &str) -> Result<Comparison, Fault> {
        let Token::Comparison(sign) = self.current.token else {
            return Err(self.fault(&format!("after {after}, expected a comparison: < <= > >= == !=")));
        };
        self.advance()?;
        Ok(sign)
    }

    fn parse_number(&mut self) -> Result<(Number, SpannedToken<'a>), Fault> {
        match self.current.token {
            Token::Number(number) => Ok((number, self.advance()?)),
            Token::Name(_) => Err(self.fault("a value is compared with a number, not with another value")),
            _ => Err(self.fault("expected a number, such as 50, 5ms or 80%")),
        }
    }

    /// Completes a term with the number on its right-hand side.
    fn complete_term(
        &self,
        term: Term,
        sign: Comparison,
        number: Number,
        spanned: SpannedToken<'_>,
    ) -> Result<Term, Fault> {
        if term.aggregate == Aggregate::CountWhere {
            let hops = to_smallest_unit(number, Scale::Plain("a number of hops"))
                .and_then(|hops| u32::try_from(hops).map_err(|_| "no report has so many hops".to_owned()));
            let hops = hops.map_err(|message| Self::fault_at(spanned, message))?;
            return Ok(Term {
                hops,
                hops_comparison: sign,
                ..term
            });
        }
        let value = to_smallest_unit(number, Scale::of(&term)).and_then(|value| {
            let is_share = term.subject == Subject::LinkUtilization
                && !matches!(term.aggregate, Aggregate::Sum | Aggregate::Count);
            if is_share {
                check_utilization(value)
            } else {
                Ok(value)
            }
        });
        let value = value.map_err(|message| Self::fault_at(spanned, message))?;
        if term.history != History::Now && value > MAX_VALUE {
            let message = format!("what is remembered is never greater than {MAX_VALUE}");
            return Err(Self::fault_at(spanned, message));
        }
        Ok(Term {
            value,
            comparison: sign,
            ..term
        })
    }

    /// Parses the left side of a comparison (`value` in the grammar), or a complete condition.
    fn parse_value(&mut self) -> Result<Value, Fault> {
        let Token::Name(name) = self.current.token else {
            let message = match self.current.token {
                Token::End if self.text.trim().is_empty() => "the rule is empty",
                Token::End => "the rule ends where a condition should be",
                Token::Close => "expected a condition before this `)`",
                _ => "expected a condition, such as max(queue_occupancy) > 50",
            };
            return Err(self.fault(message));
        };
        if let Some(aggregate) = AGGREGATES.into_iter().find(|aggregate| aggregate.name() == name) {
            return self.parse_aggregate(aggregate);
        }
        if let Some(history) = History::NAMED.into_iter().find(|history| history.name() == name) {
            return self.parse_remembered(history).map(Value::Comparable);
        }
        let subject = self.parse_subject()?;
        if subject == Subject::Loop {
            return Ok(Value::Complete(Term::flow(subject, Comparison::Equal, 1)));
        }
        if !subject.is_per_hop() {
            if self.current.token == Token::At {
                return Err(self.fault(&format!("{} belongs to the flow, not to a node", subject.name())));
            }
            return Ok(Value::Comparable(Term::flow(subject, Comparison::Equal, 0)));
        }
        // A per-hop metric without an aggregate means any hop.
        self.parse_node(subject, Aggregate::Any).map(Value::Comparable)
    }

    /// Parses `previous(…)`, `change(…)` or `average(…, weight)`, starting at the name.
    fn parse_remembered(&mut self, history: History) -> Result<Term, Fault> {
        let name = history.name();
        self.advance()?;
        let open = self.current;
        if !self.accept(Token::Open)? {
            let message = format!("`{name}` is of one value: write {name}(flow_latency)");
            return Err(Self::fault_at(open, message));
        }
        let spanned = self.current;
        if History::NAMED
            .into_iter()
            .any(|history| spanned.token == Token::Name(history.name()))
        {
            return Err(self.fault("history functions cannot be nested"));
        }
        let term = match self.parse_value()? {
            Value::Comparable(term) if is_one_number(&term) => term,
            _ => {
                let message = format!(
                    "{name}() is of one whole number: flow_latency, hops, or max(), min(), sum(), count() of a metric, \
                     as in {name}(max(queue_occupancy))"
                );
                return Err(Self::fault_at(spanned, message));
            }
        };
        let alpha = if history == History::Average {
            self.parse_weight()?
        } else {
            0
        };
        if let Token::Comparison(sign) = self.current.token {
            let sign = sign.symbol();
            return Err(self.fault(&format!("compare behind the parenthesis: {name}(…) {sign} …")));
        }
        self.expect_close(open)?;
        Ok(Term {
            history,
            alpha,
            ..term
        })
    }

    /// Parses the weight of new values in an average, 256ths.
    fn parse_weight(&mut self) -> Result<u8, Fault> {
        if !self.accept(Token::Comma)? {
            return Ok(DEFAULT_WEIGHT);
        }
        let (number, spanned) = self.parse_number()?;
        let divisor = match number.unit {
            Unit::None => Some(1),
            Unit::Percent => Some(100),
            Unit::Time(_) | Unit::Factor(_) => None,
        };
        let weight = divisor.and_then(|divisor| {
            let numerator = u128::from(number.digits) * 256;
            let denominator = divisor * 10u128.pow(number.decimals);
            // Rounds to the nearest 256th.
            u8::try_from((numerator * 2 + denominator) / (denominator * 2))
                .ok()
                .filter(|&weight| weight > 0)
        });
        weight.ok_or_else(|| {
            let message = "the weight of a new value in an average is between 0.004 and 0.996, such as 0.25";
            Self::fault_at(spanned, message.to_owned())
        })
    }

    /// Parses an aggregate such as `max(…)`, starting at the name.
    fn parse_aggregate(&mut self, aggregate: Aggregate) -> Result<Value, Fault> {
        let name = self.advance()?;
        let open = self.current;
        if !self.accept(Token::Open)? {
            let name = aggregate.name();
            return Err(Self::fault_at(
                open,
                format!("`{name}` is over the hops: write {name}(queue_occupancy)"),
            ));
        }
        let spanned = self.current;
        let subject = match spanned.token {
            Token::Name(_) => self.parse_subject()?,
            _ => return Err(self.fault("expected a metric of a hop, such as queue_occupancy")),
        };
        if !subject.is_per_hop() {
            let subject = subject.name();
            let aggregate = aggregate.name();
            let message =
                format!("{subject} belongs to the flow, not to its hops: write it without {aggregate}()");
            return Err(Self::fault_at(spanned, message));
        }
        let mut term = self.parse_node(subject, aggregate)?;
        let mut is_complete = false;
        if let Token::Comparison(sign) = self.current.token {
            if !matches!(aggregate, Aggregate::Any | Aggregate::All | Aggregate::Count) {
                let name = aggregate.name();
                return Err(self.fault(&format!(
                    "compare behind the parenthesis: {name}({}) {} …",
                    subject.name(),
                    sign.symbol()
                )));
            }
            self.advance()?;
            let (number, spanned) = self.parse_number()?;
            let hop_value = Term {
                aggregate: Aggregate::Any,
                ..term
            };
            term = Term {
                aggregate,
                ..self.complete_term(hop_value, sign, number, spanned)?
            };
            is_complete = aggregate != Aggregate::Count;
            if !is_complete {
                term.aggregate = Aggregate::CountWhere;
            }
        }
        if matches!(self.current.token, Token::And | Token::Or) {
            let name = self.text[name.start..][..name.len].to_owned();
            return Err(self.fault(&format!(
                "one comparison fits into {name}(): write {name}(…) and {name}(…)"
            )));
        }
        self.expect_close(open)?;
        Ok(if is_complete {
            Value::Complete(term)
        } else {
            Value::Comparable(term)
        })
    }

    /// Consumes the name of a metric or other value, and suggests a similar name if it is unknown.
    fn parse_subject(&mut self) -> Result<Subject, Fault> {
        let spanned = self.current;
        let name = &self.text[spanned.start..][..spanned.len];
        if let Some(subject) = Subject::from_name(name) {
            self.advance()?;
            return Ok(subject);
        }
        if name == Metric::FlowPath.name() {
            return Err(self.fault(
                "flow_path is not a number: use `hops` for its length, `loop` for a node seen twice",
            ));
        }
        let known_names = Subject::ALL
            .iter()
            .map(|subject| subject.name())
            .chain(AGGREGATES.iter().map(|aggregate| aggregate.name()));
        let known_names = known_names.chain(History::NAMED.iter().map(|history| history.name()));
        let message = match names::nearest(name, known_names.chain(["and", "or", "not"])) {
            Some(similar) => format!("unknown name `{name}`: did you mean `{similar}`?"),
            None => {
                let subjects: Vec<&str> = Subject::ALL.iter().map(|subject| subject.name()).collect();
                format!("unknown name `{name}`: known are {}", subjects.join(", "))
            }
        };
        Err(Self::fault_at(spanned, message))
    }

    /// Parses `@node` after a per-hop metric, if it is there.
    fn parse_node(&mut self, subject: Subject, aggregate: Aggregate) -> Result<Term, Fault> {
        let mut term = Term {
            aggregate,
            ..Term::flow(subject, Comparison::Less, 0)
        };
        if self.accept(Token::At)? {
            let spanned = self.current;
            let Token::Number(number) = spanned.token else {
                return Err(self.fault("expected a node id behind `@`, such as 102 or 0x66"));
            };
            let is_plain_number = number.decimals == 0 && number.unit == Unit::None;
            let id = u32::try_from(number.digits)
                .ok()
                .filter(|&id| is_plain_number && id != NO_NODE);
            term.node = id.ok_or_else(|| self.fault("a node id is a whole number below 4294967295"))?;
            self.advance()?;
        }
        Ok(term)
    }
}

/// Returns whether the term's value is a single whole number, as history needs.
fn is_one_number(term: &Term) -> bool {
    use Aggregate::{Count, Flow, Max, Min, Sum};
    matches!(term.aggregate, Flow | Max | Min | Sum | Count)
}

/// The unit of a value, to which numbers are converted.
enum Scale {
    Nanoseconds,
    /// Millionths of the link's capacity.
    Fraction,
    /// A plain number, with its description for error messages.
    Plain(&'static str),
}

impl Scale {
    fn of(term: &Term) -> Self {
        match term.subject {
            _ if term.aggregate == Aggregate::Count => Self::Plain("a number of hops"),
            Subject::FlowLatency => Self::of_metric(Metric::FlowLatency),
            Subject::HopLatency => Self::of_metric(Metric::HopLatency),
            Subject::LinkUtilization => Self::of_metric(Metric::LinkUtilization),
            Subject::Hops | Subject::Loop => Self::of_metric(Metric::FlowPath),
            Subject::QueueOccupancy => Self::of_metric(Metric::QueueOccupancy),
            Subject::QueueCongestion => Self::of_metric(Metric::QueueCongestion),
        }
    }

    /// Returns the unit of a metric in rules and thresholds.
    fn of_metric(metric: Metric) -> Self {
        match metric {
            Metric::FlowPath => Self::Plain("a number of hops"),
            Metric::FlowLatency | Metric::HopLatency => Self::Nanoseconds,
            Metric::QueueOccupancy | Metric::QueueCongestion => Self::Plain("in the device's own units"),
            Metric::LinkUtilization => Self::Fraction,
        }
    }
}

/// Parses a metric's value written as in a rule: `5ms`, `64k`, `80%`.
///
/// # Errors
/// A message if the text is not a number, or its unit does not fit the metric.
pub fn amount(metric: Metric, text: &str) -> Result<u64, String> {
    let mut lexer = Lexer::new(text);
    let first = lexer.next().map_err(|fault| fault.message)?;
    let end = lexer.next().map_err(|fault| fault.message)?;
    match (first.token, end.token) {
        (Token::Number(number), Token::End) => {
            let value = to_smallest_unit(number, Scale::of_metric(metric))?;
            if metric == Metric::LinkUtilization {
                check_utilization(value)
            } else {
                Ok(value)
            }
        }
        _ => Err(format!("{text:?} is not a number with a unit")),
    }
}

/// Returns comparisons of a latency with a number below 1000 without a unit, such as `flow_latency > 5`. They compare with
/// nanoseconds, which is probably unintended. For warnings.
pub fn unlikely_latencies(text: &str) -> Vec<String> {
    let mut lexer = Lexer::new(text);
    let mut comparisons = Vec::new();
    let mut latency = None;
    let mut sign = None;
    while let Ok(SpannedToken { token, .. }) = lexer.next() {
        match token {
            Token::End => break,
            Token::Name(name) => {
                latency = Some(name).filter(|name| matches!(*name, "flow_latency" | "hop_latency"));
            }
            Token::Comparison(comparison) => sign = Some(comparison.symbol()),
            Token::Number(number) => {
                let Number {
                    digits,
                    decimals,
                    unit,
                } = number;
                let is_small = (1..1_000).contains(&digits) && decimals == 0 && unit == Unit::None;
                if let (Some(latency), Some(sign)) = (latency, sign.take())
                    && is_small
                {
                    comparisons.push(format!("{latency} {sign} {digits}"));
                }
            }
            _ => {}
        }
    }
    comparisons
}

/// Rejects a utilization above 100 %.
fn check_utilization(value: u64) -> Result<u64, String> {
    match value <= UTILIZATION_ONE {
        true => Ok(value),
        false => Err("a utilization is at most 100%: write 80% or 0.8".to_owned()),
    }
}

/// Converts a number to the value's smallest unit.
fn to_smallest_unit(number: Number, scale: Scale) -> Result<u64, String> {
    let factor = match (&scale, number.unit) {
        (Scale::Fraction, Unit::None) => UTILIZATION_ONE,
        (Scale::Fraction, Unit::Percent) => UTILIZATION_ONE / 100,
        (Scale::Fraction, Unit::Factor(factor)) => factor * UTILIZATION_ONE,
        (Scale::Nanoseconds, Unit::Time(factor)) => factor,
        (_, Unit::None) => 1,
        (_, Unit::Factor(factor)) => factor,
        (Scale::Nanoseconds, Unit::Percent) => return Err("a latency is a time: use ns, us, ms or s".into()),
        (Scale::Fraction, Unit::Time(_)) => {
            return Err("a utilization is a fraction: write 80% or 0.8".into());
        }
        (Scale::Plain(description), Unit::Percent) => {
            return Err(format!("this value is {description}: `%` has no meaning here"));
        }
        (Scale::Plain(description), Unit::Time(_)) => {
            return Err(format!(
                "this value is {description}: a unit of time has no meaning here"
            ));
        }
    };
    let scaled = u128::from(number.digits) * u128::from(factor);
    let divisor = 10u128.pow(number.decimals);
    if scaled % divisor != 0 {
        return Err(match scale {
            Scale::Nanoseconds => "finer than a nanosecond".into(),
            Scale::Fraction => "finer than a millionth".into(),
            Scale::Plain(description) => {
                format!("this value is {description}, which are whole: write a whole number")
            }
        });
    }
    // u64::MAX is reserved for absent values.
    let value = u64::try_from(scaled / divisor)
        .ok()
        .filter(|&value| value != u64::MAX);
    value.ok_or_else(|| "too great for 64 bits".into())
}
