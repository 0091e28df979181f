//! Admission control of the exchange: limits pending and connected translators, and counts each connection by its outcome.

use std::{
    collections::VecDeque,
    net::{IpAddr, Shutdown, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::handshake::RefusalCause;
use view::NamedCounts;

/// Maximum number of connected translators.
pub(super) const MAX_LINKS: usize = 64;
/// Maximum number of pending connections, which have not sent a valid hello (or a proof, if there is a secret). One more
/// evicts the oldest connection of the address with the most pending ones, so that a flood evicts only its sender's
/// connections.
pub(super) const MAX_PENDING: usize = 16;
/// Minimum interval between log lines about refusals.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Admission control, shared by the threads of all connections.
#[derive(Debug, Default)]
pub(crate) struct Admission(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    connections: u64,
    accepted: u64,
    refused: [u64; RefusalCause::COUNT],
    /// Connections without a valid hello so far, oldest first.
    pending: VecDeque<Pending>,
    /// Admitted connections whose hello has not been answered yet.
    answering: usize,
    /// Admitted connections that are still open.
    admitted: usize,
    last_logged: Option<Instant>,
    /// Refusals since the last log line.
    unlogged: u64,
}

#[derive(Debug)]
struct Pending {
    id: u64,
    from: IpAddr,
    stream: TcpStream,
}

/// Counters: `connections = accepted + refused + pending`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdmissionView {
    /// Whether translators must prove that they know a secret.
    pub secret: bool,
    /// Connections: `connections = accepted + refused + pending`.
    pub connections: u64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections refused, by reason.
    pub refused: NamedCounts,
    /// Connections without a response yet.
    pub pending: u64,
    /// True while the balance holds.
    pub balanced: bool,
}

/// Names the causes with a non-zero count.
pub(crate) fn by_name(counts: &[u64; RefusalCause::COUNT]) -> NamedCounts {
    let named = RefusalCause::ALL.into_iter().zip(counts);
    named
        .filter(|(_, count)| **count > 0)
        .map(|(cause, count)| (cause.name(), *count))
        .collect()
}

impl Admission {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a pending connection and returns its ID. `stream` is a second handle, used to close it on eviction.
    pub(super) fn register(&self, stream: TcpStream, from: IpAddr) -> u64 {
        let mut state = self.state();
        let id = state.connections;
        state.connections += 1;
        state.pending.push_back(Pending { id, from, stream });
        if state.pending.len() > MAX_PENDING
            && let Some(evicted) = state
                .eviction_candidate()
                .and_then(|index| state.pending.remove(index))
        {
            // Shutting the stream down ends its thread's read.
            let _ = evicted.stream.shutdown(Shutdown::Both);
            state.refused[RefusalCause::Evicted as usize] += 1;
        }
        id
    }

    /// Counts a pending connection as refused. Returns the number of refusals that were not logged before it, or `None` if
    /// this one must not be logged either.
    pub(super) fn refuse(&self, id: u64, cause: RefusalCause) -> Option<u64> {
        let mut state = self.state();
        if !state.remove_pending(id) {
            return None; // Already counted as evicted.
        }
        state.refused[cause as usize] += 1;
        state.log_permit(cause)
    }

    /// Admits a pending connection after a valid hello.
    pub(super) fn admit(&self, id: u64) -> AdmissionOutcome<'_> {
        let mut state = self.state();
        if !state.remove_pending(id) {
            return AdmissionOutcome::Evicted;
        }
        if state.admitted >= MAX_LINKS {
            state.refused[RefusalCause::Full as usize] += 1;
            return AdmissionOutcome::Full {
                log_permit: state.log_permit(RefusalCause::Full),
            };
        }
        state.admitted += 1;
        state.answering += 1;
        AdmissionOutcome::Admitted(Admitted {
            admission: self,
            is_answered: false,
        })
    }

    /// Returns the counters. `secret`: translators must prove that they know one.
    pub(crate) fn view(&self, secret: bool) -> AdmissionView {
        let state = self.state();
        let pending = (state.pending.len() + state.answering) as u64;
        let refused = state.refused.iter().sum::<u64>();
        AdmissionView {
            secret,
            connections: state.connections,
            accepted: state.accepted,
            refused: by_name(&state.refused),
            pending,
            balanced: state.connections == state.accepted + refused + pending,
        }
    }
}

impl State {
    /// Removes a pending connection. Returns `false` if it is no longer pending.
    fn remove_pending(&mut self, id: u64) -> bool {
        let index = self.pending.iter().position(|connection| connection.id == id);
        index.and_then(|index| self.pending.remove(index)).is_some()
    }

