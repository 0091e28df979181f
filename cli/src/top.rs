//! `hopwise top`: shows the busiest flows, nodes and links of a running hopwise, refreshed every second, or of a past time
//! range from its store. Keys switch between tables, time ranges and single flows.

mod detail;
mod screen;
mod snapshot;
mod state;

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{process::ExitCode, sync::mpsc::RecvTimeoutError, thread};

use self::{
    detail::Detail,
    screen::Screen,
    snapshot::Snapshot,
    state::{Action, Range, State, Target},
};
use super::{remote::Api, store_query::time};
use net::client::Client;
use terminal::text::json_line;
use terminal::{CliError, Terminal, Tone};

/// Minimum interval between two requests to a console.
const CONSOLE_INTERVAL: Duration = Duration::from_secs(10);

/// Watch the busiest flows, nodes and links of a running hopwise, now or at another time
///
/// Keys: f flows, n nodes, l links, s change the order, up and down select, enter a flow's hops or a node's flows, esc back,
/// `[` and `]` the time before and after, - and + longer and shorter, 0 now, / write a filter, q quit.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise top                                live, every second
  hopwise top --view nodes --sort queue      nodes with the fullest queues first
  hopwise top --filter 'src in 10.0.1.0/24'  only flows that a condition matches
  hopwise top --from 2026-11-26T03:10Z --to 2026-11-26T03:20Z    a past time range
  hopwise top --from 1h                      the last hour
  hopwise top --once --json                  one JSON object, for a script")]
pub struct Args {
    /// Print once and exit (the default if the output is not a terminal)
    #[arg(long)]
    pub(crate) once: bool,

    /// Print one JSON object with the responses of /status, /flows, /nodes and /links
    #[arg(long)]
    pub(crate) json: bool,

    /// Table to show first
    #[arg(long, value_enum, default_value_t = View::Flows)]
    pub(crate) view: View,

    /// Order of the rows at first
    #[arg(long, value_enum, default_value_t = Order::Latency)]
    pub(crate) sort: Order,

    /// Only flows that match this filter, for example "src in 10.0.1.0/24 and path ~ 101>*>103"
    #[arg(long, value_name = "CONDITION")]
    pub(crate) filter: Option<String>,

    /// From this time on, from the store: UTC such as 2026-11-26T03:10Z or 2026-11-26, an age such as 15m, 2h, 7d, or ns since 1970 (years 2000 to 2199)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
    pub(crate) from: Option<u64>,

    /// Until this time, likewise (default: now)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
    pub(crate) to: Option<u64>,

    /// Time between two refreshes, seconds
    #[arg(long, default_value_t = 1.0, value_parser = interval)]
    pub(crate) interval: f64,

    #[command(flatten)]
    pub(crate) api: Api,
}

/// Table that the screen shows.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    /// Flows with their paths and latencies
    Flows,
    /// Nodes and their queues
    Nodes,
    /// Links between nodes and their utilization
    Links,
}

wire::named! {
    /// Order of the rows.
    #[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Order, name {
        /// The slowest flow or node first
        Latency => "latency",
        /// The fullest queue comes first
        Queue => "queue",
        /// The most reports (links: the highest utilization)
        Rate => "rate",
    }
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("between 0.1 and 3600 seconds".into())
    }
}

/// Contents of the screen: the tables, or one flow.
enum Screenful {
    Tables(Box<Snapshot>),
    Flow(Box<Detail>),
}

impl Screenful {
    fn fetch(client: &Client, state: &State, now: u64) -> Result<Self, CliError> {
        let span = state.range.query(now);
        match &state.page.flow {
            Some(flow) => Detail::fetch(client, flow, &span).map(|detail| Self::Flow(Box::new(detail))),
            None => Snapshot::fetch(client, state.page.order, &state.page.filter, &span)
                .map(|snapshot| Self::Tables(Box::new(snapshot))),
        }
    }

    /// Returns the refresh interval: longer for a console, which queries ClickHouse for whole minutes.
    fn interval(&self, interval: Duration) -> Duration {
        match self {
            Self::Tables(snapshot) if snapshot.is_console() => interval.max(CONSOLE_INTERVAL),
            _ => interval,
        }
    }

    /// Returns the target of each row, which Enter opens.
    fn rows(&self, state: &State) -> Vec<Target> {
        match self {
            Self::Tables(snapshot) => snapshot.table(&state.page, None).1,
            Self::Flow(_) => Vec::new(),
        }
    }

    fn render(&self, state: &State, client: &Client, terminal: Terminal) -> String {
        let page = &state.page;
        match self {
            Self::Tables(snapshot) => {
                let header = snapshot.header(page, state.range, client, terminal);
                let body = snapshot.body(page, terminal, header.lines().count() + 3);
                format!("{header}\n{body}")
            }
            Self::Flow(detail) => detail.render(state.range, terminal),
        }
    }
}

/// Runs `hopwise top`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let client = args.api.client()?;
    let terminal = Terminal::stdout();
    let filter = args.filter.as_deref().unwrap_or_default();
    let range = Range::new(args.from, args.to, now()).map_err(CliError::new)?;
    let mut state = State::new(range, args.view, args.sort, filter);
    if args.json || args.once || !terminal.interactive {
        let snapshot = Snapshot::fetch(&client, args.sort, filter, &range.query(now()))?;
        if args.json {
            return print(&json_line(&snapshot)?);
        }
        return print(&snapshot.render(&state.page, range, &client, terminal));
    }
    let mut content = Screenful::fetch(&client, &state, now())?;
    let screen = Screen::enter();
    let keys = screen.keys();
    let interval = Duration::from_secs_f64(args.interval);
    let mut error_line = String::new();
    loop {
        let terminal = Terminal::stdout();
        let line = state
            .filter_input
            .as_ref()
            .map(|text| format!("filter: {text}_   enter applies, esc gives up\n"));
        let line = line.unwrap_or_default() + &error_line;
        screen::draw(&(line + &content.render(&state, &client, terminal)), terminal)?;
        let action = match keys.next(content.interval(interval)) {
            Ok(key) => state.press(key, &content.rows(&state), now()),
            Err(RecvTimeoutError::Timeout) if state.range.is_live() => Action::Fetch,
            Err(RecvTimeoutError::Timeout) => Action::Draw,
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(content.interval(interval));
                Action::Fetch
            }
        };
        match action {
            Action::Quit => return Ok(ExitCode::SUCCESS),
            Action::Draw => {}
            // On failure, the old tables stay and the error appears above: the server may be restarting.
            Action::Fetch => match Screenful::fetch(&client, &state, now()) {
                Ok(fetched) => (content, error_line) = (fetched, String::new()),
                Err(error) => error_line = terminal.paint(Tone::Bad, &format!("{error}\n")),
            },
        }
    }
}

fn print(text: &str) -> Result<ExitCode, CliError> {
    terminal::print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the current time, ns since the epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Latency => Self::Queue,
            Self::Queue => Self::Rate,
            Self::Rate => Self::Latency,
        }
    }
}
