//! Settings of the DTA reporter: the table `[reporter]`.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use dataplane::dta::Spread;
use settings::{
    read::{Node, Reader},
    section,
    setting::{Setting, Shown},
    values::from_text,
};
use wire::dta::CONTROL_PORT;

use runtime::collector_map;

/// Longest path of a Unix socket on Linux, bytes (`sun_path` without its terminator).
const MAX_PATH: usize = 107;

section! {
    /// A DTA reporter of a host: programs of this machine send it reports as text, one per datagram, and it sends them to translators
    /// by DTA. All of them share its reporter ID, its sequence numbers and its control port. A file with `[reporter]` and without
    /// `[collector]` runs no collector. See [the how-to](../how-to/report-by-dta.md#from-a-host).
    pub struct ReporterSettings("[reporter]") {
        /// Reporter ID; no two reporters of a translator may have the same.
        pub id: u32 = 1,
        /// Addresses of the collectors, in the order of their numbers from 0; a translator receives the reports to each address. At
        /// most 64. All reporters and queries need the same list, because it determines the collector of each key.
        pub collectors: Vec<SocketAddr> = Vec::new(),
        /// A map of the collectors (`hopwise map`) instead of `collectors`, read at the start.
        pub map: Option<PathBuf> = None,
        /// Where programs send reports: the path of a Unix datagram socket, which this user and its group can write to, or a loopback
        /// address for UDP.
        pub listen: LocalListen = LocalListen::Unix(PathBuf::from("/run/hopwise/reporter.sock")),
        /// Address and port that receive control messages of translators; reports are sent from this address and another port. Do
        /// not change the port: a translator sends to the same port at all reporters. If two reporters share a machine, give each
        /// its own address.
        pub control: SocketAddr = SocketAddr::from(([0, 0, 0, 0], CONTROL_PORT)),
        /// After this time without another essential report, the last one is sent again; then after twice this time, four times,
        /// and so on, eight times in all. `0s`: never.
        pub probe: Duration = Duration::from_millis(20),
    }
}

/// The local socket to which this machine's programs send reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalListen {
    /// A Unix datagram socket.
    Unix(PathBuf),
    /// A UDP socket at this address.
    Udp(SocketAddr),
}

impl FromStr for LocalListen {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Udp(address));
        }
        let is_path = Path::new(text).is_absolute() && text.len() <= MAX_PATH && !text.contains('\0');
        if is_path {
            Ok(Self::Unix(text.into()))
        } else {
            Err(())
        }
    }
}

impl fmt::Display for LocalListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Udp(address) => address.fmt(f),
        }
    }
}

impl Setting for LocalListen {
    const KIND: &'static str = "an absolute path of at most 107 bytes, such as \"/run/hopwise/reporter.sock\", or \"127.0.0.1:40045\"";

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        from_text(node, reader, |text| text.parse().ok())
    }

    fn show(&self) -> Shown {
        Shown::Plain(self.to_string().into())
    }
}

impl ReporterSettings {
    /// Returns the address for each collector's reports, and the assignment of keys to collectors, from the map if given.
    ///
    /// # Errors
    /// The map cannot be read, or there are too many collectors; the value is the message.
    pub fn destinations(&self) -> Result<(Vec<SocketAddr>, Spread), String> {
        let Some(file) = &self.map else {
            let spread = Spread::new(self.collectors.len(), None, Vec::new(), 0)?;
            return Ok((self.collectors.clone(), spread));
        };
        let map = collector_map::load(file).map_err(|error| error.to_string())?;
        Ok((map.reports()?, map.spread()?))
    }
}

/// Reports inconsistent settings. `refuse` receives the path of a setting and a message.
pub fn check(settings: &ReporterSettings, refuse: &mut dyn FnMut(&[&str], String)) {
    let ReporterSettings {
        collectors,
        map,
        listen,
        control,
        ..
    } = settings;
    if collectors.is_empty() && map.is_none() {
        let problem = "nowhere to report to; add collectors = [\"192.0.2.100:40040\"] or the like";
        return refuse(&["reporter", "collectors"], problem.to_owned());
    }
    if !collectors.is_empty() && map.is_some() {
        refuse(
            &["reporter", "map"],
            "the map names the collectors; remove `collectors`, or the map".to_owned(),
        );
    }
    for (index, collector) in collectors.iter().enumerate() {
        if collectors[..index].contains(collector) {
            let path = ["reporter", "collectors", &index.to_string()];
            refuse(&path, "it is there twice; remove one".to_owned());
        }
    }
    let key = if map.is_some() { "map" } else { "collectors" };
    match settings.destinations() {
        Err(problem) => refuse(&["reporter", key], problem),
        Ok((to, _)) if to.iter().any(|address| address.is_ipv6() != control.is_ipv6()) => {
            let problem = "reports go to an address of another family than `control`; write control = \"[::]:40044\" for IPv6";
            refuse(&["reporter", key], problem.to_owned());
        }
        Ok(_) => {}
    }
    if let LocalListen::Udp(address) = listen
        && !address.ip().is_loopback()
    {
        let problem = "reports are not authenticated, so only programs of this machine may send them; write a path, or 127.0.0.1 with a port";
        refuse(&["reporter", "listen"], problem.to_owned());
    }
}
