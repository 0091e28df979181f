//! Mutual authentication of translator and collector with a shared secret. Each side proves that it knows the secret by an
//! HMAC-SHA-256 over both nonces of the connection:
//!
//! ```text
//! translator                          collector
//!  begin(version, nonce)  ─────────>
//!                         <─────────  challenge(nonce)
//!  proof                  ─────────>  (verified)
//!  (verified)             <─────────  proof
//!  hello, sealed          ─────────>
//! ```
//!
//! The translator proves first, so an unauthenticated client receives nothing that depends on the secret.

use std::{io, time::Instant};

use super::{
    Begin, Connection, Hello, Message, Received, VERSION, read_nonce,
    secret::{Nonces, Secret, Side, nonce},
};
use dta::fields::{hex, unhex};

const UNPROVEN: &str = "it sent no proof, and [translator] has a secret_file: give the collector the same by [collector.memory] secret_file";

wire::named! {
    /// The reason a connection failed or was refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum RefusalCause, name {
        /// One side has a secret, and the other side sent no proof.
        NoSecret => "no_secret",
        /// The proof belongs to another secret.
        WrongSecret => "wrong_secret",
        /// The translator requires a proof, and the collector has no secret.
        NotSecured => "not_secured",
        /// A message with an invalid tag.
        Forged => "forged",
        /// The bytes are no message, or the message is invalid in this state.
        Malformed => "malformed",
        /// The other side speaks an unsupported version.
        Version => "version",
        /// No complete message arrived in time.
        Timeout => "timeout",
        /// The connection was closed.
        Closed => "closed",
        /// Newer pending connections evicted it.
        Evicted => "evicted",
        /// The maximum number of translators is connected.
        Full => "full",
        /// The memory cannot serve this translator.
        Rejected => "rejected",
        /// This program is stopping.
        Stopped => "stopped",
    }
}

/// A refusal: its cause, and a sentence for the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) cause: RefusalCause,
    pub(crate) text: String,
}

impl Refused {
    pub(crate) fn new(cause: RefusalCause, text: impl Into<String>) -> Self {
        Self {
            cause,
            text: text.into(),
        }
    }

    /// Returns the message that tells the peer.
    pub(crate) fn message(self) -> Message {
        Message::Refused {
            reason: self.text,
            cause: Some(self.cause.name().to_owned()),
        }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::new(RefusalCause::Closed, error.to_string())
    }
}

/// Deadline and stop condition of the whole handshake.
pub(crate) struct HandshakeLimit<'p> {
    pub(crate) deadline: Instant,
    pub(crate) stopped: &'p dyn Fn() -> bool,
}

impl HandshakeLimit<'_> {
    /// Receives the next message within the limits.
    pub(crate) fn receive(&self, connection: &mut Connection) -> Result<Message, Refused> {
        loop {
            match connection.receive() {
                Received::Message(message) => return Ok(*message),
                Received::Closed => {
                    return Err(Refused::new(RefusalCause::Closed, "the exchange was closed"));
                }
                Received::Malformed(reason) => return Err(Refused::new(RefusalCause::Malformed, reason)),
                Received::Forged => {
                    return Err(Refused::new(
                        RefusalCause::Forged,
                        "message with an invalid tag: possible man in the middle",
                    ));
                }
                Received::Nothing if (self.stopped)() => {
                    return Err(Refused::new(RefusalCause::Stopped, "stopping"));
                }
                Received::Nothing if Instant::now() >= self.deadline => {
                    return Err(Refused::new(RefusalCause::Timeout, "no complete message in time"));
                }
                Received::Nothing => {}
            }
        }
    }
}

/// Runs the collector's side: authenticates the translator if there is a secret, and receives its hello.
pub(super) fn receive_hello(
    connection: &mut Connection,
    secret: Option<&Secret>,
    limit: &HandshakeLimit<'_>,
) -> Result<Hello, Refused> {
    let first = match (limit.receive(connection)?, secret) {
        (Message::Begin(begin), Some(secret)) => {
            challenge(connection, &begin, secret, limit)?;
            limit.receive(connection)?
        }
        (Message::Begin(_), None) => {
            return Err(Refused::new(
                RefusalCause::NotSecured,
                "this collector has no secret: set [collector.memory] secret_file to a file with the translator's, or take secret_file out \
                 of [translator]",
            ));
        }
        (Message::Hello(_), Some(_)) => {
            return Err(Refused::new(
                RefusalCause::NoSecret,
                "this collector requires its secret: set [translator] secret_file to a file with the secret that \
                 [collector.memory] secret_file has",
            ));
        }
        (first, _) => first,
    };
    match first {
        Message::Hello(hello) => hello.check().map(|()| hello),
        _ => Err(Refused::new(
            RefusalCause::Malformed,
            "the first message must be a hello",
        )),
    }
}

