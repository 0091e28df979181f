//! Reverse DNS lookups in the background, if the configuration enables them. API responses never wait for a lookup: addresses
//! in a response are looked up afterwards by separate threads, and later responses contain the names.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::IpAddr,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use terminal::CliError;

use runtime::lock::lock;

/// Number of threads. With several, a lookup that waits for a server does not block the others.
const THREADS: usize = 4;
/// Minimum interval between two lookups: at most 20 per second.
const INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of queued addresses.
const MAX_WAITING: usize = 1024;
/// Maximum number of addresses in the cache.
const MAX_KNOWN: usize = 16_384;
/// Time until an address is looked up again: with a name, and (below) without one.
const LIFETIME: Duration = Duration::from_secs(3600);
const LIFETIME_WITHOUT: Duration = Duration::from_secs(600);
/// Interval at which an idle thread wakes up.
const IDLE: Duration = Duration::from_secs(60);

/// Function that looks up the name of an address; `None` if it has no name.
type Lookup = fn(IpAddr) -> Option<String>;

/// Reverse resolver with its own threads and a cache.
#[derive(Debug)]
pub struct Resolver(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    cache: Mutex<Cache>,
    /// Signals new addresses, or the end.
    changed: Condvar,
}

impl Resolver {
    /// Starts a resolver that asks the system, which uses its files and then DNS.
    ///
    /// # Errors
    /// Returns an error if the system does not start a thread.
    pub fn start() -> Result<Self, CliError> {
        Self::with(|ip| dns_lookup::lookup_addr(&ip).ok())
    }

    fn with(lookup: Lookup) -> Result<Self, CliError> {
        let cache = Mutex::new(Cache::new(Instant::now()));
        let resolver = Self(Arc::new(Shared {
            cache,
            changed: Condvar::new(),
        }));
        for number in 0..THREADS {
            let shared = Arc::clone(&resolver.0);
            // The thread is never joined: a lookup takes as long as the system's resolver permits.
            let thread = thread::Builder::new()
                .name(format!("dns-{number}"))
                .spawn(move || shared.work(lookup));
            thread.map_err(|error| {
                CliError::io("cannot start a thread", error, "raise the limit of threads")
            })?;
        }
        Ok(resolver)
    }

    /// Queues lookups of these addresses, except for addresses that are known or already queued, and for those beyond the
    /// limit.
    pub fn want(&self, addresses: impl Iterator<Item = IpAddr>) {
        let now = Instant::now();
        let mut cache = lock(&self.0.cache);
        addresses.for_each(|ip| cache.want(ip, now));
        drop(cache);
        self.0.changed.notify_all();
    }

    /// Returns the addresses whose names are known, with the names.
    pub fn names(&self) -> Vec<(IpAddr, String)> {
        lock(&self.0.cache).names()
    }

    /// Returns counts of lookups, and the sizes of the cache and the queue.
    pub fn counts(&self) -> Counts {
        lock(&self.0.cache).counts()
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        lock(&self.0.cache).ended = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn work(&self, lookup: Lookup) {
        while let Some(ip) = self.next() {
            let name = lookup(ip).and_then(|name| valid(&name));
            lock(&self.cache).put(ip, name, Instant::now());
        }
    }

    /// Waits for the next address that may be looked up now; returns `None` at the end.
    fn next(&self) -> Option<IpAddr> {
        let mut cache = lock(&self.cache);
        while !cache.ended {
            let wait = match cache.next_due(Instant::now()) {
                Ok(ip) => return Some(ip),
                Err(wait) => wait.unwrap_or(IDLE),
            };
            cache = self
                .changed
                .wait_timeout(cache, wait)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        None
    }
}

/// Counts of lookups, and numbers of addresses in the resolver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lookups that found a name.
    pub found: u64,
    /// Lookups that found no name, or failed.
    pub without: u64,
    /// Addresses refused because too many were queued; later responses queue them again.
    pub refused: u64,
    /// Addresses that are queued or being looked up.
    pub waiting: usize,
    /// Addresses in the cache, with or without a name.
    pub cached: usize,
}

/// Names by address, and the queue of addresses to look up.
#[derive(Debug)]
struct Cache {
    known: HashMap<IpAddr, Known>,
    waiting: VecDeque<IpAddr>,
    /// Addresses that are queued or being looked up.
    pending: HashSet<IpAddr>,
    /// Time of the next permitted lookup.
    next: Instant,
    counts: Counts,
    ended: bool,
}

/// The name of an address, or the fact that it has none.
#[derive(Debug)]
struct Known {
    name: Option<String>,
    /// Time before which the address is not looked up again. Its name stays in use until the next lookup.
    until: Instant,
}

impl Cache {
    fn new(now: Instant) -> Self {
        Self {
            known: HashMap::new(),
            waiting: VecDeque::new(),
            pending: HashSet::new(),
            next: now,
            counts: Counts::default(),
            ended: false,
        }
    }

    fn want(&mut self, ip: IpAddr, now: Instant) {
        let ip = ip.to_canonical();
        let is_known = self.known.get(&ip).is_some_and(|known| known.until > now);
        if is_known || ip.is_unspecified() || ip.is_multicast() || self.pending.contains(&ip) {
            return;
        }
        if self.waiting.len() == MAX_WAITING {
            self.counts.refused += 1;
            return;
        }
        self.waiting.push_back(ip);
        self.pending.insert(ip);
    }

