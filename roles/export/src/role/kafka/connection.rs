//! A connection to a Kafka broker: API versions, SASL authentication (PLAIN or SCRAM), and requests with their answers.

use std::{
    io::{Error, ErrorKind},
    time::Duration,
};

use export::sink::kafka::{
    self, UNKNOWN_TOPIC,
    protocol::{self, Api, Malformed, Topology, Versions},
    scram::{self, Hash},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time,
};

use crate::role::answered::Failure;
use net::{
    destination::{self, Destination, Login, Mechanism},
    tls,
};

/// Checks that the password would be encrypted. The check of the URL does not cover brokers that Kafka names itself.
fn may_log_in(destination: &Destination) -> Result<(), Failure> {
    let Destination {
        authority,
        tls,
        login,
        schemes: (_, secure),
        unencrypted,
        ..
    } = destination;
    match login.is_none() || tls.is_some() || *unencrypted || tls::is_loopback(authority) {
        true => Ok(()),
        false => Err(Failure::Denied(format!(
            "the broker {authority} would get the password without encryption; use {secure} with `ca`, or set unencrypted = true"
        ))),
    }
}

/// An open connection, ready for requests.
pub(in crate::role) struct Connection {
    stream: Box<dyn tls::Stream>,
    versions: Versions,
    correlation: i32,
    authority: String,
    /// A hint for the user, in case the server closes the connection without a message.
    advice: String,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to any broker of the URL. Each gets an equal share of the time, so that a silent one does not use it up.
    pub(in crate::role) async fn any(
        destination: &Destination,
        limit: Duration,
        needs: &[Api],
    ) -> Result<Self, Failure> {
        let mut last = Failure::Passing("there is no broker in the url".to_owned());
        let authorities: Vec<&str> = destination.authority.split(',').collect();
        let share = limit / u32::try_from(authorities.len()).unwrap_or(u32::MAX);
        for authority in authorities {
            match time::timeout(share, Self::open(destination, authority, needs)).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(failure)) => last = failure,
                Err(_) => last = format!("{authority} does not answer in time").into(),
            }
        }
        Err(last)
    }

    /// Connects to a broker and logs in. `needs` lists the requests that it must support.
    pub(in crate::role) async fn open(
        destination: &Destination,
        authority: &str,
        needs: &[Api],
    ) -> Result<Self, Failure> {
        let destination = Destination {
            authority: authority.to_owned(),
            ..destination.clone()
        };
        may_log_in(&destination)?;
        let stream = destination::connect(&destination).await?;
        let Destination {
            tls,
            schemes: (_, secure),
            login,
            mechanism,
            ..
        } = &destination;
        let advice = match (tls, login) {
            (None, None) => {
                format!(
                    "; if it requires TLS, write {secure}, if it requires a login, `user` and `password_file`"
                )
            }
            (None, Some(_)) => format!("; if it requires TLS, write {secure}"),
            (Some(_), None) => "; if it requires a login, write `user` and `password_file`".to_owned(),
            (Some(_), Some(_)) => String::new(),
        };
        let versions = Versions::default();
        let mut connection = Self {
            stream,
            versions,
            correlation: 0,
            authority: authority.to_owned(),
            advice,
        };
        let correlation = connection.number();
        let body = connection
            .call(correlation, &protocol::api_versions(correlation))
            .await?;
        let versions = protocol::read_api_versions(&body);
        connection.versions = versions.map_err(|wrong| connection.malformed(&wrong))?;
        for api in needs {
            if connection.versions.get(*api).is_none() {
                let words = format!(
                    "{authority} has no version of {api:?} that is known here; use Kafka 1.0 or later"
                );
                return Err(words.into());
            }
        }
        if let Some(Login::Password(user, password)) = login {
            connection
                .log_in(*mechanism, user.as_deref().unwrap_or_default(), password)
                .await?;
        }
        Ok(connection)
    }

    /// Returns the leaders of a topic's partitions. `rights` names the permissions that the user needs, for an error message.
    pub(in crate::role) async fn topology(&mut self, topic: &str, rights: &str) -> Result<Topology, Failure> {
        let correlation = self.number();
        let body = self
            .call(correlation, &protocol::metadata(correlation, topic))
            .await?;
        let topology = protocol::read_metadata(&body, topic).map_err(|wrong| self.malformed(&wrong))?;
        let name = kafka::name(topology.error);
        match topology.error {
            0 if topology.leaders.is_empty() => Err(format!("topic {topic} has no partitions now").into()),
            0 => Ok(topology),
            UNKNOWN_TOPIC => Err(Failure::Absent(format!(
                "Kafka has no topic {topic}; `hopwise schema apply` creates it"
            ))),
            kafka::TOPIC_AUTHORIZATION_FAILED => Err(Failure::Denied(format!(
                "{name}: allow this user to {rights} topic {topic}"
            ))),
            _ => Err(format!("topic {topic}: {name}").into()),
        }
    }

    /// Authenticates by SASL with this mechanism.
    async fn log_in(&mut self, mechanism: Mechanism, user: &str, password: &str) -> Result<(), Failure> {
        let correlation = self.number();
        // SASL mechanism names as registered by IANA.
        let name = &mechanism.name().to_uppercase();
        let body = self
            .call(correlation, &protocol::sasl_handshake(correlation, name))
            .await?;
        let taken = protocol::read_sasl_handshake(&body).map_err(|wrong| self.malformed(&wrong))?;
        if let Err(mechanisms) = taken {
            let words = format!(
                "{} does not accept a password by {name}, only by {}; write one of these as `mechanism`",
                self.authority,
                mechanisms.join(", ")
            );
            return Err(Failure::Denied(words));
        }
        let hash = match mechanism {
            Mechanism::Plain => {
                let message = format!("\0{user}\0{password}");
                return self.authenticate(message.as_bytes()).await.map(drop);
            }
            Mechanism::ScramSha256 => Hash::Sha256,
            Mechanism::ScramSha512 => Hash::Sha512,
        };
        let mut nonce = [0; 24];
        getrandom::fill(&mut nonce).map_err(|error| format!("no random numbers: {error}"))?;
        let nonce = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, nonce);
        let mut login = scram::Login::new(hash, user, password, &nonce);
        let answer = self.authenticate(&login.first()).await?;
        let last = login.last(&answer).map_err(login_failed)?;
        let answer = self.authenticate(&last).await?;
        login.verify(&answer).map_err(login_failed)
    }

    /// Executes one step of a login.
    async fn authenticate(&mut self, message: &[u8]) -> Result<Vec<u8>, Failure> {
        let correlation = self.number();
        let body = self
            .call(correlation, &protocol::sasl_authenticate(correlation, message))
            .await?;
        let answer = protocol::read_sasl_authenticate(&body).map_err(|wrong| self.malformed(&wrong))?;
        answer.map_err(|words| {
            Failure::Denied(format!(
                "{} refuses the credentials ({words}); correct user and password",
                self.authority
            ))
        })
    }

    /// Returns the newest version of a request that both sides know, or `None` if there is none.
    pub(in crate::role) fn version(&self, api: Api) -> Option<i16> {
        self.versions.get(api)
    }

    pub(in crate::role) fn stream(&mut self) -> &mut dyn tls::Stream {
        &mut *self.stream
    }

    /// Returns the correlation ID of the next request.
    pub(in crate::role) fn number(&mut self) -> i32 {
        self.correlation = self.correlation.wrapping_add(1) & i32::MAX;
        self.correlation
    }

    pub(in crate::role) async fn call(&mut self, correlation: i32, frame: &[u8]) -> Result<Vec<u8>, String> {
        let len = self.ask(frame).await?;
        match self.answer(correlation, len).await? {
            (body, false) => Ok(body),
            (_, true) => Err(self.malformed(&Malformed("its length"))),
        }
    }

    /// Sends a request, and waits for the length of the answer. Must be followed by [`Connection::answer`].
    pub(in crate::role) async fn ask(&mut self, frame: &[u8]) -> Result<usize, String> {
        self.write(frame).await?;
        let mut len = [0; 4];
        self.stream
            .read_exact(&mut len)
            .await
            .map_err(|error| self.reason(&error))?;
        let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
        match (4..=usize::try_from(i32::MAX).unwrap_or(usize::MAX)).contains(&len) {
            true => Ok(len),
            false => Err(self.malformed(&Malformed("its length"))),
        }
    }

    async fn write(&mut self, frame: &[u8]) -> Result<(), String> {
        let result = match self.stream.write_all(frame).await {
            Ok(()) => self.stream.flush().await,
            Err(error) => Err(error),
        };
        result.map_err(|error| self.reason(&error))
    }

    /// Reads the body of the answer, and returns whether it was truncated. A truncated answer makes the connection unusable.
    pub(in crate::role) async fn answer(
        &mut self,
        correlation: i32,
        len: usize,
    ) -> Result<(Vec<u8>, bool), String> {
        let mut frame = vec![0; len.min(protocol::MAX_ANSWER)];
        self.stream
            .read_exact(&mut frame)
            .await
            .map_err(|error| self.reason(&error))?;
        let is_cut = frame.len() < len;
        match protocol::answer(&frame).map(|(number, body)| (number, frame.len() - body.len())) {
            Ok((number, head)) if number == correlation => {
                // In place, because the body may be large.
                frame.drain(..head);
                Ok((frame, is_cut))
            }
            Ok(_) => Err(self.malformed(&Malformed("its number"))),
            Err(wrong) => Err(self.malformed(&wrong)),
        }
    }

    pub(in crate::role) fn malformed(&self, wrong: &Malformed) -> String {
        format!(
            "{} does not answer as Kafka does: {}{}",
            self.authority, wrong.0, self.advice
        )
    }

    fn reason(&self, error: &Error) -> String {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                format!("{} ended the connection{}", self.authority, self.advice)
            }
            _ => tls::reason(error, &self.authority),
        }
    }
}