/// Runs the collector's side of the authentication, and seals the connection.
fn challenge(
    connection: &mut Connection,
    begin: &Begin,
    secret: &Secret,
    limit: &HandshakeLimit<'_>,
) -> Result<(), Refused> {
    check_version(begin.version)?;
    let translator = read_nonce(&begin.nonce).ok_or_else(no_nonce)?;
    let nonces = Nonces {
        translator,
        collector: nonce()?,
    };
    connection.send(&Message::Challenge {
        nonce: hex(&nonces.collector),
    })?;
    expect_proof(limit.receive(connection)?, secret, Side::Translator, &nonces)?;
    connection.send(&Message::Proof {
        proof: hex(&secret.proof(Side::Collector, &nonces)),
    })?;
    connection.seal(secret.seals(Side::Collector, &nonces));
    Ok(())
}

/// Runs the translator's side: returns once the collector has proved that it knows the secret, with the connection sealed.
pub(super) fn prove(
    connection: &mut Connection,
    secret: &Secret,
    limit: &HandshakeLimit<'_>,
) -> Result<(), Refused> {
    let translator = nonce()?;
    connection.send(&Message::Begin(Begin {
        version: VERSION,
        nonce: hex(&translator),
    }))?;
    let collector = match limit.receive(connection)? {
        Message::Challenge { nonce } => read_nonce(&nonce).ok_or_else(no_nonce)?,
        Message::Refused { reason, cause } => return Err(refusal_of(&reason, cause.as_deref())),
        _ => return Err(Refused::new(RefusalCause::NoSecret, UNPROVEN)),
    };
    let nonces = Nonces {
        translator,
        collector,
    };
    connection.send(&Message::Proof {
        proof: hex(&secret.proof(Side::Translator, &nonces)),
    })?;
    expect_proof(limit.receive(connection)?, secret, Side::Collector, &nonces)?;
    connection.seal(secret.seals(Side::Translator, &nonces));
    Ok(())
}

/// Converts a refusal that the collector sent.
pub(super) fn refusal_of(reason: &str, cause: Option<&str>) -> Refused {
    // A collector without support for secrets sends no cause.
    let cause = match cause.map(RefusalCause::from_name) {
        None => RefusalCause::Malformed,
        Some(None | Some(RefusalCause::Stopped)) => RefusalCause::Rejected,
        Some(Some(cause)) => cause,
    };
    // The text may come from an unauthenticated peer, so it is sanitised for the log.
    let clean: String = reason
        .chars()
        .filter(|text| !text.is_control())
        .take(200)
        .collect();
    Refused::new(cause, format!("refused: {clean}"))
}

fn expect_proof(message: Message, secret: &Secret, side: Side, nonces: &Nonces) -> Result<(), Refused> {
    match message {
        Message::Proof { proof } => {
            let proof = unhex(&proof).unwrap_or_default();
            secret.is_proof(&proof, side, nonces).then_some(()).ok_or_else(|| {
                Refused::new(
                    RefusalCause::WrongSecret,
                    "the secrets differ: give [collector.memory] secret_file and [translator] secret_file the same text, and reload both",
                )
            })
        }
        // Only a collector sends refusals.
        Message::Refused { reason, cause } if side == Side::Collector => {
            Err(refusal_of(&reason, cause.as_deref()))
        }
        _ => Err(Refused::new(RefusalCause::Malformed, "expected a proof")),
    }
}

fn no_nonce() -> Refused {
    Refused::new(RefusalCause::Malformed, "a nonce has 64 hexadecimal digits")
}

pub(super) fn check_version(version: u32) -> Result<(), Refused> {
    if version == VERSION {
        return Ok(());
    }
    let text = format!("this collector supports version {VERSION} of the exchange, not {version}");
    Err(Refused::new(RefusalCause::Version, text))
}
