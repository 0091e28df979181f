//! Files that are replaced as a whole.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt, PermissionsExt as _, fchown},
    path::Path,
};

/// Replaces a file, which gets this mode. A crash leaves the old content or the new one; on return, the new one survives a power failure.
///
/// # Errors
/// It cannot be written: the old content is still there.
pub(crate) fn replace(file: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let begun = file.with_extension("begun");
    let out = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&begun)?;
    finish(out, &begun, file, content)
}

/// Replaces a file that is there, and not by way of a link. The new one has its mode and its group.
///
/// # Errors
/// It cannot be written, or cannot have that mode or group: the old file is still there.
pub(crate) fn replace_alike(file: &Path, content: &[u8]) -> io::Result<()> {
    let found = fs::metadata(file)?;
    // A name that nobody else writes to, in this process or in another one.
    let begun = file.with_extension(format!("{}-{}.begun", std::process::id(), nic::time::now()));
    let out = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&begun)?;
    let is_alike = || {
        if out.metadata()?.gid() != found.gid() {
            fchown(&out, None, Some(found.gid()))?;
        }
        out.set_permissions(Permissions::from_mode(found.mode() & 0o7777))
    };
    let done = is_alike().and_then(|()| finish(out, &begun, file, content));
    if done.is_err() {
        // It may have got its name already.
        let _ = fs::remove_file(&begun);
    }
    done
}

fn finish(mut out: File, begun: &Path, file: &Path, content: &[u8]) -> io::Result<()> {
    out.write_all(content)?;
    out.sync_all()?;
    fs::rename(begun, file)?;
    // The name, too, must be on disk.
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::records::Dir;

    #[test]
    fn a_file_is_replaced_by_one_of_its_mode_and_group() {
        let dir = Dir::new("alike");
        let file = dir.path().join("h.toml");
        fs::write(&file, "old").unwrap();
        let own = fs::metadata(&file).unwrap().gid();
        // Only who may give files away can have one of another group.
        let other = own + 1;
        let is_given = std::os::unix::fs::chown(&file, None, Some(other)).is_ok();
        // A mode that no usual umask leaves to a new file.
        fs::set_permissions(&file, Permissions::from_mode(0o662)).unwrap();
        replace_alike(&file, b"new").unwrap();
        let found = fs::metadata(&file).unwrap();
        assert_eq!((found.mode() & 0o7777, found.gid()), (0o662, if is_given { other } else { own }));
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(dir.names(), ["h.toml"], "nothing else stays");
        assert!(replace_alike(&dir.path().join("none"), b"new").is_err());
    }
}
