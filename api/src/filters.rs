//! Filters in requests: parses conditions on flows and events, resolves names of nodes and drop reasons, and serves completions
//! at `/filter`.

use std::{cell::LazyCell, sync::Arc};

use axum::extract::State;
use filter::{Field, Filter, View, complete};
use tokio::task;

use super::{
    context::Context,
    names,
    page::{self, Prepared},
    params::{Form, Param, Params},
    query::internal_error,
    refusal::Refusal,
};
use view::{CompletionView, FaultView, FieldView, FilterHelp, Names};

/// Query parameters of `/filter`.
pub(super) const FILTER: &[Param] = &[
    Param::new(
        "view",
        "Kind of records to filter; default: events.",
        Form::OneOf(|| View::ALL.map(View::name).to_vec()),
    ),
    Param::new("text", "The filter.", Form::Text),
    Param::integer(
        "at",
        "Position of the cursor, in UTF-16 code units; default: the end.",
        0,
        u32::MAX as u64,
    ),
];

/// Parses the parameter `filter` of a request; `None` if it is absent.
pub(super) async fn parse_condition(
    context: &Arc<Context>,
    params: &Params,
    view: View,
) -> Result<Option<Arc<Filter>>, Refusal> {
    let Some(text) = params.text("filter") else {
        return Ok(None);
    };
    let names = lazy_names(context);
    let filter = text.to_owned();
    // On a blocking thread, because names may require a request to the manager.
    let parsed = task::spawn_blocking(move || Filter::parse(&filter, view, &names));
    let filter = parsed.await.map_err(|_| internal_error())?.map_err(|fault| {
        let before = text.get(..fault.position).unwrap_or_default();
        Refusal::bad_request(format!(
            "the filter is wrong at character {}: {}",
            before.chars().count() + 1,
            fault.message
        ))
    })?;
    Ok(Some(Arc::new(filter)))
}

/// Checks a filter, and returns possible completions and the available fields.
pub(crate) async fn help(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    let params = params.only(FILTER)?;
    let view = if params.text("view") == Some(View::Flows.name()) {
        View::Flows
    } else {
        View::Events
    };
    let text = params.text("text").unwrap_or_default().to_owned();
    let cursor = params.number::<usize>("at")?.unwrap_or(usize::MAX);
    let loaded = names::load(&context).await?;
    page::make(&context, move || {
        let names = Names::from(loaded);
        let fault = Filter::parse(&text, view, &names).err();
        let fault = fault.map(|fault| fault_view(&text, fault.position, fault.length, fault.message));
        let end = byte_offset(&text, cursor);
        let reasons: Vec<&str> = names.drop_reasons().values().map(String::as_str).collect();
        let completions = complete(&text[..end], view, &names.node_names(), &reasons);
        let fields = Field::ALL.into_iter().filter(|field| field.is_of(view));
        FilterHelp {
            fault,
            completions: completions
                .into_iter()
                .map(|completion| CompletionView {
                    from: utf16_len(&text, completion.from),
                    text: completion.text,
                    about: completion.about,
                })
                .collect(),
            fields: fields
                .map(|field| FieldView {
                    name: field.name().into(),
                    about: field.about(view).into(),
                })
                .collect(),
        }
    })
    .await
}

/// Counts the UTF-16 code units before a byte offset; browsers count positions that way.
fn utf16_len(text: &str, byte: usize) -> usize {
    text.get(..byte).unwrap_or(text).encode_utf16().count()
}

/// Builds the view of a fault at byte `position` with `length` bytes, in UTF-16 code units.
pub(super) fn fault_view(text: &str, position: usize, length: usize, message: String) -> FaultView {
    let start = utf16_len(text, position);
    FaultView {
        position: start,
        length: utf16_len(text, position + length) - start,
        message,
    }
}

/// Converts a position in UTF-16 code units to a byte offset.
fn byte_offset(text: &str, unit: usize) -> usize {
    let mut units = 0;
    let character_at_unit = text.char_indices().find(|(_, character)| {
        let is_at_unit = units >= unit;
        units += character.len_utf16();
        is_at_unit
    });
    character_at_unit.map_or(text.len(), |(byte, _)| byte)
}

/// Names of nodes and drop reasons, loaded when a filter uses the first one.
pub(super) struct LazyNames<F>(LazyCell<Names, F>);

impl<F: FnOnce() -> Names> filter::Names for LazyNames<F> {
    fn node(&self, name: &str) -> Option<u32> {
        self.0.node_id(name)
    }

    fn reason_codes(&self, name: &str) -> Vec<u8> {
        self.0.reason_codes(name)
    }

    fn reason_names(&self) -> Vec<String> {
        self.0.reason_names()
    }
}

/// Returns the names for filters; they are loaded on the thread that parses the first filter with a name.
pub(super) fn lazy_names(context: &Arc<Context>) -> LazyNames<impl FnOnce() -> Names + Send + use<>> {
    let load_names = names::loader(context);
    LazyNames(LazyCell::new(move || load_names().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_as_browsers_do() {
        let text = "a\u{e9}\u{1f600}b";
        let bytes = [0, 1, 2, 3, 4, 5, 6].map(|cursor| byte_offset(text, cursor));
        assert_eq!(
            bytes,
            [0, 1, 3, 7, 7, 8, 8],
            "a character of two units is not divided"
        );
    }
}
