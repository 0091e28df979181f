//! Files that are replaced as a whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Replaces a file, which gets this mode. A crash leaves the old content or the new one; on return, the new one survives a power failure.
///
/// # Errors
/// It cannot be written: the old content is still there.
pub(crate) fn replace(file: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let begun = file.with_extension("begun");
    let mut out = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&begun)?;
    out.write_all(content)?;
    out.sync_all()?;
    fs::rename(&begun, file)?;
    // The name, too, must be on disk.
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
