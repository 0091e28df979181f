//! Reads intents from the `*.toml` files of a folder (`[manager] intents`).

use std::path::{Path, PathBuf};

use manager::intent::{self, IntentSettings, MAX_INTENTS};
use settings::read;
use terminal::CliError;

use manage_role::settings::supported;

/// Maximum number of files in the folder.
const MAX_FILES: usize = 10_000;

/// Reads the intents of the `*.toml` files in a folder, in the order of the file names. `names` has the existing intents with
/// their files, to detect duplicates.
///
/// # Errors
/// All problems, each with its file and line.
pub(crate) fn intents(
    folder: &Path,
    mut names: Vec<(String, String)>,
    collects: bool,
) -> Result<Vec<IntentSettings>, CliError> {
    let now = nic::time::now();
    let mut all = Vec::new();
    let mut problems = Vec::new();
    for file in files(folder)? {
        let file_name = file.display().to_string();
        let text = match read::file(&file) {
            Ok(text) => text,
            Err(error) => {
                problems.push(format!(
                    "cannot read {file_name}: {error}; correct or remove the file"
                ));
                continue;
            }
        };
        let settings = match intent::read_settings(&text, &file_name, now) {
            Ok(settings) => settings,
            Err(error) => {
                problems.push(error.to_string());
                continue;
            }
        };
        for intent in settings.iter().map(IntentSettings::intent) {
            if let Err((_, message)) = supported(&intent, collects) {
                problems.push(format!("{file_name}: `{}`: {message}", intent.name));
            }
            if let Some((_, other_file)) = names.iter().find(|(name, _)| *name == intent.name) {
                let name = &intent.name;
                problems.push(format!(
                    "{file_name}: there is an intent `{name}` in {other_file} already; rename one"
                ));
            } else {
                names.push((intent.name, file_name.clone()));
            }
        }
        all.extend(settings);
    }
    if names.len() > MAX_INTENTS {
        problems.push(format!(
            "there are more than {MAX_INTENTS} intents; use wider prefixes"
        ));
    }
    if problems.is_empty() {
        Ok(all)
    } else {
        Err(CliError::new(problems.join("\n")))
    }
}

/// Lists the TOML files of the folder by name, without hidden ones, such as editors' temporary files.
fn files(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| read_error(folder, error))? {
        let file = entry.map_err(|error| read_error(folder, error))?.path();
        let is_hidden = file
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && file.extension().is_some_and(|extension| extension == "toml") {
            files.push(file);
        }
        if files.len() > MAX_FILES {
            let message = format!(
                "{} has more than {MAX_FILES} files; write several intents into a file",
                folder.display()
            );
            return Err(CliError::new(message));
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn read_error(folder: &Path, error: std::io::Error) -> CliError {
    let remedy = "name a readable folder in [manager] intents, or remove the key";
    CliError::io(format!("cannot read {}", folder.display()), error, remedy)
}

#[cfg(test)]
mod tests {
    use crate::Settings;
    use settings::setting::Setting;

    #[test]
    fn intents_of_a_folder_follow_those_of_the_file() {
        let folder = std::env::temp_dir().join(format!("hopwise-intents-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("d")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let intent = |name: &str| format!("[[intents]]\nname = \"{name}\"\nwatch = [\"hop_latency\"]\n");
        write("2.toml", &(intent("b") + &intent("c")));
        write("10.toml", &intent("d"));
        write(".e.toml", "no TOML");
        write("e.txt", "no TOML");
        let config = folder.join("d/h.toml");
        let load = || Settings::load(Some(&config));
        let text = format!("[manager]\nintents = \"{}\"\n{}", folder.display(), intent("a"));
        std::fs::write(&config, text).unwrap();
        let settings = load().unwrap();
        let names: Vec<_> = settings
            .intents
            .iter()
            .map(|one| one.show().to_written()["name"].clone())
            .collect();
        assert_eq!(names, ["a", "d", "b", "c"]);
        // The effective settings are complete by themselves.
        assert_eq!(
            Settings::parse(&settings.to_toml(), "dump")
                .unwrap()
                .intents
                .len(),
            4
        );

        write("3.toml", &intent("a"));
        write("4.toml", "[[intents]]\nname = \"x\"\nwatch = [\"speed\"]\n");
        let error = load().unwrap_err().to_string();
        assert!(error.contains("3.toml: there is an intent `a` in "), "{error}");
        assert!(error.contains("4.toml:3:"), "{error}");
        std::fs::write(&config, "[manager]\nintents = \"/nonexistent\"\n").unwrap();
        assert!(load().unwrap_err().to_string().contains("[manager] intents"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
