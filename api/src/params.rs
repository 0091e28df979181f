//! Query parameters and request bodies. Parameters are declared as [`Param`]s, which drive both the parser and the OpenAPI
//! document. Unknown names and invalid values are rejected with a message that names the remedy.

use std::str::FromStr;

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::request::Parts,
};
use collector::Kind;
use detect::Metric;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wire::FlowKey;

use super::refusal::Refusal;

/// Start of a time range.
pub(crate) const FROM: Param = Param::new(
    "from",
    "At or after: nanoseconds since the Unix epoch (years 2000 to 2199), or a time such as 2026-11-26T03:10Z.",
    Form::Time,
);
/// End of a time range.
pub(crate) const TO: Param = Param::new(
    "to",
    "At or before: nanoseconds since the Unix epoch (years 2000 to 2199), or a time such as 2026-11-26T03:10Z.",
    Form::Time,
);
/// Start of a past time span. With it or [`PAST_TO`], a list comes from the store instead of the live state.
pub(crate) const PAST_FROM: Param = Param::new(
    "from",
    "Start of a span of time, nanoseconds since the Unix epoch (years 2000 to 2199) or such as 2026-11-26T03:10Z; default: 15 minutes before its end. Without `from` and `to`: now.",
    Form::Time,
);
/// End of a past time span.
pub(crate) const PAST_TO: Param = Param::new(
    "to",
    "End of the span, nanoseconds since the Unix epoch (years 2000 to 2199) or such as 2026-11-26T03:10Z; default: now, which is later for each page. Both are rounded to whole minutes, so that the span grows.",
    Form::Time,
);
/// End of a past time span that is not rounded.
pub(crate) const EXACT_TO: Param = Param::new(
    "to",
    "End of the span, nanoseconds since the Unix epoch (years 2000 to 2199) or such as 2026-11-26T03:10Z; default: now.",
    Form::Time,
);
/// Restricts an answer to one node.
pub(crate) const NODE: Param = Param::integer("node", "Only this node.", 0, u32::MAX as u64);
/// Restricts an answer to one flow.
pub(crate) const FLOW: Param = Param::new(
    "flow",
    "Only this flow, for example 10.0.0.1:5000>10.0.0.2:80/17.",
    Form::Flow,
);
/// Filter expression that selects events.
pub(crate) const EVENT_FILTER: Param = Param::new(
    "filter",
    "Only events that match this filter, such as `kind == drop and src in 10.0.1.0/24`.",
    Form::Filter,
);
/// Name of an event kind.
pub(crate) const KIND: Param = Param::new(
    "kind",
    "Only this kind.",
    Form::OneOf(|| Kind::ALL.map(Kind::name).to_vec()),
);
/// Restricts an answer to one metric.
pub(crate) const METRIC: Param = Param::new(
    "metric",
    "Only this metric.",
    Form::OneOf(|| Metric::ALL.map(Metric::name).to_vec()),
);
/// Description of the accepted times, for messages.
const TIMES: &str = "a time such as 2026-11-26T03:10Z or 2026-11-26, or nanoseconds since the Unix epoch (years 2000 to 2199)";

/// Declaration of a query parameter, for the parser and the OpenAPI document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    /// Description in the OpenAPI document.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "only the generator of the document reads it")
    )]
    pub(crate) about: &'static str,
    pub(crate) form: Form,
}

/// Form of the values that a parameter accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Whole number from `min` to `max`.
    Integer {
        min: u64,
        max: u64,
        default: Option<u64>,
    },
    /// Point in time: ns since the Unix epoch (years 2000 to 2199), or a date and time as text.
    Time,
    /// Number between 0 and 1, both excluded.
    Share { default: f64 },
    /// Whole number, optionally with the suffix K, M or G.
    Count,
    /// One of these names.
    OneOf(fn() -> Vec<&'static str>),
    /// Flow key, such as `10.0.0.1:5000>10.0.0.2:80/17`.
    Flow,
    /// Cursor, from `next` of the previous page.
    Cursor {
        /// Regular expression that cursors match.
        #[cfg_attr(
            not(test),
            expect(dead_code, reason = "only the generator of the document reads it")
        )]
        pattern: &'static str,
        check: fn(&str) -> bool,
    },
    /// List of 1 to n of these names, separated by commas.
    Names(fn() -> Vec<&'static str>, usize),
    /// Text without restrictions on its form.
    Text,
    /// Condition in the language of [`filter`].
    Filter,
}

