//! Filters in requests: parses conditions on flows and events, resolves names of nodes and drop reasons, and serves completions
//! at `/filter`.

use std::{
    cell::{Cell, OnceCell},
    collections::HashMap,
    sync::Arc,
};

use config::Settings;

use axum::extract::State;
use filter::{Completion, Fault, Field, Filter, View, complete};

use super::{
    context::Context,
    names,
    page::{self, Prepared},
    params::{Form, Param, Params},
    refusal::Refusal,
};
use view::{CompletionView, FaultView, FieldView, FilterHelp, NamesView};

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
    context: &Context,
    params: &Params,
    view: View,
) -> Result<Option<Arc<Filter>>, Refusal> {
    let Some(text) = params.text("filter") else {
        return Ok(None);
    };
    let settings = context.active_config.get();
    // Parse twice: node names may require a request to the manager, which is made only if the filter contains one.
    let placeholder = Placeholder {
        has_node_names: Cell::new(false),
        settings: &settings,
    };
    let placeholder_filter = Filter::parse(text, view, &placeholder);
    let filter = match placeholder.has_node_names.get() {
        false => placeholder_filter,
        true => Filter::parse(text, view, &Names::new(names::loader(context).await)),
    };
    let filter = filter.map_err(|fault| {
        let column = text
            .get(..fault.position)
            .map_or(0, |before| before.chars().count())
            + 1;
        Refusal::bad_request(format!(
            "the filter is wrong at character {column}: {}",
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
    let load_names = names::loader(&context).await;
    page::make(&context, move || {
        let names = Names::new(load_names);
        let fault = Filter::parse(&text, view, &names).err();
        let fault = fault.map(
            |Fault {
                 position,
                 length,
                 message,
             }| fault_view(&text, position, length, message),
        );
        let end = byte_offset(&text, cursor);
        let completions = complete(&text[..end], view, &names.sorted(), &names.reasons());
        let fields = Field::ALL.into_iter().filter(|field| field.is_of(view));
        FilterHelp {
            fault,
            completions: completions
                .into_iter()
                .map(
                    |Completion {
                         from,
                         text: completion,
                         about,
                     }| CompletionView {
                        from: utf16_len(&text, from),
                        text: completion,
                        about,
                    },
                )
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

/// Knows drop reasons, accepts any name of a node, and records whether there was one.
struct Placeholder<'a> {
    has_node_names: Cell<bool>,
    settings: &'a Settings,
}

impl filter::Names for Placeholder<'_> {
    fn node(&self, _name: &str) -> Option<u32> {
        self.has_node_names.set(true);
        Some(0)
    }

    fn reason_codes(&self, name: &str) -> Vec<u8> {
        let reasons = self.settings.collect().drop_reasons();
        filter::codes_of(reasons.iter().map(|(code, name)| (*code, name.as_str())), name)
    }

    fn reason_names(&self) -> Vec<String> {
        self.settings.collect().drop_reasons().into_values().collect()
    }
}

/// Names of nodes and drop reasons, loaded when the first one is needed.
struct Names<F> {
    load_names: Cell<Option<F>>,
    loaded: OnceCell<Loaded>,
}

struct Loaded {
    ids: HashMap<String, u32>,
    reasons: Vec<(u8, String)>,
}

impl<F: FnOnce() -> NamesView> Names<F> {
    fn new(load_names: F) -> Self {
        Self {
            load_names: Cell::new(Some(load_names)),
            loaded: OnceCell::new(),
        }
    }

    fn loaded(&self) -> &Loaded {
        self.loaded.get_or_init(|| {
            let view = self.load_names.take().map(|load| load()).unwrap_or_default();
            let nodes = view.nodes.into_iter();
            let reasons = view.drop_reasons.into_iter();
            Loaded {
                ids: nodes.filter_map(|node| Some((node.name?, node.node))).collect(),
                reasons: reasons.map(|reason| (reason.code, reason.name)).collect(),
            }
        })
    }

    fn sorted(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.loaded().ids.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn reasons(&self) -> Vec<&str> {
        self.loaded()
            .reasons
            .iter()
            .map(|(_, name)| name.as_str())
            .collect()
    }
}

impl<F: FnOnce() -> NamesView> filter::Names for Names<F> {
    fn node(&self, name: &str) -> Option<u32> {
        self.loaded().ids.get(name).copied()
    }

    fn reason_codes(&self, name: &str) -> Vec<u8> {
        let reasons = self.loaded().reasons.iter();
        filter::codes_of(reasons.map(|(code, name)| (*code, name.as_str())), name)
    }

    fn reason_names(&self) -> Vec<String> {
        self.reasons().into_iter().map(str::to_owned).collect()
    }
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
