//! Figures in sentences of the documentation are those of `docs/reference/performance.jsonl`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::Path;

use serde_json::Value;

/// A sentence of a page with `{}` for each figure, and the figures: the case, its field or condition, the divisor, and the decimals.
struct Sentence {
    page: &'static str,
    text: &'static str,
    figures: &'static [(&'static str, &'static str, f64, usize)],
}

const SENTENCES: &[Sentence] = &[
    Sentence {
        page: "README.md",
        text: "**Fast**: {} ns per report of 6 hops × 8 items on one core of an AMD EPYC",
        figures: &[("fastpath-6x8-1k", "median", 1.0, 0)],
    },
    Sentence {
        page: "README.md",
        text: "{} M reports/s by [AF_XDP](docs/how-to/receive-faster.md) over veth there.",
        figures: &[("rx-xdp-native", "ops_per_s", 1e6, 1)],
    },
    Sentence {
        page: "docs/reference/performance.md",
        text: "the tables of a million flows of six hops take {} MB (`table_bytes` of",
        figures: &[("fastpath-6x8-1m-shuffled", "table_bytes", 1e6, 0)],
    },
    Sentence {
        page: "docs/reference/performance.md",
        text: "as the sender could send ({},000 per second), a page of 50 flows took {} ms (median) and {} ms at most, and nothing was",
        figures: &[
            ("live-asked-1m", "ops_per_s", 1e3, 0),
            ("live-asked-1m", "api_ms_median", 1.0, 0),
            ("live-asked-1m", "api_ms_greatest", 1.0, 0),
        ],
    },
    Sentence {
        page: "docs/design/manager.md",
        text: "10,000 intents are compiled and planned in {} s and {} MiB on",
        figures: &[
            ("manager-plan", "median", 1e9, 2),
            ("manager-plan", "peak_mib", 1.0, 0),
        ],
    },
    Sentence {
        page: "docs/design/manager.md",
        text: "one more intent takes {} ms, and one that changes an entry of each flow on all 640 edge devices takes {} ms",
        figures: &[
            ("manager-one-more", "median", 1e6, 2),
            ("manager-one-more-everywhere", "median", 1e6, 0),
        ],
    },
    Sentence {
        page: "docs/design/manager.md",
        text: "answer after 10 ms each way are configured in {} ms of",
        figures: &[("manager-apply-200", "simulated_ms", 1.0, 0)],
    },
];

#[test]
fn figures_in_sentences_are_those_of_the_published_outcomes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let outcomes = fs::read_to_string(root.join("docs/reference/performance.jsonl")).unwrap();
    let outcomes: Vec<Value> = outcomes
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for Sentence { page, text, figures } in SENTENCES {
        let mut expected = (*text).to_owned();
        for (case, field, divisor, decimals) in *figures {
            let figure = figure(&outcomes, case, field) / divisor;
            expected = expected.replacen("{}", &format!("{figure:.decimals$}"), 1);
        }
        let content = fs::read_to_string(root.join(page)).unwrap();
        assert!(
            content.contains(&expected),
            "{page} should say, by performance.jsonl: {expected}"
        );
    }
}

/// Returns a field or a condition of a case's outcome.
fn figure(outcomes: &[Value], case: &str, field: &str) -> f64 {
    let outcome = outcomes.iter().find(|outcome| outcome["name"] == case);
    let outcome = outcome.unwrap_or_else(|| panic!("{case} was not measured"));
    let value = outcome[field]
        .as_f64()
        .or_else(|| outcome["conditions"][field].as_f64());
    value.unwrap_or_else(|| panic!("{case} has no {field}"))
}