impl Param {
    /// Creates a parameter of this form.
    pub(crate) const fn new(name: &'static str, about: &'static str, form: Form) -> Self {
        Self { name, about, form }
    }

    /// Creates a parameter that is a whole number without a default.
    pub(crate) const fn integer(name: &'static str, about: &'static str, min: u64, max: u64) -> Self {
        Self::new(
            name,
            about,
            Form::Integer {
                min,
                max,
                default: None,
            },
        )
    }

    /// Creates the parameter for the maximum number of rows, at least 1.
    pub(crate) const fn limit(default: u64, max: u64) -> Self {
        Self::new(
            "limit",
            "Maximum number of rows.",
            Form::Integer {
                min: 1,
                max,
                default: Some(default),
            },
        )
    }

    /// Creates the parameter for the maximum number of columns (intervals) of a time span.
    pub(crate) const fn columns(about: &'static str, min: u64, default: u64, max: u64) -> Self {
        Self::new(
            "columns",
            about,
            Form::Integer {
                min,
                max,
                default: Some(default),
            },
        )
    }

    /// Creates the parameter for the number of rows to skip: the rows of earlier pages.
    pub(crate) const fn offset() -> Self {
        let form = Form::Integer {
            min: 0,
            max: u32::MAX as u64,
            default: Some(0),
        };
        Self::new("offset", "Rows to skip: `next` of the previous page.", form)
    }

    /// Rejects a value that the parameter does not accept.
    fn check(&self, text: &str) -> Result<(), Refusal> {
        let name = self.name;
        match self.form {
            Form::Integer { min, max, .. } => match text.parse::<u64>() {
                Ok(value) if (min..=max).contains(&value) => Ok(()),
                // Digits that do not fit into 64 bits are a number out of range, not a malformed one.
                Err(_) if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    self.unreadable(text, "a whole number")
                }
                _ => Err(Refusal::bad_request(format!(
                    "{name} = {text} is out of range; write {min} to {max}"
                ))),
            },
            Form::Time => match time(text) {
                Ok(_) => Ok(()),
                Err(Some(likely_time)) => {
                    self.unreadable(text, &format!("{likely_time} if you mean that: {TIMES}"))
                }
                Err(None) => self.unreadable(text, TIMES),
            },
            Form::Share { .. } => match text.parse::<f64>() {
                Ok(value) if value > 0.0 && value < 1.0 => Ok(()),
                _ => self.unreadable(text, "a share above 0 and below 1, such as 0.99"),
            },
            Form::OneOf(names) if !names().contains(&text) => {
                self.unreadable(text, &format!("one of {}", names().join(", ")))
            }
            Form::Flow if text.parse::<FlowKey>().is_err() => {
                self.unreadable(text, "a flow such as 10.0.0.1:5000>10.0.0.2:80/17")
            }
            Form::Count if dta::settings::Count::parse(text).is_none() => {
                self.unreadable(text, "a number such as 1000000 or 1M")
            }
            Form::Names(names, max)
                if text.split(',').count() > max || !text.split(',').all(|name| names().contains(&name)) =>
            {
                self.unreadable(
                    text,
                    &format!("1 to {max} of {}, separated by commas", names().join(", ")),
                )
            }
            Form::Cursor { check, .. } if !check(text) => {
                self.unreadable(text, "`next` of the previous page")
            }
            Form::OneOf(_)
            | Form::Names(..)
            | Form::Flow
            | Form::Count
            | Form::Cursor { .. }
            | Form::Text
            | Form::Filter => Ok(()),
        }
    }

    fn unreadable(&self, text: &str, remedy: &str) -> Result<(), Refusal> {
        Err(Refusal::bad_request(format!(
            "{} = {text:?} cannot be read; write {remedy}",
            self.name
        )))
    }
}

/// Query parameters of a request. `token` belongs to the guard and is allowed everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    pairs: Vec<(String, String)>,
    declared: &'static [Param],
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, state)
            .await
            .map_err(|error| {
                Refusal::bad_request(format!(
                    "the query string cannot be read: {error}; encode it as name=value&…"
                ))
            })?;
        Ok(Self { pairs, declared: &[] })
    }
}