fn login_failed(words: &str) -> Failure {
    Failure::Denied(format!("the login failed: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{ExportKind, ExportSettings};

    #[test]
    fn a_broker_that_kafka_names_gets_a_password_only_as_the_url_may() {
        let settings = ExportSettings {
            kind: Some(ExportKind::Kafka),
            url: "tcp://127.0.0.1:9092".to_owned(),
            ..ExportSettings::default()
        };
        let named = |authority: &str, login: Option<Login>, unencrypted| {
            let destination = settings.destination().unwrap();
            let authority = authority.to_owned();
            may_log_in(&Destination {
                authority,
                login,
                unencrypted,
                ..destination
            })
            .map_err(Failure::words)
        };
        let login = || {
            Some(Login::Password(
                Some("hopwise".to_owned()),
                "correct horse".to_owned(),
            ))
        };
        let words = "the broker 192.0.2.1:9092 would get the password without encryption; use tls:// with `ca`, or set unencrypted = true";
        assert_eq!(named("192.0.2.1:9092", login(), false), Err(words.to_owned()));
        assert_eq!(named("192.0.2.1:9092", login(), true), Ok(()));
        assert_eq!(named("192.0.2.1:9092", None, false), Ok(()));
        assert_eq!(named("127.0.0.1:9092", login(), false), Ok(()));
    }
}