    /// Returns the index of the oldest connection of the address with the most pending ones; the oldest breaks ties.
    fn eviction_candidate(&self) -> Option<usize> {
        let indexed = self.pending.iter().enumerate().rev();
        indexed
            .max_by_key(|(_, connection)| self.pending_from(connection.from))
            .map(|(index, _)| index)
    }

    fn pending_from(&self, address: IpAddr) -> usize {
        self.pending
            .iter()
            .filter(|connection| connection.from == address)
            .count()
    }

    fn log_permit(&mut self, cause: RefusalCause) -> Option<u64> {
        // These causes are routine, and must not use up the log's rate limit.
        if matches!(
            cause,
            RefusalCause::Closed | RefusalCause::Timeout | RefusalCause::Stopped
        ) {
            return None;
        }
        if self
            .last_logged
            .is_some_and(|logged| logged.elapsed() < LOG_INTERVAL)
        {
            self.unlogged += 1;
            return None;
        }
        self.last_logged = Some(Instant::now());
        Some(std::mem::take(&mut self.unlogged))
    }
}

/// The outcome of [`Admission::admit`].
#[derive(Debug)]
pub(super) enum AdmissionOutcome<'a> {
    Admitted(Admitted<'a>),
    /// [`MAX_LINKS`] translators are connected. The log permit is as returned by [`Admission::refuse`].
    Full {
        log_permit: Option<u64>,
    },
    /// The connection was evicted before its hello was processed.
    Evicted,
}

/// An admitted connection. Dropping it frees its slot.
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    admission: &'a Admission,
    is_answered: bool,
}

impl Admitted<'_> {
    /// Counts a connection whose hello was answered with `accept`.
    pub(super) fn accepted(&mut self) {
        self.is_answered = true;
        let mut state = self.admission.state();
        state.answering -= 1;
        state.accepted += 1;
    }

    /// Counts a connection whose hello was refused. Returns the log permit, like [`Admission::refuse`].
    pub(super) fn refused(&mut self, cause: RefusalCause) -> Option<u64> {
        self.is_answered = true;
        let mut state = self.admission.state();
        state.answering -= 1;
        state.refused[cause as usize] += 1;
        state.log_permit(cause)
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // The connection broke, or its thread panicked.
            self.refused(RefusalCause::Closed);
        }
        self.admission.state().admitted -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn a_flood_from_one_address_evicts_only_itself() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let admission = Admission::default();
        let from = |last: u8| IpAddr::from([10, 0, 0, last]);
        let other = admission.register(stream(), from(1));
        let flood: Vec<u64> = (0..40).map(|_| admission.register(stream(), from(2))).collect();
        let view = admission.view(true);
        assert_eq!(
            (view.pending, view.refused["evicted"], view.balanced),
            (MAX_PENDING as u64, 25, true)
        );
        assert!(matches!(admission.admit(flood[24]), AdmissionOutcome::Evicted));
        let AdmissionOutcome::Admitted(mut admitted) = admission.admit(other) else {
            panic!("refused");
        };
        assert_eq!(
            admission.view(true).pending,
            MAX_PENDING as u64,
            "it is being answered"
        );
        admitted.accepted();
        assert_eq!(
            admission.refuse(flood[25], RefusalCause::Timeout),
            None,
            "the oldest pending one; not logged"
        );
        assert_eq!(
            admission.refuse(flood[26], RefusalCause::NoSecret),
            Some(0),
            "may be logged"
        );
        assert_eq!(
            admission.refuse(flood[26], RefusalCause::NoSecret),
            None,
            "counted once"
        );
        let view = admission.view(true);
        assert_eq!(view.refused, [("evicted", 25), ("no_secret", 1), ("timeout", 1)]);
        assert_eq!((view.accepted, view.pending, view.balanced), (1, 13, true));
    }

    #[test]
    fn at_most_max_links_are_admitted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let admission = Admission::default();
        let connect = || {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            match admission.admit(admission.register(stream, Ipv4Addr::LOCALHOST.into())) {
                AdmissionOutcome::Admitted(admitted) => Some(admitted),
                AdmissionOutcome::Full { .. } => None,
                AdmissionOutcome::Evicted => panic!("evicted"),
            }
        };
        let mut admitted: Vec<Admitted<'_>> = (0..MAX_LINKS).map(|_| connect().unwrap()).collect();
        assert!(connect().is_none(), "full");
        admitted.iter_mut().for_each(Admitted::accepted);
        admitted.pop();
        drop(connect().unwrap());
        let view = admission.view(false);
        assert_eq!(
            view.refused,
            [("closed", 1), ("full", 1)],
            "the last one closed before it was answered"
        );
        assert_eq!(
            (view.accepted, view.pending, view.balanced),
            (MAX_LINKS as u64, 0, true)
        );
    }
}
