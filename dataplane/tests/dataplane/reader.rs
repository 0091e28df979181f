//! The reader of `vectors/switch/*.txt`; the format is described in `vectors/README.md`.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "tests of several kinds and crates share this reader"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use detect::detector::Change;
use detect::{Algorithm, Detector, Metric, Program, RuleSet};

/// One block: the setup, the input, and the expected output.
#[derive(Clone, Debug)]
pub struct Vector {
    /// Its name, unique in the directory.
    pub name: String,
    /// `switch`, or the name of another part.
    pub kind: String,
    /// Everything else, in order.
    pub lines: Vec<Line>,
}

/// One line. Bytes of `more` lines are appended to the line that they continue.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Its key.
    pub key: String,
    /// Words without a value, in order.
    pub words: Vec<String>,
    /// Words with a value.
    pub fields: BTreeMap<String, String>,
    /// The bytes of `in`, `out` and `report`.
    pub bytes: Vec<u8>,
}

impl Line {
    /// The value of a word; `None` if it is absent.
    pub fn get<T: FromStr>(&self, name: &str) -> Option<T> {
        let text = self.fields.get(name)?;
        Some(
            text.parse()
                .unwrap_or_else(|_| panic!("{}: {name}={text} cannot be read", self.key)),
        )
    }

    /// The value of a required word.
    pub fn need<T: FromStr>(&self, name: &str) -> T {
        self.get(name)
            .unwrap_or_else(|| panic!("{}: no {name}", self.key))
    }

    /// A hexadecimal number of 16 bits.
    pub fn hex16(&self, name: &str) -> Option<u16> {
        let text = self.fields.get(name)?;
        Some(
            u16::from_str_radix(text, 16)
                .unwrap_or_else(|_| panic!("{}: {name}={text} is not hexadecimal", self.key)),
        )
    }

    /// Bytes in hexadecimal.
    pub fn octets(&self, name: &str) -> Option<Vec<u8>> {
        self.fields.get(name).map(|text| hex(text))
    }

    /// Returns whether the line has this word (one without `=`).
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|have| have == word)
    }

    /// What a filter looks for.
    pub fn detector(&self) -> Detector {
        let algorithm = match self.need::<String>("algorithm").as_str() {
            "noop" => Algorithm::Noop,
            "per_hop" => Algorithm::PerHop,
            "per_hop_of_flow" => Algorithm::PerHopOfFlow,
            "per_flow" => Algorithm::PerFlow,
            "moving_average" => Algorithm::MovingAverage {
                alpha: self.need("alpha"),
            },
            "change" => Algorithm::Change(Change {
                latency_bits: self.need("latency_bits"),
                queue_bits: self.need("queue_bits"),
                keep_alive: self.need("keep_alive"),
            }),
            "rule" => {
                let rules =
                    RuleSet::compile(&[("rule".into(), self.need::<String>("rule").replace('+', " "))])
                        .expect("a rule that compiles");
                Algorithm::Rule(
                    Program::new(&rules)
                        .expect("a rule that a sink can evaluate")
                        .into(),
                )
            }
            other => panic!("unknown algorithm {other}"),
        };
        let metric = self.get::<String>("metric").map_or(Metric::FlowPath, |name| {
            Metric::from_name(&name).expect("a metric")
        });
        Detector {
            algorithm,
            metric,
            threshold: self.get("threshold").unwrap_or(0),
        }
    }

    /// Fails if there is an unknown word.
    pub fn only(&self, known: &[&str]) {
        for name in self.fields.keys().chain(&self.words) {
            assert!(
                known.contains(&name.as_str()),
                "{}: unknown word {name}",
                self.key
            );
        }
    }
}

/// All vectors of the folder that are of `kind`.
pub fn of_kind(kind: &str) -> Vec<Vector> {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join("vectors/switch"));
    let folder = folders
        .into_iter()
        .find(|folder| folder.is_dir())
        .expect("vectors/switch is there");
    let entries = std::fs::read_dir(&folder).expect("readable");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let all = files
        .iter()
        .flat_map(|path| parse(&std::fs::read_to_string(path).expect("text")));
    all.filter(|vector| vector.kind == kind).collect()
}

fn parse(text: &str) -> Vec<Vector> {
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    text.split(|line| line.is_empty())
        .filter(|block| !block.is_empty())
        .map(vector)
        .collect()
}

fn vector(block: &[&str]) -> Vector {
    let mut vector = Vector {
        name: String::new(),
        kind: String::new(),
        lines: Vec::new(),
    };
    for line in block {
        let (key, value) = line.split_once(':').unwrap_or_else(|| panic!("no key: {line}"));
        match key {
            "name" => vector.name = value.trim().to_owned(),
            "about" => {}
            "kind" => vector.kind = value.trim().to_owned(),
            "more" => {
                let last = vector.lines.last_mut().expect("`more` goes on something");
                last.bytes.extend(hex(value));
            }
            "in" | "out" | "report" => {
                vector.lines.push(Line {
                    key: key.to_owned(),
                    bytes: hex(value),
                    ..Line::default()
                });
            }
            _ => vector.lines.push(words(key, value)),
        }
    }
    assert!(
        !vector.name.is_empty() && !vector.kind.is_empty(),
        "a vector has a name and a kind: {block:?}"
    );
    vector
}

fn words(key: &str, value: &str) -> Line {
    let mut line = Line {
        key: key.to_owned(),
        ..Line::default()
    };
    for word in value.split_whitespace() {
        match word.split_once('=') {
            Some((name, value)) => {
                let twice = line.fields.insert(name.to_owned(), value.to_owned());
                assert!(twice.is_none(), "{key}: {name} twice");
            }
            None => line.words.push(word.to_owned()),
        }
    }
    line
}

/// Bytes of hexadecimal digits and blanks.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| *c != ' ')
        .map(|c| c.to_digit(16).expect("hexadecimal") as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte: {text}");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
