//! Advice for I/O errors that mean the same wherever they occur: full disk, quota, read-only file system, failing disk.

use std::io::{self, ErrorKind};

/// Linux's `EIO`, for which Rust has no `ErrorKind`.
const EIO: i32 = 5;

/// Returns the remedy for a failed write, if the error alone determines it. Missing permissions and paths are not included:
/// there the caller knows more.
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::StorageFull => Some("free space there"),
        ErrorKind::QuotaExceeded => Some("free space there, or raise the quota of this user"),
        ErrorKind::ReadOnlyFilesystem => Some(
            "remount it read-write (`dmesg` shows why, if it was writable before), or choose another directory",
        ),
        _ => (error.raw_os_error() == Some(EIO)).then_some("check the disk: `dmesg` shows its errors"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_fits_the_error() {
        let remedies = [28, 122, 30, EIO, 13, 2].map(|number| remedy(&io::Error::from_raw_os_error(number)));
        assert_eq!(
            remedies,
            [
                Some("free space there"),
                Some("free space there, or raise the quota of this user"),
                Some(
                    "remount it read-write (`dmesg` shows why, if it was writable before), or choose another directory"
                ),
                Some("check the disk: `dmesg` shows its errors"),
                None,
                None
            ]
        );
    }
}
