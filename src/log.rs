//! The log on standard error, as text or JSON lines. A configuration reload can change the level.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{Layer, Registry, fmt, reload};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

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
        let layer = fmt::layer().with_target(false);
        let layer = match format {
            LogFormat::Text => layer.with_writer(terminal::stderr).with_ansi(colour).boxed(),
            LogFormat::Json => {
                let layer = layer.with_writer(terminal::stderr_json).json();
                layer.flatten_event(true).with_current_span(false).boxed()
            }
        };
        let init_result = tracing_subscriber::registry().with(filter).with(layer).try_init();
        Self {
            handle: init_result.is_ok().then_some(handle),
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
