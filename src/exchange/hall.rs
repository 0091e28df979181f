//! Who stands before the collector's door: how many connections there may be, and what became of each.

use std::{
    collections::VecDeque,
    net::{IpAddr, Shutdown, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::handshake::Why;
use crate::view::NamedCounts;

/// Connections of translators at the same time.
pub(super) const MOST_LINKS: usize = 64;
/// Connections that have not said their hello yet (with a secret: have proved nothing). When one more comes, the oldest of the address
/// that has most of them goes: who fills the hall keeps nobody else out.
pub(super) const MOST_WAITING: usize = 16;
/// The log tells of refusals at most so often.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The hall.
#[derive(Debug, Default)]
pub(crate) struct Hall(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    connections: u64,
    welcomed: u64,
    refused: [u64; Why::COUNT],
    /// Who has not said its hello, the oldest first.
    waiting: VecDeque<Waiting>,
    /// Whose hello is being answered.
    asked: usize,
    /// Who has been admitted, and not gone.
    inside: usize,
    told: Option<Instant>,
    untold: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    from: IpAddr,
    stream: TcpStream,
}

/// What a hall counted: `connections = welcomed + refused + waiting`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HallView {
    /// Must translators prove that they know a secret?
    pub(crate) secret: bool,
    pub(crate) connections: u64,
    pub(crate) welcomed: u64,
    pub(crate) refused: NamedCounts,
    pub(crate) waiting: u64,
    pub(crate) adds_up: bool,
}

/// Counts by reason, of those that are not zero.
pub(crate) fn by_name(counts: &[u64; Why::COUNT]) -> NamedCounts {
    let named = Why::ALL.into_iter().zip(counts);
    named.filter(|(_, count)| **count > 0).map(|(why, count)| (why.name(), *count)).collect()
}

impl Hall {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection came in from this address; its number. `stream` is the same connection, to be ended when others press.
    pub(super) fn enter(&self, stream: TcpStream, from: IpAddr) -> u64 {
        let mut state = self.state();
        let number = state.connections;
        state.connections += 1;
        state.waiting.push_back(Waiting { number, from, stream });
        if state.waiting.len() > MOST_WAITING
            && let Some(pressed) = state.pressed().and_then(|place| state.waiting.remove(place))
        {
            // Its thread finds it closed.
            let _ = pressed.stream.shutdown(Shutdown::Both);
            state.refused[Why::Crowded as usize] += 1;
        }
        number
    }

    /// It came to nothing. Should the log tell so? Then the number of those it did not tell of before.
    pub(super) fn refuse(&self, number: u64, why: Why) -> Option<u64> {
        let mut state = self.state();
        if !state.takes(number) {
            return None; // It had to go, and was counted.
        }
        state.refused[why as usize] += 1;
        state.may_tell(why)
    }

    /// It said a good hello; `None` if it had to go meanwhile.
    ///
    /// # Errors
    /// As many as may be are inside. What is to be told by the log, as by [`Hall::refuse`].
    pub(super) fn admit(&self, number: u64) -> Option<Result<Inside<'_>, Option<u64>>> {
        let mut state = self.state();
        if !state.takes(number) {
            return None;
        }
        if state.inside >= MOST_LINKS {
            state.refused[Why::Full as usize] += 1;
            return Some(Err(state.may_tell(Why::Full)));
        }
        state.inside += 1;
        state.asked += 1;
        Some(Ok(Inside { hall: self, answered: false }))
    }

    /// What it counted. `secret`: is one needed?
    pub(crate) fn view(&self, secret: bool) -> HallView {
        let state = self.state();
        let (waiting, refused) =
            ((state.waiting.len() + state.asked) as u64, state.refused.iter().sum::<u64>());
        HallView {
            secret,
            connections: state.connections,
            welcomed: state.welcomed,
            refused: by_name(&state.refused),
            waiting,
            adds_up: state.connections == state.welcomed + refused + waiting,
        }
    }
}

impl State {
    /// Takes it out of those that wait, if it still does.
    fn takes(&mut self, number: u64) -> bool {
        let place = self.waiting.iter().position(|one| one.number == number);
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }

    /// The place of the oldest of the address that has most of them; of two such addresses, of the one that came first.
    fn pressed(&self) -> Option<usize> {
        let of = |from: IpAddr| self.waiting.iter().filter(|one| one.from == from).count();
        let places = self.waiting.iter().enumerate().rev();
        places.max_by_key(|(_, one)| of(one.from)).map(|(place, _)| place)
    }

    fn may_tell(&mut self, why: Why) -> Option<u64> {
        // Of these nobody need be told, and they must not stand before others.
        if matches!(why, Why::Closed | Why::Silent | Why::Stopped) {
            return None;
        }
        if self.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            self.untold += 1;
            return None;
        }
        self.told = Some(Instant::now());
        Some(std::mem::take(&mut self.untold))
    }
}

/// A place inside, given back however it ends.
#[derive(Debug)]
pub(super) struct Inside<'h> {
    hall: &'h Hall,
    answered: bool,
}

impl Inside<'_> {
    /// Its hello was answered by a welcome.
    pub(super) fn welcomed(&mut self) {
        self.answered = true;
        let mut state = self.hall.state();
        state.asked -= 1;
        state.welcomed += 1;
    }

    /// Its hello was answered otherwise.
    pub(super) fn refused(&mut self, why: Why) -> Option<u64> {
        self.answered = true;
        let mut state = self.hall.state();
        state.asked -= 1;
        state.refused[why as usize] += 1;
        state.may_tell(why)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if !self.answered {
            // The connection broke, or the thread did.
            self.refused(Why::Closed);
        }
        self.hall.state().inside -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn who_presses_presses_itself() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let hall = Hall::default();
        let from = |last: u8| IpAddr::from([10, 0, 0, last]);
        let good = hall.enter(stream(), from(1));
        let flood: Vec<u64> = (0..40).map(|_| hall.enter(stream(), from(2))).collect();
        let view = hall.view(true);
        assert_eq!((view.waiting, view.refused["crowded"], view.adds_up), (MOST_WAITING as u64, 25, true));
        assert!(hall.admit(flood[24]).is_none(), "it had to go");
        let mut inside = hall.admit(good).unwrap().unwrap();
        assert_eq!(hall.view(true).waiting, MOST_WAITING as u64, "it is being answered");
        inside.welcomed();
        assert_eq!(hall.refuse(flood[25], Why::Silent), None, "the oldest that is left; nothing for the log");
        assert_eq!(hall.refuse(flood[26], Why::NoSecret), Some(0), "the log may tell");
        assert_eq!(hall.refuse(flood[26], Why::NoSecret), None, "counted once");
        let view = hall.view(true);
        assert_eq!(view.refused, [("crowded", 25), ("no_secret", 1), ("silent", 1)]);
        assert_eq!((view.welcomed, view.waiting, view.adds_up), (1, 13, true));
    }

    #[test]
    fn as_many_as_may_be_are_inside() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let hall = Hall::default();
        let enter = || {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            hall.admit(hall.enter(stream, Ipv4Addr::LOCALHOST.into())).unwrap()
        };
        let mut inside: Vec<Inside<'_>> = (0..MOST_LINKS).map(|_| enter().unwrap()).collect();
        assert!(enter().is_err(), "full");
        inside.iter_mut().for_each(Inside::welcomed);
        inside.pop();
        drop(enter().unwrap());
        let view = hall.view(false);
        assert_eq!(view.refused, [("closed", 1), ("full", 1)], "the last one went before it was answered");
        assert_eq!((view.welcomed, view.waiting, view.adds_up), (MOST_LINKS as u64, 0, true));
    }
}
