//! Loads a collector map: the JSON file by which reporters and queries choose the same one of several DTA (Direct Telemetry
//! Access) collectors.

use std::path::Path;

use dta::collector_map::{CollectorMap, LoadError};
use terminal::CliError;

/// Loads the map of several collectors from a file.
///
/// # Errors
/// The file cannot be read, or is not a map.
pub fn load(file: &Path) -> Result<CollectorMap, CliError> {
    let remedy = "make one with `hopwise map new NAME=URL …`";
    let shown = file.display();
    CollectorMap::load(file).map_err(|error| match error {
        LoadError::Read(error) => CliError::io(format!("cannot read {shown}"), error, remedy),
        LoadError::Json(error) => {
            CliError::new(format!("{shown} is no map of collectors: {error}; {remedy}"))
        }
        LoadError::Tables(wrong) => CliError::new(format!("{shown}: {wrong}")),
    })
}
