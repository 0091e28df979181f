//! Enables a rule: it is added to the configuration file, which is then read again. Rules live there and nowhere else.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, sync::Arc};

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
};
use serde::Deserialize;
use serde_json::Value;

use super::read;
use crate::{
    api::{Context, params::Params, refusal::Refusal},
    config::Settings,
    save,
    view::EnabledView,
};

/// The body of a rule.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "NewRule"))]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRule {
    /// Its name.
    name: String,
    /// The condition, as in `[[rules]]`.
    #[cfg_attr(test, schemars(extend("format" = "rule")))]
    when: String,
}

/// Enables a rule. What is wrong with it is a refusal; a configuration that cannot be changed is an answer with the text to put there.
pub(crate) async fn enable(
    State(context): State<Arc<Context>>,
    params: Params,
    body: Result<Json<Value>, JsonRejection>,
) -> Result<Json<EnabledView>, Refusal> {
    params.only(&[])?;
    let NewRule { name, when } = read(body)?;
    let settings = context.active_config.settings();
    if !settings.collects() {
        return Err(Refusal::not_found("there is no collector in this process that evaluates rules"));
    }
    let text = written(&name, &when);
    // Beside the others: names, and the room for what rules remember.
    let mut rules: Vec<_> =
        settings.rules.iter().map(|rule| (rule.name.clone(), rule.when.clone())).collect();
    rules.push((name, when));
    detect::RuleSet::compile(&rules).map_err(|error| Refusal::bad(error.to_string()))?;
    let Some(file) = context.config_file.clone() else {
        let reason = "this process has no configuration file";
        return Ok(Json(EnabledView { enabled: false, reason: Some(reason.to_owned()), text }));
    };
    let _one = context.enabling.lock().await;
    let (path, added) = (file.clone(), text.clone());
    let kept = tokio::task::spawn_blocking(move || append(&path, &added)).await;
    let before = match kept {
        Ok(Ok(before)) => before,
        Ok(Err(reason)) => return Ok(Json(EnabledView { enabled: false, reason: Some(reason), text })),
        Err(_) => {
            return Err(Refusal::unavailable(
                "the rule was not added; this is a fault in hopwise, please report it",
            ));
        }
    };
    let problem = match context.control.reload().await {
        Ok(Ok(_)) => return Ok(Json(EnabledView { enabled: true, reason: None, text })),
        Ok(Err(problem)) => problem,
        Err(_) => "hopwise is stopping".to_owned(),
    };
    let restored = tokio::task::spawn_blocking(move || replace(&file, &before)).await;
    let kept = if matches!(restored, Ok(Ok(()))) {
        "the file is as it was"
    } else {
        "and the rule could not be removed from the file"
    };
    let reason = format!("the configuration with this rule is refused ({problem}); {kept}");
    Ok(Json(EnabledView { enabled: false, reason: Some(reason), text }))
}

/// A rule as TOML. The texts of JSON are texts of TOML, but for one control character, which no rule has.
fn written(name: &str, when: &str) -> String {
    let quoted = |text: &str| Value::from(text).to_string().replace('\u{7f}', "\\u007f");
    format!("[[rules]]\nname = {}\nwhen = {}\n", quoted(name), quoted(when))
}

/// Adds a text to the configuration file, if it is still a configuration then. Returns what was in it.
fn append(file: &Path, text: &str) -> Result<String, String> {
    let shown = file.display();
    let before = fs::read_to_string(file).map_err(|error| format!("{shown} cannot be read ({error})"))?;
    let separator = if before.is_empty() || before.ends_with('\n') { "\n" } else { "\n\n" };
    let after = format!("{before}{separator}{text}");
    Settings::parse(&after, &shown.to_string())
        .map_err(|error| format!("{shown} would be wrong with it ({})", error.to_string().trim_end()))?;
    replace(file, &after)?;
    Ok(before)
}

/// Replaces the file that this path leads to. It keeps its mode; its owner must be the one of this process, or it would change.
fn replace(file: &Path, content: &str) -> Result<(), String> {
    let shown = file.display();
    let cannot = |error: std::io::Error| format!("{shown} cannot be written ({error})");
    let file = fs::canonicalize(file).map_err(cannot)?;
    let found = fs::metadata(&file).map_err(cannot)?;
    let own = fs::metadata("/proc/self").map_err(cannot)?;
    if found.uid() != own.uid() {
        return Err(format!("{shown} belongs to another user"));
    }
    save::replace(&file, found.mode() & 0o777, content.as_bytes()).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_added_to_a_file_that_stays_a_configuration() {
        let folder = std::env::temp_dir().join(format!("hopwise-enable-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("h.toml");
        let text = written("deep \"queue\"\u{7f}", "queue_occupancy > 50\nand hops > 1");
        for before in
            ["", "# mine\n[[rules]]\nname = \"a\"\nwhen = \"hops > 9\"", "[store]\nenabled = false\n"]
        {
            fs::write(&file, before).unwrap();
            assert_eq!(append(&file, &text).as_deref(), Ok(before));
            let read = Settings::load(Some(&file)).unwrap();
            let last = read.rules.last().unwrap();
            assert_eq!(
                (last.name.as_str(), last.when.as_str()),
                ("deep \"queue\"\u{7f}", "queue_occupancy > 50\nand hops > 1")
            );
            assert!(fs::read_to_string(&file).unwrap().starts_with(before));
        }
        // A second one of this name is refused, and the file stays.
        let now = fs::read_to_string(&file).unwrap();
        assert!(append(&file, &text).unwrap_err().contains("two rules"));
        fs::write(&file, "rules = []\n").unwrap();
        assert!(append(&file, &text).unwrap_err().contains("would be wrong with it"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "rules = []\n");
        assert!(now.contains("[[rules]]"));
        assert!(append(Path::new("/nonexistent/h.toml"), &text).unwrap_err().contains("cannot be read"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
