//! Query parameters: unknown names and bad values are refused in words.

use std::str::FromStr;

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use collector::Kind;
use detect::Metric;
use wire::FlowKey;

use super::refusal::Refusal;
use crate::config::renamed;

/// The parameters of a request. `token` is the guard's, and always allowed.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    pairs: Vec<(String, String)>,
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Query(pairs) =
            Query::<Vec<(String, String)>>::from_request_parts(parts, state).await.map_err(|error| {
                Refusal::bad(format!("the query string cannot be read: {error}; encode it as name=value&…"))
            })?;
        Ok(Self { pairs })
    }
}

impl Params {
    /// Refuses every name that is not in `known`.
    pub(crate) fn only(self, known: &[&str]) -> Result<Self, Refusal> {
        match self.pairs.iter().find(|(name, _)| name != "token" && !known.contains(&name.as_str())) {
            Some((name, _)) if renamed::parameter(name).is_some_and(|new| known.contains(&new)) => {
                let new = renamed::parameter(name).unwrap_or_default();
                Err(Refusal::bad(format!("the parameter `{name}` is now `{new}`")))
            }
            Some((name, _)) if known.is_empty() => {
                Err(Refusal::bad(format!("there is no parameter `{name}` here; remove it")))
            }
            Some((name, _)) => {
                Err(Refusal::bad(format!("there is no parameter `{name}` here; use {}", known.join(", "))))
            }
            None => Ok(self),
        }
    }

    /// The value of `name`. An empty one is none.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// A number.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Refusal> {
        self.parsed(name, "a whole number", |text| text.parse().ok())
    }

    /// A number of rows: `default` when not given, at most `most`.
    pub(crate) fn limit(&self, default: usize, most: usize) -> Result<usize, Refusal> {
        match self.number("limit")? {
            None => Ok(default.min(most)),
            Some(limit) if (1..=most).contains(&limit) => Ok(limit),
            Some(limit) => Err(Refusal::bad(format!("limit = {limit} is out of range; write 1 to {most}"))),
        }
    }

    /// A flow, by its text.
    pub(crate) fn flow(&self) -> Result<Option<FlowKey>, Refusal> {
        self.parsed("flow", "a flow such as 10.0.0.1:5000>10.0.0.2:80/17", |text| text.parse().ok())
    }

    /// A kind of event, by its name.
    pub(crate) fn kind(&self) -> Result<Option<Kind>, Refusal> {
        let names = || Kind::ALL.map(Kind::name).join(", ");
        self.parsed("kind", names, |text| Kind::ALL.into_iter().find(|kind| kind.name() == text))
    }

    /// A metric, by its name.
    pub(crate) fn metric(&self) -> Result<Option<Metric>, Refusal> {
        let names = || Metric::ALL.map(Metric::name).join(", ");
        self.parsed("metric", names, Metric::from_name)
    }

    fn parsed<T>(
        &self,
        name: &str,
        what: impl Words,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let refused = || Refusal::bad(format!("{name} = {text:?} cannot be read; write {}", what.words()));
        parse(text).map(Some).ok_or_else(refused)
    }
}

/// What to write, made only when it is told.
trait Words {
    fn words(&self) -> String;
}

impl Words for &str {
    fn words(&self) -> String {
        (*self).to_owned()
    }
}

impl<F: Fn() -> String> Words for F {
    fn words(&self) -> String {
        format!("one of {}", self())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(pairs: &[(&str, &str)]) -> Params {
        Params {
            pairs: pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }

    #[test]
    fn a_misspelt_name_and_a_bad_value_are_refused_in_words() {
        let told = |result: Result<(), Refusal>| {
            format!("{:?}", result.err().map(axum::response::IntoResponse::into_response))
        };
        let unknown = params(&[("token", "x"), ("limt", "1")]).only(&["limit"]).map(|_| ());
        assert_eq!(unknown, Err(Refusal::bad("there is no parameter `limt` here; use limit")));
        let kind = params(&[("kind", "nwe")]).kind().map(|_| ());
        let names = "new, change, path_change, path_loop, rule_on, rule_off, drop, loss, expired, hop_limit, mtu, latest";
        assert_eq!(kind, Err(Refusal::bad(format!("kind = \"nwe\" cannot be read; write one of {names}"))));
        let limit = params(&[("limit", "0")]).limit(10, 100).map(|_| ());
        assert_eq!(limit, Err(Refusal::bad("limit = 0 is out of range; write 1 to 100")));
        assert_eq!(params(&[("limit", "")]).limit(10, 100), Ok(10));
        assert!(told(kind).contains("400"));
    }
}
