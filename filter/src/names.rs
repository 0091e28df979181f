//! Names that filters can use in place of ids: those of nodes and of drop reasons.

/// Resolves the names in a filter. A function from the name of a node to its ID is one without names of drop reasons.
pub trait Names {
    /// Returns the ID of the node with this name.
    fn node(&self, name: &str) -> Option<u32>;

    /// Returns the codes of the drop reason with this name; devices can have several.
    fn reason_codes(&self, _name: &str) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the known names of drop reasons, for error messages.
    fn reason_names(&self) -> Vec<String> {
        Vec::new()
    }
}

impl<F: Fn(&str) -> Option<u32>> Names for F {
    fn node(&self, name: &str) -> Option<u32> {
        self(name)
    }
}

/// Returns `None` for every name; for [`Filter::parse`](crate::Filter::parse) where nodes have no names.
pub fn no_names(_: &str) -> Option<u32> {
    None
}

/// Returns the codes whose name is `name`, whatever its case and with spaces, `_` or `-` between words: pages show
/// `link down` for `link_down`.
pub fn codes_of<'a>(reasons: impl IntoIterator<Item = (u8, &'a str)>, name: &str) -> Vec<u8> {
    let letters = |text: &str| -> Vec<char> {
        let words = text.chars().map(|c| if matches!(c, '_' | '-') { ' ' } else { c });
        words.flat_map(char::to_lowercase).collect()
    };
    let name = letters(name);
    let reasons = reasons.into_iter().filter(|(_, known)| letters(known) == name);
    reasons.map(|(code, _)| code).collect()
}
