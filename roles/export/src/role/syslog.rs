//! The link to a syslog server (RFC 5424), which does not acknowledge messages.

use export::sink::{Batch, syslog::Syslog};
use tokio::io::AsyncWriteExt as _;

use net::{
    destination::{self, Destination},
    tls,
};

/// The connection to the server, and the messages of the current batch.
pub(super) struct SyslogLink {
    sink: Syslog,
    destination: Destination,
    /// The connection; dropped if it was abandoned within a message.
    stream: Option<Box<dyn tls::Stream>>,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for SyslogLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyslogLink")
            .field("destination", &self.destination)
            .finish_non_exhaustive()
    }
}

impl SyslogLink {
    /// Creates the link without connecting.
    pub(super) fn new(sink: Syslog, destination: Destination) -> Self {
        Self {
            sink,
            destination,
            stream: None,
            bytes: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, batch: &Batch<'_>) -> bool {
        self.bytes.clear();
        self.sink.write(batch, &mut self.bytes);
        !self.bytes.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) async fn send(&mut self) -> Result<(), String> {
        let mut kept = self.stream.take();
        // Check first: data written to a connection that the server has closed is lost without an error.
        if let Some(stream) = &mut kept
            && destination::is_left(&mut **stream).await
        {
            kept = None;
        }
        let mut stream = match kept {
            Some(stream) => stream,
            None => destination::connect(&self.destination).await?,
        };
        let written = match stream.write_all(&self.bytes).await {
            Ok(()) => stream.flush().await,
            Err(error) => Err(error),
        };
        written.map_err(|error| tls::reason(&error, &self.destination.authority))?;
        self.stream = Some(stream);
        Ok(())
    }

    pub(super) async fn probe(&self) -> Result<(), String> {
        destination::connect(&self.destination).await.map(drop)
    }
}
