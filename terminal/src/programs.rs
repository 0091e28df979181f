//! Finds and executes the other programs of this project: `hopwise`, `hopwise-lab` and `hopwise-bench`.

use std::{
    env,
    ffi::OsStr,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use crate::CliError;

/// Finds the program `name` beside the running executable or in `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    // Also right if the executable was replaced meanwhile: only the folder of the link counts.
    let beside = env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    find_in(name, beside.into_iter().chain(env::split_paths(&path)))
}

fn find_in(name: &str, mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.find_map(|folder| {
        let file = folder.join(name);
        // A relative entry would depend on the current directory.
        (folder.is_absolute() && is_executable(&file)).then_some(file)
    })
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Replaces this process by the program `name`. Returns only on failure; `remedy` is the advice if it is missing.
pub fn execute(name: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>, remedy: &str) -> CliError {
    let Some(program) = find(name) else {
        return CliError::new(format!(
            "the program {name} is not installed (neither beside this one nor in PATH); {remedy}"
        ));
    };
    let error = Command::new(&program).args(arguments).exec();
    CliError::io(format!("cannot run {}", program.display()), error, remedy)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_first_executable_file_of_the_name_is_found() {
        let root = env::temp_dir().join(format!("hopwise-programs-{}", std::process::id()));
        let folders = ["none", "folder", "text", "first", "second"].map(|name| root.join(name));
        for folder in &folders {
            fs::create_dir_all(folder).unwrap();
        }
        fs::create_dir_all(root.join("folder/hopwise-x")).unwrap();
        for (name, mode) in [("text", 0o644), ("first", 0o755), ("second", 0o755)] {
            let file = root.join(name).join("hopwise-x");
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        let found = find_in("hopwise-x", folders.iter().cloned());
        assert_eq!(found, Some(root.join("first/hopwise-x")));
        assert_eq!(find_in("hopwise-y", folders.into_iter()), None);
        // Where a command is typed does not matter.
        assert_eq!(find_in("src/lib.rs", [PathBuf::from("")].into_iter()), None);
        assert_eq!(find_in("Cargo.toml", [PathBuf::from(".")].into_iter()), None);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_missing_program_is_an_error_with_its_remedy() {
        let error = execute("hopwise-none", ["--help"], "install the package hopwise-none");
        assert_eq!(
            error.to_string(),
            "the program hopwise-none is not installed (neither beside this one nor in PATH); install the package hopwise-none"
        );
    }
}