impl Params {
    /// Rejects names that are not in `declared`, repeated names, and invalid values.
    pub(crate) fn only(mut self, declared: &'static [Param]) -> Result<Self, Refusal> {
        self.declared = declared;
        for (name, value) in self.pairs.iter().filter(|(name, _)| name != "token") {
            match declared.iter().find(|param| param.name == name) {
                Some(_) if self.pairs.iter().filter(|(other, _)| other == name).count() > 1 => {
                    return Err(Refusal::bad_request(format!(
                        "{name} is given more than once; remove all but one"
                    )));
                }
                // An empty text or filter means none; any other empty value is invalid.
                Some(param) if !value.is_empty() || !matches!(param.form, Form::Text | Form::Filter) => {
                    param.check(value)?
                }
                Some(_) => {}
                None => return Err(unknown(name, declared)),
            }
        }
        Ok(self)
    }

    /// Returns the value of a parameter; `None` if it is absent or empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    fn form(&self, name: &str) -> Option<Form> {
        let param = self.declared.iter().find(|param| param.name == name);
        param.map(|param| param.form)
    }

    /// Returns the value of a number or time, or else its default.
    pub(crate) fn number<T: FromStr + TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, Refusal> {
        let form = self.form(name);
        let Some(text) = self.text(name) else {
            return Ok(match form {
                Some(Form::Integer { default, .. }) => default.and_then(|number| T::try_from(number).ok()),
                _ => None,
            });
        };
        if let Some(Form::Time) = form {
            return Ok(time(text).ok().and_then(|time| T::try_from(time).ok()));
        }
        // `only` has checked the bounds; this fails only if `T` is narrower than they are.
        text.parse()
            .map(Some)
            .map_err(|_| Refusal::bad_request(format!("{name} = {text} is out of range")))
    }

    /// Returns the value of a number, or else its default.
    ///
    /// # Errors
    /// The parameter is absent and has no default.
    pub(crate) fn required_number<T: FromStr + TryFrom<u64>>(&self, name: &str) -> Result<T, Refusal> {
        self.number(name)?.ok_or_else(|| missing(name))
    }

    /// Returns the maximum number of rows.
    pub(crate) fn limit(&self) -> Result<usize, Refusal> {
        self.required_number("limit")
    }

    /// Returns the value of a share between 0 and 1, or else its default.
    ///
    /// # Errors
    /// The parameter is absent and has no default.
    pub(crate) fn share(&self, name: &str) -> Result<f64, Refusal> {
        let share = match (self.text(name), self.form(name)) {
            (Some(text), _) => text.parse().ok(),
            (None, Some(Form::Share { default })) => Some(default),
            (None, _) => None,
        };
        share.ok_or_else(|| missing(name))
    }

    /// Returns the value of a count such as `1M`.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.text(name)
            .and_then(dta::settings::Count::parse)
            .map(|count| count.0)
    }

    /// Returns the value of [`FLOW`].
    pub(crate) fn flow(&self) -> Option<FlowKey> {
        self.text(FLOW.name).and_then(|text| text.parse().ok())
    }

    /// Returns the value of [`KIND`].
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.text(KIND.name).and_then(Kind::from_name)
    }

    /// Returns the value of [`METRIC`].
    pub(crate) fn metric(&self) -> Option<Metric> {
        self.text(METRIC.name).and_then(Metric::from_name)
    }
}

/// Parses a time as ns since 1970. In a query string `+` is decoded as a space, so an offset may arrive as ` 05:30`. An error
/// may contain the time that a bare number probably means.
fn time(text: &str) -> Result<u64, Option<String>> {
    settings::time::parse(text)
        .or_else(|likely_time| settings::time::nanoseconds(&text.replace(' ', "+")).ok_or(likely_time))
}

fn missing(name: &str) -> Refusal {
    Refusal::bad_request(format!("{name} is missing; add {name}=NUMBER"))
}

fn unknown(name: &str, declared: &[Param]) -> Refusal {
    if declared.is_empty() {
        return Refusal::bad_request(format!("there is no parameter `{name}` here; remove it"));
    }
    let names: Vec<&str> = declared.iter().map(|param| param.name).collect();
    Refusal::bad_request(format!(
        "there is no parameter `{name}` here; use {}",
        names.join(", ")
    ))
}

