//! The secret that a translator and a collector share, the file that holds it, and the proofs and tags derived from it. The
//! secret itself is never sent.

use std::{
    fmt, fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use terminal::CliError;

/// Length of a nonce, a proof and a tag, bytes.
pub(crate) const LEN: usize = 32;
/// Allowed lengths of a secret, bytes.
const SECRET: std::ops::RangeInclusive<usize> = 16..=1024;
/// Prefix of all HMAC inputs: separates this exchange from other uses of the same secret.
const CONTEXT: &[u8] = b"hopwise dta exchange 1\0";

/// A random number for one connection.
pub(crate) type Nonce = [u8; LEN];

/// Draws a random nonce.
///
/// # Errors
/// The system provides no random numbers.
pub(crate) fn nonce() -> std::io::Result<Nonce> {
    let mut nonce = [0; LEN];
    getrandom::fill(&mut nonce).map_err(std::io::Error::from)?;
    Ok(nonce)
}

/// A side of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The side that connects, a translator.
    Translator,
    /// The side that owns the memory, a collector.
    Collector,
}

impl Side {
    /// Returns the direction that enters the HMAC, so that a message cannot be reflected to its sender.
    fn way(self) -> &'static [u8] {
        match self {
            Self::Translator => b"translator to collector\0",
            Self::Collector => b"collector to translator\0",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Translator => Self::Collector,
            Self::Collector => Self::Translator,
        }
    }
}

/// The nonces of both sides for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonces {
    pub(crate) translator: Nonce,
    pub(crate) collector: Nonce,
}

/// A shared secret, held as the key of an HMAC-SHA-256.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl Secret {
    /// Reads the secret in `file`, without white space at its ends.
    ///
    /// # Errors
    /// The file cannot be read, is accessible to others, or holds no valid secret. The message suggests a fix, and never
    /// contains the secret.
    pub fn read(file: &Path) -> Result<Self, CliError> {
        let named = file.display();
        // Check before opening, because opening a pipe would block.
        let metadata = fs::metadata(file).map_err(|error| unreadable(file, error))?;
        if !metadata.is_file() {
            return Err(CliError::new(format!(
                "{named} is no file; name one with the secret in it"
            )));
        }
        let opened = fs::File::open(file).map_err(|error| unreadable(file, error))?;
        let metadata = opened.metadata().map_err(|error| unreadable(file, error))?;
        let mode = metadata.permissions().mode();
        if mode & 0o007 != 0 {
            return Err(CliError::new(format!(
                "everybody on this machine may read or change the secret in {named} (mode {:o}): chmod o= {named}, and put a new secret \
                 into it, on both sides",
                mode & 0o777
            )));
        }
        let mut bytes = Vec::new();
        opened
            // One byte more than the longest secret and a newline, to detect files that are too long.
            .take(*SECRET.end() as u64 + 2)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(file, error))?;
        Self::from_bytes(bytes.trim_ascii()).ok_or_else(|| {
            CliError::new(format!(
                "what is in {named} is no secret: write {} to {} letters, digits and signs without spaces (openssl rand -hex 32)",
                SECRET.start(),
                SECRET.end()
            ))
        })
    }

    /// Returns the secret with this text, or `None` if its length or characters are invalid.
    pub(crate) fn from_bytes(text: &[u8]) -> Option<Self> {
        let is_valid = SECRET.contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
        is_valid
            .then(|| Hmac::new_from_slice(text).ok().map(Self))
            .flatten()
    }

    /// Returns the HMAC-SHA-256 of a purpose, a direction and both nonces. Each part has a fixed length or ends in a zero
    /// byte, so the input is unambiguous.
    fn mac(&self, purpose: &[u8], side: Side, nonces: &Nonces) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in [
            CONTEXT,
            purpose,
            side.way(),
            &nonces.translator,
            &nonces.collector,
        ] {
            mac.update(part);
        }
        mac
    }

    /// Returns the proof that `side` knows the secret.
    pub(crate) fn proof(&self, side: Side, nonces: &Nonces) -> [u8; LEN] {
        self.mac(b"proof\0", side, nonces).finalize().into_bytes().into()
    }

    /// Verifies the proof of `side`, in constant time.
    pub(crate) fn is_proof(&self, received: &[u8], side: Side, nonces: &Nonces) -> bool {
        self.mac(b"proof\0", side, nonces).verify_slice(received).is_ok()
    }

    /// Derives the keys of the tags after the proofs, for the messages that `own` sends and for those that it verifies.
    pub(crate) fn seals(&self, own: Side, nonces: &Nonces) -> Seals {
        Seals {
            own: self.seal(own, nonces),
            other: self.seal(own.other(), nonces),
        }
    }

    fn seal(&self, side: Side, nonces: &Nonces) -> Seal {
        let key = self.mac(b"messages\0", side, nonces).finalize().into_bytes();
        // The 32-byte key, zero-padded to the HMAC block.
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        block[..LEN].copy_from_slice(&key);
        Seal {
            key: Hmac::new(&block),
            count: 0,
        }
    }
}

