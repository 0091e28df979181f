//! Connections of exports.

use std::{future, pin::Pin, task::Poll, time::Duration};

use tokio::{io::ReadBuf, net::TcpStream, task, time};

use crate::config::export::Destination;
use net::tls;

/// A connection, with or without TLS.
///
/// # Errors
/// One sentence that says what to do.
pub(super) async fn connect(destination: &Destination) -> Result<Box<dyn tls::Stream>, String> {
    let Destination {
        authority,
        tls: config,
        schemes: (plain, secure),
        ..
    } = destination;
    let connected = time::timeout(CONNECT, TcpStream::connect(authority)).await;
    let stream = connected
        .map_err(|_| format!("{authority} does not answer; correct the url, or start the server"))?
        .map_err(|error| {
            format!("no connection to {authority}: {error}; correct the url, or start the server")
        })?;
    // Batches are whole requests: nothing is gained by waiting for more.
    let _ = stream.set_nodelay(true);
    let secured = time::timeout(CONNECT, tls::secure(config.clone(), authority, stream)).await;
    let secured = secured.unwrap_or_else(|_| {
        Err(format!(
            "{authority} does not answer to TLS; if it has none, write {plain} in place of {secure}"
        ))
    });
    secured.map_err(|words| {
        words.replace(
            "http:// in place of https://",
            &format!("{plain} in place of {secure}"),
        )
    })
}

/// Whether the other side has left a connection on which it has nothing to say.
pub(super) async fn is_left(stream: &mut dyn tls::Stream) -> bool {
    // Lets the runtime learn what the kernel knows.
    task::yield_now().await;
    let mut bytes = [0];
    let mut stream = Pin::new(stream);
    let answer = future::poll_fn(|context| {
        let mut bytes = ReadBuf::new(&mut bytes);
        Poll::Ready(stream.as_mut().poll_read(context, &mut bytes))
    });
    answer.await.is_ready()
}

const CONNECT: Duration = Duration::from_secs(5);
