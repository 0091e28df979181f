//! Transports of a connection: TCP, with or without TLS. The handshake takes place when the connection is
//! first read, so that it delays no other connection.

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

/// A connection with or without TLS.
pub(super) enum Transport {
    /// A connection without TLS.
    Plain(TcpStream),
    /// Nothing has arrived yet.
    New(TcpStream, Arc<ServerConfig>),
    /// The handshake has begun.
    Handshake(Box<Accept<TcpStream>>),
    /// A connection whose handshake has succeeded.
    Tls(Box<TlsStream<TcpStream>>),
    /// The handshake has failed.
    Failed,
}

/// The first byte of a TLS connection: a record of the handshake.
const HANDSHAKE: u8 = 22;

/// The answer to a client that speaks HTTP where TLS is spoken.
const NOT_TLS: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 69\r\nconnection: close\r\n\r\n\
                       {\"error\": \"this port speaks TLS; write https:// in place of http://\"}";

impl Transport {
    /// Creates the transport of a connection. With `config`, TLS is spoken on it.
    pub(super) fn new(stream: TcpStream, config: Option<Arc<ServerConfig>>) -> Self {
        match config {
            Some(config) => Self::New(stream, config),
            None => Self::Plain(stream),
        }
    }

    /// Returns whether the handshake is not completed.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self, Self::New(..) | Self::Handshake(_))
    }

    /// Advances the handshake; it is ready when it has succeeded or failed.
    pub(super) fn handshake(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), (Failure, io::Error)>> {
        loop {
            let done = match self {
                Self::Plain(_) | Self::Tls(_) => return Poll::Ready(Ok(())),
                Self::Failed => {
                    return Poll::Ready(Err((Failure::Closed, io::ErrorKind::NotConnected.into())));
                }
                Self::New(stream, _) => ready!(first_byte(stream, cx)).map(|()| None),
                Self::Handshake(accept) => {
                    let done = ready!(Pin::new(accept).poll(cx));
                    done.map(Some)
                        .map_err(|error| (Failure::from_error(&error), error))
                }
            };
            *self = match (std::mem::replace(self, Self::Failed), done) {
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

/// Waits for the first byte, which tells whether the client speaks TLS. One that does not is told so.
fn first_byte(stream: &TcpStream, cx: &mut task::Context<'_>) -> Poll<Result<(), (Failure, io::Error)>> {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    let peeked = ready!(stream.poll_peek(cx, &mut buffer));
    match peeked {
        Ok(0) => Poll::Ready(Err((Failure::Closed, io::ErrorKind::UnexpectedEof.into()))),
        Ok(_) if byte[0] == HANDSHAKE => Poll::Ready(Ok(())),
        Ok(_) => {
            // What has arrived is read, otherwise the answer would be lost in a reset. A new connection takes the answer at once.
            let _ = stream.try_read(&mut [0; 4096]);
            if byte[0].is_ascii_uppercase() {
                let _ = stream.try_write(NOT_TLS.as_bytes());
            }
            Poll::Ready(Err((Failure::NotTls, io::ErrorKind::InvalidData.into())))
        }
        Err(error) => Poll::Ready(Err((Failure::Closed, error))),
    }
}

/// Calls a method of whatever carries the bytes.
macro_rules! carried {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Plain($stream) => $call,
            Self::Tls($stream) => $call,
            // The owner completes the handshake first.
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
        carried!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut task::Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        carried!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        carried!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        carried!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        carried!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
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