/// One path segment, percent-decoded. A malformed one is rejected with a JSON error, like a malformed parameter.
#[derive(Clone, Debug)]
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|error| {
                Refusal::bad_request(format!("the path cannot be read: {}", error.body_text()))
            })?;
        Ok(Self(text))
    }
}

/// Extractor for requests without query parameters: rejects any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoParams;

impl<S: Send + Sync> FromRequestParts<S> for NoParams {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let params = Params::from_request_parts(parts, state).await?;
        params.only(&[]).map(|_| Self)
    }
}

/// JSON body of a request; errors are JSON too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let Json(value) = Json::<Value>::from_request(request, state)
            .await
            .map_err(|error| {
                Refusal::bad_request(format!(
                    "the body is not JSON: {}; send it with content-type: application/json",
                    error.body_text()
                ))
            })?;
        serde_json::from_value(value).map(Self).map_err(|error| {
            Refusal::bad_request(format!(
                "{error}; /api/v1/openapi.json describes the body of this request"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(pairs: &[(&str, &str)]) -> Params {
        let pairs = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Params { pairs, declared: &[] }
    }

    fn refused(declared: &'static [Param], name: &str, value: &str) -> Option<Refusal> {
        params(&[(name, value)]).only(declared).err()
    }

    #[test]
    fn a_time_is_a_number_or_a_text() {
        const TIMES: &[Param] = &[FROM, TO];
        let read = |text: &str| {
            params(&[("from", text)])
                .only(TIMES)
                .and_then(|params| params.number::<u64>("from"))
        };
        // The query string of +05:30 has a space there.
        for text in [
            "1795881600000000017",
            "2026-11-28T16:00:00.000000017Z",
            "2026-11-28T21:30:00.000000017 05:30",
        ] {
            assert_eq!(read(text), Ok(Some(1_795_881_600_000_000_017)), "{text}");
        }
        assert_eq!(read("0"), Ok(Some(0)));
        let forms = "a time such as 2026-11-26T03:10Z or 2026-11-26, or nanoseconds since the Unix epoch (years 2000 to 2199)";
        for text in ["-1", "17", "18446744073709551616", "2026-11-26T", "now"] {
            let expected = format!("from = {text:?} cannot be read; write {forms}");
            assert_eq!(read(text), Err(Refusal::bad_request(expected)));
        }
        for (text, likely_time) in [("20261129", "2026-11-29"), ("1764453600", "2025-11-29T22:00:00Z")] {
            let expected =
                format!("from = {text:?} cannot be read; write {likely_time} if you mean that: {forms}");
            assert_eq!(read(text), Err(Refusal::bad_request(expected)));
        }
    }

    #[test]
    fn an_unknown_name_and_a_bad_value_are_refused_with_the_remedy() {
        const LIMIT: &[Param] = &[Param::limit(10, 100)];
        let unknown = params(&[("token", "x"), ("limt", "1")]).only(LIMIT).err();
        assert_eq!(
            unknown,
            Some(Refusal::bad_request(
                "there is no parameter `limt` here; use limit"
            ))
        );
        let names = "new, change, path_change, path_loop, rule_on, rule_off, drop, loss, expired, hop_limit, mtu, latest, packet_loss";
        let kind = Refusal::bad_request(format!("kind = \"nwe\" cannot be read; write one of {names}"));
        assert_eq!(refused(&[KIND], "kind", "nwe"), Some(kind));
        for value in ["0", "101", "18446744073709551616"] {
            let range = Refusal::bad_request(format!("limit = {value} is out of range; write 1 to 100"));
            assert_eq!(refused(LIMIT, "limit", value), Some(range));
        }
        let number = Refusal::bad_request("limit = \"-1\" cannot be read; write a whole number");
        assert_eq!(refused(LIMIT, "limit", "-1"), Some(number));
        assert!(refused(LIMIT, "limit", "").is_some());
        assert_eq!(params(&[]).only(LIMIT).unwrap().limit(), Ok(10));
        assert_eq!(params(&[("limit", "100")]).only(LIMIT).unwrap().limit(), Ok(100));
        let twice = Refusal::bad_request("limit is given more than once; remove all but one");
        assert_eq!(
            params(&[("limit", "9"), ("limit", "9")]).only(LIMIT).err(),
            Some(twice)
        );
    }
}
