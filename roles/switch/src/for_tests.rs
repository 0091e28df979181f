//! Reads switches from files, for tests.

use settings::{
    read::{Reader, span_of},
    section,
    setting::{Setting, tables},
};

use crate::settings::{SwitchSettings, check};

section! {
    /// A file with a switch alone.
    struct File("the file") {
        /// The switch.
        pub(crate) switch: Option<SwitchSettings> = None,
    }
}

/// The switch of a file with a switch alone.
pub(crate) fn parse(text: &str) -> Result<SwitchSettings, String> {
    let mut reader = Reader::new(text);
    let root = reader
        .parse(tables::<File>)
        .ok_or_else(|| reader.messages().concat())?;
    let file = File::read(&root, &mut reader).unwrap_or_default();
    reader.end_values(&root);
    let switch = file.switch.unwrap_or_default();
    check(&switch, &mut |path, message| {
        reader.refuse(span_of(&root, path), message)
    });
    reader.finish("h.toml").map_err(|error| error.to_string())?;
    Ok(switch)
}
