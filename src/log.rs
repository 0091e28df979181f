//! The log on standard error, as text or JSON lines. A configuration reload can change the level.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use config::sections::{Level, LogFormat};

/// Handle of the running log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    handle: Option<reload::Handle<LevelFilter, Registry>>,
}

impl Log {
    /// Starts logging. A second call in the same process has no effect.
    pub(crate) fn start(level: Level, format: LogFormat) -> Self {
        let (filter, handle) = reload::Layer::new(filter(level));
        let colour = terminal::Terminal::stderr().colour;
        let lines = fmt::layer().with_target(false);
        let lines = match format {
            LogFormat::Text => lines.with_writer(terminal::stderr).with_ansi(colour).boxed(),
            LogFormat::Json => {
                let lines = lines.with_writer(terminal::stderr_json).json();
                lines.flatten_event(true).with_current_span(false).boxed()
            }
        };
        let started = tracing_subscriber::registry().with(filter).with(lines).try_init();
        Self {
            handle: started.is_ok().then_some(handle),
        }
    }

    /// Changes the level of the running log.
    pub(crate) fn set_level(&self, level: Level) {
        if let Some(handle) = &self.handle {
            // Fails only without a subscriber; then there is no log.
            let _ = handle.reload(filter(level));
        }
    }
}

fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}
