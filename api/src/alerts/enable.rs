//! `POST /alerts/rules`: adds a rule to the configuration file, the only place where rules are kept, and reloads the
//! configuration. If the reload fails, the file is restored.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{Json, extract::State};
use serde::Deserialize;
use tokio::{
    sync::OwnedMutexGuard,
    task::{self, JoinError},
};

use crate::{
    context::Context,
    params::{Body, NoParams},
    refusal::Refusal,
};
use config::Settings;
use runtime::save;
use settings::show::quoted;
use view::EnabledView;

/// The body of a rule.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "NewRule"))]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRule {
    /// Name of the rule, unique among `[[rules]]`.
    name: String,
    /// The condition, as in `[[rules]]`.
    #[cfg_attr(test, schemars(extend("format" = "rule")))]
    when: String,
}

/// Enables a rule. An invalid rule is rejected. If the configuration file cannot be changed, the response has the text to add
/// by hand.
pub(crate) async fn enable(
    State(context): State<Arc<Context>>,
    _: NoParams,
    Body(NewRule { name, when }): Body<NewRule>,
) -> Result<Json<EnabledView>, Refusal> {
    let settings = context.active_config.get();
    if !settings.collects() {
        return Err(Refusal::not_found(
            "there is no collector in this process that evaluates rules",
        ));
    }
    let text = rule_toml(&name, &when);
    // The rule is compiled with the existing ones: names must differ, and all share one limit of state.
    let mut rules: Vec<_> = settings
        .rules
        .iter()
        .map(|rule| (rule.name.clone(), rule.when.clone()))
        .collect();
    rules.push((name, when));
    detect::RuleSet::compile(&rules).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let Some(file) = context.config_file.clone() else {
        let reason = "this process has no configuration file";
        return Ok(Json(EnabledView {
            enabled: false,
            reason: Some(reason.to_owned()),
            text,
        }));
    };
    let change_permit = Arc::clone(&context.rule_file_lock).lock_owned().await;
    let control = context.control.clone();
    let reload = async move {
        match control.reload().await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(problem)) => Err(problem),
            Err(_) => Err("hopwise is stopping".to_owned()),
        }
    };
    let outcome = append_and_reload(change_permit, file, text.clone(), reload)
        .await
        .map_err(|_| {
            Refusal::unavailable(
                "it is unknown whether the rule was enabled; this is a fault in hopwise, please report it",
            )
        })?;
    Ok(Json(EnabledView {
        enabled: outcome.is_ok(),
        reason: outcome.err(),
        text,
    }))
}

/// Appends a text to the configuration file and reloads; removes the text again if the configuration is rejected. The task
/// completes even if the client disconnects, and holds `change_permit` until then. The inner error is the reason that the rule
/// is not enabled.
async fn append_and_reload(
    change_permit: OwnedMutexGuard<()>,
    file: PathBuf,
    text: String,
    reload: impl Future<Output = Result<(), String>> + Send + 'static,
) -> Result<Result<(), String>, JoinError> {
    let work = async move {
        let _permit = change_permit;
        let path = file.clone();
        let change = match task::spawn_blocking(move || append(&path, &text)).await? {
            Ok(change) => change,
            Err(reason) => return Ok(Err(reason)),
        };
        let Err(problem) = reload.await else {
            return Ok(Ok(()));
        };
        let file_state = match task::spawn_blocking(move || restore(&file, &change)).await? {
            Ok(()) => "the file is as it was".to_owned(),
            Err(reason) => format!("and the rule could not be removed from the file: {reason}"),
        };
        Ok::<_, JoinError>(Err(format!(
            "the configuration with this rule is refused ({problem}); {file_state}"
        )))
    };
    tokio::spawn(work).await?
}

/// Formats a rule as TOML.
fn rule_toml(name: &str, when: &str) -> String {
    let name = quoted(name);
    let when = quoted(when);
    format!("[[rules]]\nname = {name}\nwhen = {when}\n")
}

/// Contents of a file before and after a change.
#[derive(Debug, PartialEq)]
struct Change {
    before: String,
    after: String,
}

