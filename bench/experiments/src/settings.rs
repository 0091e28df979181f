//! Parameters of experiments: each experiment declares its own, with default, range and help; the command line may set them.

use std::ops::RangeInclusive;

use terminal::{CliError, units};

/// The amount of work of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    /// The amount of work in the committed pages.
    Full,
    /// About a tenth of the full work.
    Quick,
    /// About a hundredth: the smallest amount that still runs all code, for the tests of this crate.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests are this small"))]
    Smallest,
}

impl Scale {
    /// Scales an amount of work down, to at least 1.
    pub(super) fn scale(self, full: u64) -> u64 {
        match self {
            Self::Full => full,
            Self::Quick => (full / 10).max(1),
            Self::Smallest => (full / 100).max(1),
        }
    }
}

#[derive(Debug)]
pub(super) struct Parameter {
    name: &'static str,
    /// Default values for each [`Scale`]; more than one if the parameter takes a list.
    defaults: [&'static [u64]; 3],
    range: RangeInclusive<u64>,
    help: &'static str,
}

impl Parameter {
    /// Declares a parameter with the same default at every scale.
    pub(super) const fn new(name: &'static str, default: &'static [u64], range: RangeInclusive<u64>) -> Self {
        Self::scaled(name, [default; 3], range)
    }

    /// Declares a parameter that is an amount of work, with its defaults in a full run, with `--quick`, and in tests.
    pub(super) const fn scaled(
        name: &'static str,
        defaults: [&'static [u64]; 3],
        range: RangeInclusive<u64>,
    ) -> Self {
        let help = "";
        Self {
            name,
            defaults,
            range,
            help,
        }
    }

    pub(super) const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// Declares the first seed of simulated runs.
    pub(super) const fn seed() -> Self {
        Self::new("seed", &[1], 0..=u32::MAX as u64).help("first seed; each further run takes the next one")
    }

    /// Declares the number of simulated runs, each with its own seed.
    pub(super) const fn seeds() -> Self {
        Self::scaled("runs", [&[20], &[5], &[2]], 2..=1_000)
            .help("runs of each point, each with its own seed")
    }

    /// Declares the number of measured runs.
    pub(super) const fn runs() -> Self {
        Self::scaled("runs", [&[5], &[3], &[1]], 1..=100)
            .help("runs of each point; the page shows their median, minimum and maximum")
    }

    /// Declares the duration of a measured run, ms.
    pub(super) const fn span(full: &'static [u64]) -> Self {
        Self::scaled("span", [full, &[20], &[1]], 1..=60_000).help("duration of each run of a point, ms")
    }

    fn default(&self, scale: Scale) -> &'static [u64] {
        let [full, quick, smallest] = self.defaults;
        match scale {
            Scale::Full => full,
            Scale::Quick => quick,
            Scale::Smallest => smallest,
        }
    }

    fn is_list(&self) -> bool {
        self.defaults[0].len() > 1
    }

    /// Returns the parameter's line of `--list NAME`.
    pub(super) fn line(&self) -> String {
        let low = units::count(*self.range.start());
        let high = units::count(*self.range.end());
        let list = if self.is_list() { ", a list" } else { "" };
        let default = text(self.default(Scale::Full));
        format!(
            "    {:<12}{}{list}; {low} to {high}; default {default}\n",
            format!("--{}", self.name),
            self.help
        )
    }
}

/// Formats values as on the command line: `2,4,8`.
fn text(values: &[u64]) -> String {
    values.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// The parameters of all experiments as command-line options. Each experiment accepts only those that it declares.
#[derive(clap::Args, Clone, Default, Debug)]
#[command(
    next_help_heading = "Parameters (`--list NAME` shows those of an experiment, with ranges and defaults)"
)]
pub(super) struct Given {
    /// First seed of simulated runs
    #[arg(long, value_name = "N", value_delimiter = ',')]
    seed: Vec<u64>,

    /// Runs of each point
    #[arg(long, visible_alias = "seeds", value_name = "N", value_delimiter = ',')]
    runs: Vec<u64>,

    /// Duration of a run, ms
    #[arg(long, value_name = "MS", value_delimiter = ',')]
    span: Vec<u64>,

    /// Packets of each run
    #[arg(long, value_name = "N", value_delimiter = ',')]
    packets: Vec<u64>,

    /// Packets or reports per second
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    rate: Vec<u64>,

    /// Flows to measure, one run for each number
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    flows: Vec<u64>,

    /// Nodes of a path
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    nodes: Vec<u64>,

    /// Items that each node adds
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    items: Vec<u64>,

    /// Thresholds of event detection
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    threshold: Vec<u64>,

    /// Events per million reports
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    events: Vec<u64>,

    /// Postcards per aggregate, or entries per batch
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    batch: Vec<u64>,
}

