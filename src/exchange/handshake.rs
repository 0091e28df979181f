//! What is said before a translator and a collector tell each other anything: where a secret is shared, each proves that it knows it, by
//! HMAC-SHA256 over what both drew for this connection. The translator proves first: who merely connects gets nothing that depends on the secret.

use std::{io, time::Instant};

use super::{
    Begin, Hello, Lines, Message, Read1, VERSION, read_nonce,
    secret::{Nonces, Secret, Side, nonce},
};
use dta::fields::{hex, unhex};

/// Why a connection came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// One side has a secret, and the other proves none.
    NoSecret,
    /// The other side proves another secret.
    WrongSecret,
    /// It asks for proofs, and there is no secret here.
    NotSecured,
    /// A message without its right tag.
    Forged,
    /// No message, or none that belongs here.
    Malformed,
    /// Another version.
    Version,
    /// Nothing whole came in time.
    Silent,
    /// The connection ended.
    Closed,
    /// Others that have proved nothing came after it.
    Crowded,
    /// As many translators are connected as can be.
    Full,
    /// The memory cannot serve it.
    Unwelcome,
    /// This program stops.
    Stopped,
}

impl Why {
    /// Of these there are so many.
    pub(crate) const COUNT: usize = 12;
    /// All.
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::NoSecret,
        Self::WrongSecret,
        Self::NotSecured,
        Self::Forged,
        Self::Malformed,
        Self::Version,
        Self::Silent,
        Self::Closed,
        Self::Crowded,
        Self::Full,
        Self::Unwelcome,
        Self::Stopped,
    ];

    /// For programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoSecret => "no_secret",
            Self::WrongSecret => "wrong_secret",
            Self::NotSecured => "not_secured",
            Self::Forged => "forged",
            Self::Malformed => "malformed",
            Self::Version => "version",
            Self::Silent => "silent",
            Self::Closed => "closed",
            Self::Crowded => "crowded",
            Self::Full => "full",
            Self::Unwelcome => "unwelcome",
            Self::Stopped => "stopped",
        }
    }

    /// That of this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.name() == name)
    }
}

/// Why, and a sentence for the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) why: Why,
    pub(crate) text: String,
}

impl Refused {
    pub(crate) fn new(why: Why, text: impl Into<String>) -> Self {
        Self { why, text: text.into() }
    }

    /// As it is told to the other side, which can do something about it.
    pub(crate) fn message(self) -> Message {
        Message::Refused { reason: self.text, cause: Some(self.why.name().to_owned()) }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::new(Why::Closed, error.to_string())
    }
}

/// How long is waited for the other side's first words, all together.
pub(crate) struct Patience<'p> {
    pub(crate) until: Instant,
    pub(crate) stopped: &'p dyn Fn() -> bool,
}

impl Patience<'_> {
    /// The next message.
    pub(crate) fn hear(&self, lines: &mut Lines) -> Result<Message, Refused> {
        loop {
            match lines.receive() {
                Read1::Message(message) => return Ok(*message),
                Read1::Closed => return Err(Refused::new(Why::Closed, "the exchange was closed")),
                Read1::Wrong(reason) => return Err(Refused::new(Why::Malformed, reason)),
                Read1::Forged => {
                    return Err(Refused::new(
                        Why::Forged,
                        "a message without its right tag: somebody is in between",
                    ));
                }
                Read1::Nothing if (self.stopped)() => return Err(Refused::new(Why::Stopped, "stopping")),
                Read1::Nothing if Instant::now() >= self.until => {
                    return Err(Refused::new(Why::Silent, "nothing whole was said in time"));
                }
                Read1::Nothing => {}
            }
        }
    }
}

