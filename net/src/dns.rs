//! Names of hosts by DNS, where the configuration asks for them. Addresses that answers of the API contain are looked up later, by
//! threads for which nothing waits; the answers that follow have the names.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::IpAddr,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use terminal::CliError;

use runtime::lock::lock;

/// Looks up one address: its name, or none.
type Lookup = fn(IpAddr) -> Option<String>;

/// Looks up names of hosts, in threads of its own.
#[derive(Debug)]
pub struct Resolver(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    cache: Mutex<Cache>,
    /// There is work, or the end.
    changed: Condvar,
}

impl Resolver {
    /// A resolver that asks the system: its files, then DNS.
    ///
    /// # Errors
    /// The system refuses a thread.
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
            // It is not joined: a lookup takes as long as the system's resolver lets it.
            let thread = thread::Builder::new()
                .name(format!("dns-{number}"))
                .spawn(move || shared.work(lookup));
            thread.map_err(|error| {
                CliError::io("cannot start a thread", error, "raise the limit of threads")
            })?;
        }
        Ok(resolver)
    }

    /// Asks for the names of these addresses, unless they are known, asked for, or too many.
    pub fn want(&self, addresses: impl Iterator<Item = IpAddr>) {
        let now = Instant::now();
        let mut cache = lock(&self.0.cache);
        addresses.for_each(|ip| cache.want(ip, now));
        drop(cache);
        self.0.changed.notify_all();
    }

    /// The names that were found.
    pub fn names(&self) -> Vec<(IpAddr, String)> {
        lock(&self.0.cache).names()
    }

    /// Returns counts of lookups and of the cache.
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

    /// The next address, when its time has come; `None` at the end.
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

/// Counts of lookups, and numbers of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lookups that found a name.
    pub found: u64,
    /// Lookups that found none, or failed.
    pub without: u64,
    /// Not looked up, because too many waited; they are asked for again.
    pub refused: u64,
    /// Waiting, or being looked up.
    pub waiting: usize,
    /// In the cache, with a name or without.
    pub cached: usize,
}

/// Names by address, and addresses that wait for a lookup.
#[derive(Debug)]
struct Cache {
    known: HashMap<IpAddr, Known>,
    waiting: VecDeque<IpAddr>,
    /// Waiting, or being looked up.
    asked: HashSet<IpAddr>,
    /// When the next lookup may begin.
    next: Instant,
    counts: Counts,
    ended: bool,
}

/// The name of an address, or that it has none.
#[derive(Debug)]
struct Known {
    name: Option<String>,
    /// The name is not looked up again before this time. It is used until another one is found.
    until: Instant,
}

impl Cache {
    fn new(now: Instant) -> Self {
        Self {
            known: HashMap::new(),
            waiting: VecDeque::new(),
            asked: HashSet::new(),
            next: now,
            counts: Counts::default(),
            ended: false,
        }
    }

    fn want(&mut self, ip: IpAddr, now: Instant) {
        let ip = ip.to_canonical();
        let is_known = self.known.get(&ip).is_some_and(|known| known.until > now);
        if is_known || ip.is_unspecified() || ip.is_multicast() || self.asked.contains(&ip) {
            return;
        }
        if self.waiting.len() == MAX_WAITING {
            self.counts.refused += 1;
            return;
        }
        self.waiting.push_back(ip);
        self.asked.insert(ip);
    }

    /// An address to look up now, or how long to wait; `Err(None)`: for new addresses.
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
        self.asked.remove(&ip);
        let (count, lifetime) = match name {
            Some(_) => (&mut self.counts.found, LIFETIME),
            None => (&mut self.counts.without, LIFETIME_WITHOUT),
        };
        *count += 1;
        if self.known.len() == MAX_KNOWN && !self.known.contains_key(&ip) {
            // Rare, and no more often than lookups.
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
            waiting: self.asked.len(),
            cached: self.known.len(),
            ..self.counts
        }
    }
}

/// A name of DNS that can be shown: others may write anything into it.
fn valid(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let is_name = (1..=253).contains(&name.len()) && is_plain && name.parse::<IpAddr>().is_err();
    is_name.then(|| name.to_owned())
}

/// Lookups at a time: one that waits for a server does not stop the others.
const THREADS: usize = 4;
/// Between two lookups: at most 20 a second.
const INTERVAL: Duration = Duration::from_millis(50);
/// Addresses that wait at most.
const MAX_WAITING: usize = 1024;
/// Addresses in the cache at most.
const MAX_KNOWN: usize = 16_384;
/// Time until a name is looked up again, and until an address without a name is.
const LIFETIME: Duration = Duration::from_secs(3600);
const LIFETIME_WITHOUT: Duration = Duration::from_secs(600);
/// A thread without work looks around this often.
const IDLE: Duration = Duration::from_secs(60);

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
