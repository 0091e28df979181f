//! The link to Redis: pipelines commands and reads their replies.

use std::io::{Error, ErrorKind};

use export::sink::{
    Batch,
    redis::{Credentials, Exchange, Pipeline, Redis, Replies, Reply},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::answered::{Answered, Failure};
use net::{
    destination::{self, Destination, Login},
    tls,
};

/// Limit on the size of a pipeline's replies, bytes: a base plus [`MAX_REPLY`] per command. An entry takes about 1000.
const MAX_ANSWER: usize = 1 << 20;
const MAX_REPLY: usize = 4 << 10;

/// The connection to Redis, and the batch in progress.
#[derive(Debug)]
pub(super) struct RedisLink {
    sink: Redis,
    destination: Destination,
    /// The connection; dropped if it was abandoned between a command and its reply.
    connection: Option<Connection>,
    exchange: Option<Exchange>,
    replies: Vec<Reply>,
}

struct Connection {
    stream: Box<dyn tls::Stream>,
    replies: Replies,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl RedisLink {
    /// Creates the link without connecting.
    pub(super) fn new(sink: Redis, destination: Destination) -> Self {
        Self {
            sink,
            destination,
            connection: None,
            exchange: None,
            replies: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, batch: &Batch<'_>) -> bool {
        self.replies.clear();
        self.exchange = self.sink.begin(batch);
        self.exchange.is_some()
    }

    pub(super) fn bytes(&self) -> usize {
        self.exchange
            .as_ref()
            .map_or(0, |exchange| exchange.pipeline().bytes.capacity())
    }

    pub(super) async fn send(&mut self) -> Result<(), Failure> {
        let mut kept = self.connection.take();
        if let Some(connection) = &mut kept
            && destination::is_left(&mut *connection.stream).await
        {
            kept = None;
        }
        let mut connection = match kept {
            Some(connection) => connection,
            None => connect(&self.sink, &self.destination).await?,
        };
        if let Some(exchange) = &self.exchange {
            self.replies = connection.call(exchange.pipeline(), &self.destination).await?;
        }
        self.connection = Some(connection);
        Ok(())
    }

    pub(super) fn answered(&mut self, batch: &Batch<'_>) -> Answered {
        let Some(exchange) = &mut self.exchange else {
            return Answered::missing();
        };
        let replies = std::mem::take(&mut self.replies);
        self.sink
            .answered(batch, exchange, &replies)
            .map_or(Answered::More, Answered::done)
    }

    pub(super) async fn probe(&self) -> Result<(), String> {
        connect(&self.sink, &self.destination)
            .await
            .map(drop)
            .map_err(Failure::words)
    }
}

/// Connects to the server and authenticates.
async fn connect(sink: &Redis, destination: &Destination) -> Result<Connection, Failure> {
    let stream = destination::connect(destination).await?;
    let mut connection = Connection {
        stream,
        replies: Replies::new(),
    };
    let credentials = match &destination.login {
        Some(Login::Password(user, password)) => Some(Credentials {
            user: user.as_deref(),
            password,
        }),
        _ => None,
    };
    let greeting = sink.greeting(credentials.as_ref());
    let replies = connection.call(&greeting, destination).await?;
    match sink.greeted(&replies) {
        Ok(()) => Ok(connection),
        Err(words) if Redis::denied(&replies).is_some() => Err(Failure::Denied(words)),
        Err(words) => Err(Failure::Passing(words)),
    }
}

impl Connection {
    /// Sends a pipeline of commands, and reads a reply to each.
    async fn call(&mut self, pipeline: &Pipeline, destination: &Destination) -> Result<Vec<Reply>, String> {
        let authority = &destination.authority;
        let written = match self.stream.write_all(&pipeline.bytes).await {
            Ok(()) => self.stream.flush().await,
            Err(error) => Err(error),
        };
        written.map_err(|error| reason(&error, destination))?;
        let mut replies = Vec::with_capacity(pipeline.replies);
        let mut bytes = vec![0; 64 << 10];
        let mut room = MAX_ANSWER.saturating_add(pipeline.replies.saturating_mul(MAX_REPLY));
        while replies.len() < pipeline.replies {
            let next = self.replies.next_reply();
            match next.map_err(|wrong| format!("{authority} does not answer as Redis does: {}", wrong.0))? {
                Some(reply) => replies.push(reply),
                None => match self.stream.read(&mut bytes).await {
                    Err(error) => return Err(reason(&error, destination)),
                    Ok(0) => return Err(ended(destination)),
                    Ok(read) => {
                        room = room
                            .checked_sub(read)
                            .ok_or_else(|| format!("{authority} answers too much"))?;
                        self.replies.push(&bytes[..read]);
                    }
                },
            }
        }
        Ok(replies)
    }
}

fn reason(error: &Error, destination: &Destination) -> String {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ended(destination),
        _ => tls::reason(error, &destination.authority),
    }
}

fn ended(destination: &Destination) -> String {
    let authority = &destination.authority;
    let (_, secure) = destination.schemes;
    match destination.tls {
        Some(_) => format!("{authority} ended the connection"),
        None => format!("{authority} ended the connection; if it requires TLS, write {secure}"),
    }
}