/// The collector's side: a hello of somebody who proved to know the secret, if there is one.
pub(super) fn admit(
    lines: &mut Lines,
    secret: Option<&Secret>,
    patience: &Patience<'_>,
) -> Result<Hello, Refused> {
    let first = match (patience.hear(lines)?, secret) {
        (Message::Begin(begin), Some(secret)) => {
            challenge(lines, &begin, secret, patience)?;
            patience.hear(lines)?
        }
        (Message::Begin(_), None) => {
            return Err(Refused::new(
                Why::NotSecured,
                "this collector has no secret: set [collector.memory] secret_file to a file with the translator's, or take secret_file out \
                 of [translator]",
            ));
        }
        (Message::Hello(_), Some(_)) => {
            return Err(Refused::new(
                Why::NoSecret,
                "this collector talks only to who knows its secret: set [translator] secret_file to a file with the secret that \
                 [collector.memory] secret_file has",
            ));
        }
        (first, _) => first,
    };
    match first {
        Message::Hello(hello) => hello.check().map(|()| hello),
        _ => Err(Refused::new(Why::Malformed, "the first message must be a hello")),
    }
}

fn challenge(
    lines: &mut Lines,
    begin: &Begin,
    secret: &Secret,
    patience: &Patience<'_>,
) -> Result<(), Refused> {
    check_version(begin.version)?;
    let translator = read_nonce(&begin.nonce).ok_or_else(no_nonce)?;
    let nonces = Nonces { translator, collector: nonce()? };
    lines.send(&Message::Challenge { nonce: hex(&nonces.collector) })?;
    expect_proof(patience.hear(lines)?, secret, Side::Translator, &nonces)?;
    lines.send(&Message::Proof { proof: hex(&secret.proof(Side::Collector, &nonces)) })?;
    lines.seal(secret.seals(Side::Collector, &nonces));
    Ok(())
}

/// The translator's side: afterwards the collector has proved that it knows the secret.
pub(super) fn prove(lines: &mut Lines, secret: &Secret, patience: &Patience<'_>) -> Result<(), Refused> {
    let translator = nonce()?;
    lines.send(&Message::Begin(Begin { version: VERSION, nonce: hex(&translator) }))?;
    let collector = match patience.hear(lines)? {
        Message::Challenge { nonce } => read_nonce(&nonce).ok_or_else(no_nonce)?,
        Message::Refused { reason, cause } => return Err(told(&reason, cause.as_deref())),
        _ => return Err(Refused::new(Why::NoSecret, UNPROVEN)),
    };
    let nonces = Nonces { translator, collector };
    lines.send(&Message::Proof { proof: hex(&secret.proof(Side::Translator, &nonces)) })?;
    expect_proof(patience.hear(lines)?, secret, Side::Collector, &nonces)?;
    lines.seal(secret.seals(Side::Translator, &nonces));
    Ok(())
}

const UNPROVEN: &str = "it proves no secret, and [translator] has a secret_file: give the collector the same by [collector.memory] secret_file";

/// What a translator makes of a refusal.
pub(super) fn told(reason: &str, cause: Option<&str>) -> Refused {
    // One that knows of no secrets has no names for its reasons either.
    let named = |cause| Why::from_name(cause).filter(|why| *why != Why::Stopped).unwrap_or(Why::Unwelcome);
    let why = cause.map_or(Why::Malformed, named);
    // Who is not known to be a collector of ours may write anything.
    let clean: String = reason.chars().filter(|text| !text.is_control()).take(200).collect();
    Refused::new(why, format!("refused: {clean}"))
}

fn expect_proof(message: Message, secret: &Secret, of: Side, nonces: &Nonces) -> Result<(), Refused> {
    match message {
        Message::Proof { proof } => {
            let proof = unhex(&proof).unwrap_or_default();
            secret.is_proof(&proof, of, nonces).then_some(()).ok_or_else(|| {
                Refused::new(
                    Why::WrongSecret,
                    "the secrets differ: give [collector.memory] secret_file and [translator] secret_file the same text, and reload both",
                )
            })
        }
        // Only a collector refuses, and only what it says is listened to.
        Message::Refused { reason, cause } if of == Side::Collector => Err(told(&reason, cause.as_deref())),
        _ => Err(Refused::new(Why::Malformed, "a proof must come now")),
    }
}

fn no_nonce() -> Refused {
    Refused::new(Why::Malformed, "a nonce has 64 hexadecimal digits")
}

pub(super) fn check_version(version: u32) -> Result<(), Refused> {
    if version == VERSION {
        return Ok(());
    }
    let text = format!("this collector speaks version {VERSION} of the exchange, and not {version}");
    Err(Refused::new(Why::Version, text))
}
