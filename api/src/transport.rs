//! TCP connections with or without TLS. The handshake runs at the first read, so it does not delay other connections.
//!
//! States with TLS: `New` → first byte is a TLS record → `Handshake` → `Tls`, or `Failed`.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{self, Poll, ready},
};

use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{Accept, TlsAcceptor, server::TlsStream};

use net::tls::Failure;

/// First byte of a TLS connection: record type `handshake` (RFC 8446, section 5.1).
const TLS_HANDSHAKE_RECORD: u8 = 22;
/// Response to a client that sends plain HTTP to the TLS port.
const NOT_TLS_RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 69\r\nconnection: close\r\n\r\n\
                       {\"error\": \"this port speaks TLS; write https:// in place of http://\"}";

/// Transport of one connection, and the state of its handshake.
pub(super) enum Transport {
    /// A TCP connection without TLS.
    Plain(TcpStream),
    /// TLS connection on which nothing has arrived yet.
    New(TcpStream, Arc<ServerConfig>),
    /// TLS handshake in progress.
    Handshake(Box<Accept<TcpStream>>),
    /// TLS connection after a successful handshake.
    Tls(Box<TlsStream<TcpStream>>),
    /// TLS connection whose handshake has failed.
    Failed,
}

impl Transport {
    /// Creates the transport of a connection, with TLS if there is a `config`.
    pub(super) fn new(stream: TcpStream, config: Option<Arc<ServerConfig>>) -> Self {
        match config {
            Some(config) => Self::New(stream, config),
            None => Self::Plain(stream),
        }
    }

    /// Returns whether the handshake is yet to be completed.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self, Self::New(..) | Self::Handshake(_))
    }

    /// Advances the handshake; ready once it has succeeded or failed.
    pub(super) fn handshake(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), (Failure, io::Error)>> {
        loop {
            let result = match self {
                Self::Plain(_) | Self::Tls(_) => return Poll::Ready(Ok(())),
                Self::Failed => {
                    return Poll::Ready(Err((Failure::Closed, io::ErrorKind::NotConnected.into())));
                }
                Self::New(stream, _) => ready!(first_byte(stream, cx)).map(|()| None),
                Self::Handshake(accept) => {
                    let result = ready!(Pin::new(accept).poll(cx));
                    result
                        .map(Some)
                        .map_err(|error| (Failure::from_error(&error), error))
                }
            };
            *self = match (std::mem::replace(self, Self::Failed), result) {
                (_, Err(failed)) => return Poll::Ready(Err(failed)),
                (_, Ok(Some(stream))) => Self::Tls(Box::new(stream)),
                (Self::New(stream, config), Ok(None)) => {
                    Self::Handshake(Box::new(TlsAcceptor::from(config).accept(stream)))
                }
                (other, Ok(None)) => other,
            };
        }
    }
}

/// Waits for the first byte, which shows whether the client uses TLS. A client that sends HTTP gets an error response.
fn first_byte(stream: &TcpStream, cx: &mut task::Context<'_>) -> Poll<Result<(), (Failure, io::Error)>> {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    let peeked = ready!(stream.poll_peek(cx, &mut buffer));
    match peeked {
        Ok(0) => Poll::Ready(Err((Failure::Closed, io::ErrorKind::UnexpectedEof.into()))),
        Ok(_) if byte[0] == TLS_HANDSHAKE_RECORD => Poll::Ready(Ok(())),
        Ok(_) => {
            // Read what has arrived: otherwise closing would send a reset, and the client might lose the response. The send
            // buffer of a new connection has room for it.
            let _ = stream.try_read(&mut [0; 4096]);
            if byte[0].is_ascii_uppercase() {
                let _ = stream.try_write(NOT_TLS_RESPONSE.as_bytes());
            }
            Poll::Ready(Err((Failure::NotTls, io::ErrorKind::InvalidData.into())))
        }
        Err(error) => Poll::Ready(Err((Failure::Closed, error))),
    }
}

/// Calls a method of the underlying stream.
macro_rules! with_stream {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Plain($stream) => $call,
            Self::Tls($stream) => $call,
            // Cannot happen: `Connection` completes the handshake first.
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        with_stream!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut task::Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        with_stream!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with_stream!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::New(..) => "New",
            Self::Handshake(_) => "Handshake",
            Self::Tls(_) => "Tls",
            Self::Failed => "Failed",
        })
    }
}