impl Given {
    fn all(&self) -> [(&'static str, &[u64]); 11] {
        [
            ("seed", &self.seed),
            ("runs", &self.runs),
            ("span", &self.span),
            ("packets", &self.packets),
            ("rate", &self.rate),
            ("flows", &self.flows),
            ("nodes", &self.nodes),
            ("items", &self.items),
            ("threshold", &self.threshold),
            ("events", &self.events),
            ("batch", &self.batch),
        ]
    }
}

/// The parameters of one run of an experiment.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) scale: Scale,
    parameters: &'static [Parameter],
    /// Names and values of the parameters that the command line sets.
    given: Vec<(&'static str, Vec<u64>)>,
}

impl Settings {
    /// Creates settings with the defaults of an experiment.
    pub(super) fn new(scale: Scale, parameters: &'static [Parameter]) -> Self {
        Self {
            scale,
            parameters,
            given: Vec::new(),
        }
    }

    /// Creates settings with the values in `given`, and defaults for the others. Fails for a parameter that the experiment does
    /// not have, too many values, or a value out of range.
    pub(super) fn with(
        scale: Scale,
        experiment: &str,
        parameters: &'static [Parameter],
        given: &Given,
    ) -> Result<Self, CliError> {
        let mut settings = Self::new(scale, parameters);
        for (name, values) in given.all().into_iter().filter(|(_, values)| !values.is_empty()) {
            let found = parameters.iter().find(|one| one.name == name);
            let parameter =
                found.ok_or_else(|| CliError::new(not_applicable(experiment, parameters, name)))?;
            let low = *parameter.range.start();
            let high = *parameter.range.end();
            if let Some(value) = values.iter().find(|value| !parameter.range.contains(value)) {
                return Err(CliError::new(format!(
                    "`--{name} {value}` is out of range: `{experiment}` takes {low} to {high}"
                )));
            }
            if values.len() > 1 && !parameter.is_list() {
                return Err(CliError::new(format!(
                    "`--{name}` of `{experiment}` takes one value, not a list"
                )));
            }
            settings.given.push((name, values.to_vec()));
        }
        Ok(settings)
    }

    /// Returns the values of a parameter that takes a list.
    pub(super) fn list(&self, name: &str) -> &[u64] {
        if let Some((_, values)) = self.given.iter().find(|(given, _)| *given == name) {
            return values;
        }
        let declared = self.parameters.iter().find(|one| one.name == name);
        debug_assert!(declared.is_some(), "the experiment does not declare `{name}`");
        declared.map_or(&[], |one| one.default(self.scale))
    }

    pub(super) fn value(&self, name: &str) -> u64 {
        self.list(name).first().copied().unwrap_or(0)
    }

    pub(super) fn seeds(&self) -> std::ops::Range<u64> {
        let first = self.value("seed");
        first..first + self.value("runs")
    }

    /// Returns the command-line options that repeat this run, each with a leading space.
    pub(super) fn options(&self) -> String {
        let quick = if self.scale == Scale::Quick {
            " --quick"
        } else {
            ""
        };
        let given = self
            .given
            .iter()
            .map(|(name, values)| format!(" --{name} {}", text(values)));
        given.chain([quick.to_owned()]).collect()
    }

    /// Describes all parameters with their values.
    pub(super) fn sentence(&self) -> String {
        self.parameters
            .iter()
            .map(|parameter| {
                format!(
                    "{} {}",
                    parameter.name,
                    text(self.list(parameter.name)).replace(',', ", ")
                )
            })
            .collect::<Vec<_>>()
            .join("; ")
    }
}

fn not_applicable(experiment: &str, parameters: &[Parameter], name: &str) -> String {
    let valid: Vec<_> = parameters.iter().map(|one| format!("--{}", one.name)).collect();
    let valid = if valid.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}", valid.join(", "))
    };
    format!("`{experiment}` has no parameter `--{name}`; {valid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &[Parameter] = &[
        Parameter::seed(),
        Parameter::seeds(),
        Parameter::new("rate", &[10, 20], 1..=100).help("packets per second"),
    ];

    fn with(given: &Given) -> Result<Settings, String> {
        Settings::with(Scale::Full, "e", SOME, given).map_err(|error| error.to_string())
    }

    #[test]
    fn given_values_replace_defaults() {
        let settings = with(&Given {
            seed: vec![7],
            rate: vec![30],
            ..Given::default()
        })
        .unwrap();
        assert_eq!((settings.seeds(), settings.list("rate")), (7..27, &[30][..]));
        assert_eq!(settings.options(), " --seed 7 --rate 30");
        assert_eq!(settings.sentence(), "seed 7; runs 20; rate 30");
        let smallest = Settings::new(Scale::Smallest, SOME);
        assert_eq!((smallest.seeds(), smallest.list("rate")), (1..3, &[10, 20][..]));
    }

    #[test]
    fn parameters_that_do_not_apply_are_refused_with_the_valid_ones() {
        let error = with(&Given {
            nodes: vec![3],
            ..Given::default()
        })
        .unwrap_err();
        assert!(
            error.contains("`e` has no parameter `--nodes`; it has --seed, --runs, --rate"),
            "{error}"
        );
        let error = with(&Given {
            rate: vec![101],
            ..Given::default()
        })
        .unwrap_err();
        assert!(
            error.contains("`--rate 101` is out of range: `e` takes 1 to 100"),
            "{error}"
        );
        let error = with(&Given {
            seed: vec![1, 2],
            ..Given::default()
        })
        .unwrap_err();
        assert!(error.contains("takes one value"), "{error}");
    }
}