/// Appends a text to the configuration file, if the result is a valid configuration.
fn append(file: &Path, text: &str) -> Result<Change, String> {
    let path = file.display();
    let before = fs::read_to_string(file).map_err(|error| format!("{path} cannot be read ({error})"))?;
    let separator = if before.is_empty() || before.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    let after = format!("{before}{separator}{text}");
    Settings::parse(&after, &path.to_string())
        .map_err(|error| format!("{path} would be wrong with it ({})", error.to_string().trim_end()))?;
    replace(file, &after)?;
    Ok(Change { before, after })
}

/// Undoes a change, unless somebody else has changed the file since.
fn restore(file: &Path, change: &Change) -> Result<(), String> {
    let path = file.display();
    let now = fs::read_to_string(file).map_err(|error| format!("{path} cannot be read ({error})"))?;
    if now != change.after {
        return Err(format!(
            "{path} was changed meanwhile; remove the rule from it by hand"
        ));
    }
    replace(file, &change.before)
}

/// Replaces the file behind this path, following symlinks. Mode and group are kept. The owner must be this process's user,
/// since a new file cannot keep another owner.
fn replace(file: &Path, content: &str) -> Result<(), String> {
    let path = file.display();
    let target = fs::canonicalize(file).map_err(|error| write_error(file, &error))?;
    let target_metadata = fs::metadata(&target).map_err(|error| write_error(file, &error))?;
    let process_metadata = fs::metadata("/proc/self").map_err(|error| write_error(file, &error))?;
    if target_metadata.uid() != process_metadata.uid() {
        return Err(format!("{path} belongs to another user"));
    }
    save::replace_alike(&target, content.as_bytes()).map_err(|error| write_error(file, &error))
}

fn write_error(file: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be written ({error})", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_added_to_a_file_that_stays_a_configuration() {
        let folder = std::env::temp_dir().join(format!("hopwise-enable-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("h.toml");
        let text = rule_toml("deep \"queue\"\u{7f}", "queue_occupancy > 50\nand hops > 1");
        for before in [
            "",
            "# mine\n[[rules]]\nname = \"a\"\nwhen = \"hops > 9\"",
            "[store]\nenabled = false\n",
        ] {
            fs::write(&file, before).unwrap();
            assert_eq!(append(&file, &text).unwrap().before, before);
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
        assert!(
            append(&file, &text)
                .unwrap_err()
                .contains("would be wrong with it")
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "rules = []\n");
        assert!(now.contains("[[rules]]"));
        assert!(
            append(Path::new("/nonexistent/h.toml"), &text)
                .unwrap_err()
                .contains("cannot be read")
        );
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_what_was_added_is_taken_back() {
        let dir = testkit::records::Dir::new("taken-back");
        let file = dir.path().join("h.toml");
        fs::write(&file, "# mine\n").unwrap();
        let change = append(&file, &rule_toml("deep", "hops > 1")).unwrap();
        let edited = format!("{}# theirs\n", change.after);
        fs::write(&file, &edited).unwrap();
        assert!(restore(&file, &change).unwrap_err().contains("changed meanwhile"));
        assert_eq!(fs::read_to_string(&file).unwrap(), edited);
        fs::write(&file, &change.after).unwrap();
        restore(&file, &change).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "# mine\n");
    }

    #[test]
    fn a_refused_rule_is_taken_back_also_when_the_requester_has_gone() {
        let dir = testkit::records::Dir::new("gone");
        let file = dir.path().join("h.toml");
        fs::write(&file, "# mine\n").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let enabling = Arc::new(tokio::sync::Mutex::new(()));
            let (asked, is_asked) = tokio::sync::oneshot::channel();
            let (answer, answered) = tokio::sync::oneshot::channel::<String>();
            let reload = async move {
                asked.send(()).unwrap();
                Err(answered.await.unwrap())
            };
            let change_permit = Arc::clone(&enabling).lock_owned().await;
            let adding =
                append_and_reload(change_permit, file.clone(), rule_toml("deep", "hops > 1"), reload);
            let requester = tokio::spawn(adding);
            is_asked.await.unwrap();
            requester.abort();
            assert!(requester.await.unwrap_err().is_cancelled());
            assert!(fs::read_to_string(&file).unwrap().contains("deep"));
            assert!(enabling.try_lock().is_err(), "it goes on");
            answer.send("no".to_owned()).unwrap();
            let _next = enabling.lock().await;
            assert_eq!(fs::read_to_string(&file).unwrap(), "# mine\n");
        });
    }
}