fn unreadable(file: &Path, error: std::io::Error) -> CliError {
    CliError::io(
        format!("cannot read the secret in {}", file.display()),
        error,
        "make it: openssl rand -hex 32 > FILE; chmod 600 FILE (the user of hopwise must own it)",
    )
}

/// The tag generators of both directions.
#[derive(Debug)]
pub(crate) struct Seals {
    own: Seal,
    other: Seal,
}

impl Seals {
    /// Returns the tag of our next message.
    pub(crate) fn tag(&mut self, message: &[u8]) -> [u8; LEN] {
        self.own.next(message).finalize().into_bytes().into()
    }

    /// Verifies that this is the tag of the peer's next message.
    pub(crate) fn is_next(&mut self, tag: &[u8], message: &[u8]) -> bool {
        self.other.next(message).verify_slice(tag).is_ok()
    }
}

/// One direction's key and message counter. The counter prevents messages from being dropped, repeated or reordered.
struct Seal {
    key: Hmac<Sha256>,
    count: u64,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seal(hidden, {})", self.count)
    }
}

impl Seal {
    fn next(&mut self, message: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.key.clone();
        mac.update(&self.count.to_be_bytes());
        mac.update(message);
        self.count = self.count.wrapping_add(1);
        mac
    }
}

/// The secret in a file, which a configuration reload reads again.
#[derive(Debug)]
pub struct SecretFile {
    file: PathBuf,
    now: Mutex<Secret>,
}

impl SecretFile {
    /// Reads the secret of a setting `secret_file`, if it is set.
    ///
    /// # Errors
    /// The errors of [`Secret::read`].
    pub(crate) fn open(file: Option<&Path>) -> Result<Option<Arc<Self>>, CliError> {
        let Some(file) = file else { return Ok(None) };
        let now = Mutex::new(Secret::read(file)?);
        Ok(Some(Arc::new(Self {
            file: file.to_owned(),
            now,
        })))
    }

