//! Looks up a profile (dialect, units, clocks) by the name given with `--profile`.

use collector::Profile;
use wire::Dialect;

use config::Settings;
use terminal::CliError;

/// Returns the configured profile with this name, or the built-in profile of a dialect.
pub(super) fn named(name: &str, settings: &Settings) -> Result<Profile, CliError> {
    let built_in: Vec<&str> = Dialect::ALL.iter().map(|dialect| dialect.name()).collect();
    if name == "default" || settings.profiles.contains_key(name) || built_in.contains(&name) {
        return Ok(settings.collect().profile(name));
    }
    let names: Vec<&str> = built_in
        .into_iter()
        .chain(settings.profiles.keys().map(String::as_str))
        .collect();
    Err(CliError::new(format!(
        "there is no profile `{name}`; there are {}",
        names.join(", ")
    )))
}