    /// Returns an address to look up now. Otherwise returns the time to wait, or `Err(None)` if the queue is empty.
    fn next_due(&mut self, now: Instant) -> Result<IpAddr, Option<Duration>> {
        if self.waiting.is_empty() {
            return Err(None);
        }
        if self.next > now {
            return Err(Some(self.next - now));
        }
        self.next = now + INTERVAL;
        self.waiting.pop_front().ok_or(None)
    }

    fn put(&mut self, ip: IpAddr, name: Option<String>, now: Instant) {
        self.pending.remove(&ip);
        let (count, lifetime) = match name {
            Some(_) => (&mut self.counts.found, LIFETIME),
            None => (&mut self.counts.without, LIFETIME_WITHOUT),
        };
        *count += 1;
        if self.known.len() == MAX_KNOWN && !self.known.contains_key(&ip) {
            // This linear search is rare: it runs at most once per lookup.
            let oldest = self
                .known
                .iter()
                .min_by_key(|(_, known)| known.until)
                .map(|(ip, _)| *ip);
            oldest.map(|oldest| self.known.remove(&oldest));
        }
        self.known.insert(
            ip,
            Known {
                name,
                until: now + lifetime,
            },
        );
    }

    fn names(&self) -> Vec<(IpAddr, String)> {
        self.known
            .iter()
            .filter_map(|(ip, known)| Some((*ip, known.name.clone()?)))
            .collect()
    }

    fn counts(&self) -> Counts {
        Counts {
            waiting: self.pending.len(),
            cached: self.known.len(),
            ..self.counts
        }
    }
}

/// Returns the name if it is safe to display: the owner of an address may put anything into DNS.
fn valid(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let is_name = (1..=253).contains(&name.len()) && is_plain && name.parse::<IpAddr>().is_err();
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    #[test]
    fn an_address_is_looked_up_once_and_again_when_its_time_is_over() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut cache = Cache::new(start);
        assert_eq!(cache.next_due(start), Err(None));
        for address in [
            "10.0.0.1",
            "::ffff:10.0.0.1",
            "10.0.0.2",
            "224.0.0.1",
            "::",
            "10.0.0.1",
        ] {
            cache.want(address.parse().unwrap(), start);
        }
        // Twenty a second.
        assert_eq!(cache.next_due(start), Ok(ip(1)));
        assert_eq!(
            cache.next_due(start + Duration::from_millis(20)),
            Err(Some(Duration::from_millis(30)))
        );
        assert_eq!(cache.next_due(start + Duration::from_millis(50)), Ok(ip(2)));
        // One that is being looked up is not asked for again.
        cache.want(ip(2), at(1));
        assert_eq!(cache.next_due(at(1)), Err(None));
        cache.put(ip(1), Some("h1".to_owned()), at(1));
        cache.put(ip(2), None, at(1));
        let again = |cache: &mut Cache, now| {
            [1, 2].iter().for_each(|number| cache.want(ip(*number), now));
            (cache.next_due(now), cache.names())
        };
        let h1 = vec![(ip(1), "h1".to_owned())];
        assert_eq!(again(&mut cache, at(600)), (Err(None), h1.clone()));
        assert_eq!(again(&mut cache, at(601)), (Ok(ip(2)), h1.clone()));
        assert_eq!(again(&mut cache, at(3601)), (Ok(ip(1)), h1));
        assert_eq!(
            cache.counts(),
            Counts {
                found: 1,
                without: 1,
                refused: 0,
                waiting: 2,
                cached: 2
            }
        );
    }

    #[test]
    fn what_waits_and_what_is_known_is_bounded() {
        let start = Instant::now();
        let mut cache = Cache::new(start);
        (0..2_000).for_each(|number| cache.want(ip(number), start));
        let counts = Counts {
            refused: 976,
            waiting: 1024,
            ..Counts::default()
        };
        assert_eq!(cache.counts(), counts);
        let mut cache = Cache::new(start);
        for number in 0..=16_384 {
            cache.put(
                ip(number),
                Some("h".to_owned()),
                start + Duration::from_secs(u64::from(number)),
            );
        }
        assert_eq!(
            (cache.known.len(), cache.known.contains_key(&ip(0))),
            (16_384, false)
        );
        assert!(cache.known.contains_key(&ip(1)) && cache.known.contains_key(&ip(16_384)));
    }

    #[test]
    fn a_name_has_letters_digits_dots_and_hyphens() {
        for (name, shown) in [
            ("h1.example.org.", Some("h1.example.org")),
            ("a_b-C9", Some("a_b-C9")),
        ] {
            assert_eq!(valid(name).as_deref(), shown);
        }
        for name in [
            "",
            ".",
            "10.0.0.1",
            "fd00::1",
            "a b",
            "<b>",
            "\u{1b}[31m",
            "é",
            &"a".repeat(254),
        ] {
            assert_eq!(valid(name), None, "{name}");
        }
    }

    #[test]
    fn threads_look_up_what_is_asked_for() {
        let resolver =
            Resolver::with(|ip| (ip.to_string() == "10.0.0.7").then(|| "db7.".to_owned())).unwrap();
        resolver.want([ip(7), ip(8)].into_iter());
        let both = Counts {
            found: 1,
            without: 1,
            refused: 0,
            waiting: 0,
            cached: 2,
        };
        while resolver.counts() != both {
            thread::yield_now();
        }
        assert_eq!(resolver.names(), [(ip(7), "db7".to_owned())]);
    }
}