    /// Returns the active secret.
    pub(crate) fn current(&self) -> Secret {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again. The result takes effect with [`NewSecret::activate`].
    ///
    /// # Errors
    /// The errors of [`Secret::read`].
    pub fn reread(self: &Arc<Self>) -> Result<NewSecret, CliError> {
        Ok(NewSecret {
            file: Arc::clone(self),
            secret: Secret::read(&self.file)?,
        })
    }

    #[cfg(test)]
    pub(crate) fn fixed(text: &str) -> Arc<Self> {
        let now = Secret::from_bytes(text.as_bytes()).map(Mutex::new);
        Arc::new(Self {
            file: PathBuf::new(),
            now: now.unwrap_or_else(|| panic!("no secret: {text}")),
        })
    }
}

/// A secret that has been read but is not active yet.
#[derive(Debug)]
pub struct NewSecret {
    file: Arc<SecretFile>,
    secret: Secret,
}

impl NewSecret {
    /// Activates the secret for new connections.
    pub fn activate(self) {
        *self.file.now.lock().unwrap_or_else(PoisonError::into_inner) = self.secret;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::dta::fields::hex;

    const NONCES: Nonces = Nonces {
        translator: [1; LEN],
        collector: [2; LEN],
    };

    fn secret(text: &str) -> Secret {
        Secret::from_bytes(text.as_bytes()).unwrap()
    }

    /// Expectations by Python: `hmac.new(b"0123456789abcdef", b"hopwise dta exchange 1\0proof\0translator to collector\0" + b"\1" * 32 +
    /// b"\2" * 32, "sha256")`; the tag likewise with `messages`, and of that 32-byte key and `b"\0" * 7 + b"\1" + message`.
    #[test]
    fn proofs_and_tags_are_what_another_program_makes_of_them() {
        let secret = secret("0123456789abcdef");
        let proof = |side| hex(&secret.proof(side, &NONCES));
        assert_eq!(
            proof(Side::Translator),
            "505b7654e0f5b59def9cdd84866bf81cc8e560ba48882848e60438f979be68bf"
        );
        assert_eq!(
            proof(Side::Collector),
            "a6e2540ee0f68287b1ad776a65865bed5c17e937a63580cb6c1c90e5097dab2f"
        );
        let mut seals = secret.seals(Side::Translator, &NONCES);
        seals.tag(b"first");
        let tag = hex(&seals.tag(br#"{"type":"keepalive"}"#));
        assert_eq!(
            tag, "cd9f0e6bd236151620df9c1fe13a99cf30e741d74671451de443a6913804048b",
            "of the second message, number 1"
        );
    }

    #[test]
    fn a_proof_is_of_one_side_one_secret_and_one_connection() {
        let own = secret("0123456789abcdef");
        let proof = own.proof(Side::Translator, &NONCES);
        let later = Nonces {
            collector: [3; LEN],
            ..NONCES
        };
        assert!(own.is_proof(&proof, Side::Translator, &NONCES));
        assert!(
            !own.is_proof(&proof, Side::Collector, &NONCES),
            "sent back to its maker"
        );
        assert!(
            !own.is_proof(&proof, Side::Translator, &later),
            "of an earlier connection"
        );
        assert!(!own.is_proof(&proof[..31], Side::Translator, &NONCES), "cut");
        assert!(!secret("0123456789abcdeg").is_proof(&proof, Side::Translator, &NONCES));
    }

    #[test]
    fn a_tag_is_of_one_message_in_its_place() {
        let secret = secret("0123456789abcdef");
        let ends = || {
            (
                secret.seals(Side::Translator, &NONCES),
                secret.seals(Side::Collector, &NONCES),
            )
        };
        let (mut translator, mut collector) = ends();
        let tags = [translator.tag(b"a"), translator.tag(b"a")];
        assert_ne!(tags[0], tags[1]);
        assert!(collector.is_next(&tags[0], b"a") && collector.is_next(&tags[1], b"a"));
        assert!(!collector.is_next(&tags[1], b"a"), "repeated");
        let (_, mut collector) = ends();
        assert!(!collector.is_next(&tags[1], b"a"), "one was left out");
        let (mut translator, mut collector) = ends();
        assert!(!collector.is_next(&translator.tag(b"a"), b"b"), "changed");
        assert!(!translator.is_next(&tags[0], b"a"), "sent back to its maker");
    }

    #[test]
    fn a_file_that_everybody_may_read_or_that_holds_no_secret_is_refused() {
        let directory = std::env::temp_dir().join(format!("hopwise-secret-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("secret");
        let put = |text: &str, mode: u32| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            Secret::read(&file).map(|secret| secret.proof(Side::Translator, &NONCES))
        };
        let expected = secret("0123456789abcdef").proof(Side::Translator, &NONCES);
        for mode in [0o600, 0o400, 0o640] {
            assert_eq!(put(" 0123456789abcdef\n", mode).unwrap(), expected, "{mode:o}");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let failure = |text: &str, mode: u32| put(text, mode).unwrap_err().to_string();
        for mode in [0o644, 0o602] {
            let error = failure("0123456789abcdef", mode);
            assert!(error.contains(&format!("(mode {mode:o}): chmod o= ")), "{error}");
        }
        for text in [
            "",
            "0123456789abcde",
            "0123456789 abcdef",
            &"x".repeat(1025),
            "0123456789abcdéf",
        ] {
            let error = failure(text, 0o600);
            assert!(
                error.contains("is no secret: write 16 to 1024") && !error.contains("0123"),
                "{error}"
            );
        }
        let failure = |file: &Path| Secret::read(file).unwrap_err().to_string();
        assert!(failure(&directory).contains("is no file"));
        assert!(failure(&directory.join("none")).contains("no such file or directory; make it: openssl"));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_secret_is_never_shown() {
        let file = SecretFile::fixed("0123456789abcdef");
        let seals = file.current().seals(Side::Collector, &NONCES);
        let shown = format!("{file:?} {seals:?}");
        assert!(
            shown.contains("Secret(hidden)") && shown.contains("Seal(hidden, 0)"),
            "{shown}"
        );
        assert!(!shown.contains("0123"), "{shown}");
    }
}
