//! Bad configurations with the whole message that each gives, reload, dump, and the reference page.

use std::path::Path;

use super::*;

/// Each file and everything that the user is told about it.
const BAD: [(&str, &str); 22] = [
    (
        "[collector]\nlistne = []\n",
        "h.toml:2:1: there is no key `listne` in [collector]; did you mean `listen`?\n  |\n2 | listne = []\n  | ^^^^^^",
    ),
    (
        "colour = 1\n",
        "h.toml:1:1: there is no key `colour` in the file; remove it, or use one of: collector, profiles, sources, nodes, \
         thresholds, rules, store, api, ui, log\n  |\n1 | colour = 1\n  | ^^^^^^",
    ),
    (
        "[collector]\nlisten = [\"tcp://*:1\"]\n",
        "h.toml:2:11: found the text \"tcp://*:1\"; write an address such as \"udp://*:32766\", \"udp://10.0.0.1:32766\" or \
         \"udp://[::1]:32766\"\n  |\n2 | listen = [\"tcp://*:1\"]\n  |           ^^^^^^^^^^^",
    ),
    (
        "[collector]\nlisten = []\n",
        "h.toml:2:10: nowhere to listen; write at least one address, such as \"udp://*:32766\"\n  |\n2 | listen = []\n  |          ^^",
    ),
    (
        "[collector]\nlisten = [\"udp://*:1\", \"udp://*:1\"]\n",
        "h.toml:2:24: udp://*:1 is listed twice; remove one\n  |\n2 | listen = [\"udp://*:1\", \"udp://*:1\"]\n  |                        ^^^^^^^^^^^",
    ),
    (
        "[collector]\nworkers = -1\nburst = 0\n",
        "h.toml:2:11: found the number -1; write a whole number\n  |\n2 | workers = -1\n  |           ^^\n\
         h.toml:3:9: 0 is out of range; write a number from 1 to 1024\n  |\n3 | burst = 0\n  |         ^",
    ),
    (
        "[collector]\nflow_timeout = \"10\"\n",
        "h.toml:2:16: found the text \"10\"; write a duration, such as \"10s\"\n  |\n2 | flow_timeout = \"10\"\n  |                ^^^^",
    ),
    (
        "collector = 3\n",
        "h.toml:1:13: found the number 3; write the table [collector]\n  |\n1 | collector = 3\n  |             ^",
    ),
    (
        "[profiles.mine]\ndialect = \"stirct\"\n",
        "h.toml:2:11: found the text \"stirct\"; write \"strict\", \"geant\", \"hostint\", \"intcollector-gen\" or \"onos\"\n  |\n\
         2 | dialect = \"stirct\"\n  |           ^^^^^^^^",
    ),
    (
        "[profiles.mine]\ntimestamp_unit = \"0s\"\n",
        "h.toml:2:18: a tick lasts from \"1ns\" to \"1s\"; write what the device documents\n  |\n2 | timestamp_unit = \"0s\"\n  |                  ^^^^",
    ),
    (
        "[[sources]]\nprefix = \"10.0.0.0/33\"\n",
        "h.toml:2:10: found the text \"10.0.0.0/33\"; write a network such as \"10.0.0.0/8\", or one address\n  |\n\
         2 | prefix = \"10.0.0.0/33\"\n  |          ^^^^^^^^^^^^^",
    ),
    (
        "[[sources]]\nname = \"leaf\"\n",
        "h.toml:1:1: a source needs an address; add prefix = \"10.0.0.0/8\" or the like\n  |\n1 | [[sources]]\n  | ^^^^^^^^^^^",
    ),
    (
        "[profiles.tofino]\n[[sources]]\nprefix = \"10.0.0.1\"\nprofile = \"tofnio\"\n",
        "h.toml:4:11: there is no profile `tofnio`; did you mean `tofino`?\n  |\n4 | profile = \"tofnio\"\n  |           ^^^^^^^^",
    ),
    (
        "[nodes]\nleaf1 = \"a\"\n",
        "h.toml:2:1: `leaf1` cannot be a key here; write a node id, a whole number such as 101\n  |\n2 | leaf1 = \"a\"\n  | ^^^^^",
    ),
    (
        "[thresholds]\nhop_latency = \"fast\"\n",
        "h.toml:2:15: found the text \"fast\"; write a whole number, a duration such as \"500us\", or a percentage such as \
         \"5%\"\n  |\n2 | hop_latency = \"fast\"\n  |               ^^^^^^",
    ),
    (
        "[[rules]]\nname = \"slow\"\nwhen = \"hops > 1\"\n[[rules]]\nname = \"slow\"\nwhen = \"hops > 2\"\n",
        "h.toml:5:8: there are two rules `slow`; rename one\n  |\n5 | name = \"slow\"\n  |        ^^^^^^",
    ),
    (
        "[[rules]]\nname = \"slow\"\n",
        "h.toml:1:1: a rule needs a condition; add when = \"flow_latency > 5ms\" or the like\n  |\n1 | [[rules]]\n  | ^^^^^^^^^",
    ),
    (
        "[store]\nmax_bytes = \"1 MiB\"\n",
        "h.toml:2:13: too small for one file; write \"16 MiB\" or more, or remove the line\n  |\n2 | max_bytes = \"1 MiB\"\n  |             ^^^^^^^",
    ),
    (
        "[api]\nlisten = \"0.0.0.0:8080\"\n",
        "h.toml:2:10: 0.0.0.0:8080 can be reached from other machines; add token = \"...\" (openssl rand -hex 24), or listen \
         on 127.0.0.1\n  |\n2 | listen = \"0.0.0.0:8080\"\n  |          ^^^^^^^^^^^^^^",
    ),
    (
        "[api]\ntoken = \"short\"\n",
        "h.toml:2:9: write a text of at least 16 characters, without spaces\n  |\n2 | token = \"short\"\n  |         ^^^^^^^",
    ),
    (
        "[log]\nlevel = true\n",
        "h.toml:2:9: found true; write \"error\", \"warn\", \"info\", \"debug\" or \"trace\"\n  |\n2 | level = true\n  |         ^^^^",
    ),
    (
        "[log\nlevel = 1\n",
        "h.toml:1:5: this is not TOML: unclosed table, expected `]`; see https://toml.io\n  |\n1 | [log\n  |     ^",
    ),
];

#[test]
fn a_bad_file_gets_the_line_a_caret_and_what_to_do() {
    for (file, expected) in BAD {
        let told =
            Settings::parse(file, "h.toml").map_or_else(|error| error.to_string(), |_| "accepted".to_owned());
        assert_eq!(told, expected, "\n--- file ---\n{file}\n--- told ---\n{told}\n");
    }
}

#[test]
fn an_empty_file_gives_the_defaults() {
    assert_eq!(Settings::parse("", "h.toml"), Ok(Settings::default()));
}

#[test]
fn a_missing_file_is_one_sentence_with_a_remedy() {
    let error = Settings::load(Some(Path::new("/nonexistent/h.toml"))).map(|_| ()).unwrap_err();
    let expected = "cannot read /nonexistent/h.toml: no such file or directory; name a readable TOML file with -c, or leave \
                    -c out to use the defaults";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn the_dump_read_again_gives_the_same_settings() {
    let text = "[profiles.x.drop_reasons]\n7 = \"acl deny\"\n[[sources]]\nprefix = \"10.0.0.0/8\"\nprofile = \"x\"\n\
                [nodes]\n101 = \"leaf 1\"\n[[thresholds.override]]\ndport = \"80-81\"\nproto = \"tcp\"\nflow_latency = \"1ms\"\n\
                [[rules]]\nname = \"r\"\nwhen = \"hops > 1\"\n[api]\nhosts = [\"a\"]\n";
    let settings = Settings::parse(text, "h.toml").unwrap();
    assert_eq!(Settings::parse(&settings.to_toml(), "dump"), Ok(settings));
    assert_eq!(Settings::parse(&Settings::default().to_toml(), "dump"), Ok(Settings::default()));
}

#[test]
fn a_token_is_never_shown() {
    let settings = Settings::parse("[api]\ntoken = \"0123456789abcdef\"\n", "h.toml").unwrap();
    let shown = format!("{} {} {settings:?}", settings.to_toml(), settings.to_json());
    assert!(!shown.contains("0123456789abcdef") && shown.contains("(hidden)"), "{shown}");
}

#[test]
fn a_reload_takes_what_is_live_and_names_the_rest() {
    let old = Settings::default();
    let new = "[collector]\nworkers = 3\nburst = 32\n[profiles.x]\n[nodes]\n1 = \"a\"\n[store]\nmax_age = \"2d\"\nperiod = \"hour\"\n\
               [thresholds]\nhop_latency = 5\n[api]\nlisten = \"127.0.0.1:1\"\n[log]\nlevel = \"debug\"\n";
    let (merged, kept) = old.reload(Settings::parse(new, "h.toml").unwrap());
    let live = "[nodes]\n1 = \"a\"\n[store]\nmax_age = \"2d\"\n[thresholds]\nhop_latency = 5\n[log]\nlevel = \"debug\"\n";
    assert_eq!(merged, Settings::parse(live, "h.toml").unwrap());
    assert_eq!(kept, ["collector.workers", "collector.burst", "profiles", "store.period", "api.listen"]);
}

#[test]
fn the_reference_page_is_what_the_source_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/config.md");
    let made = reference();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &made).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == made, "docs/reference/config.md is stale: UPDATE_REFERENCE=1 cargo test -p hopwise");
}

#[test]
fn the_example_is_a_good_file_and_names_only_what_exists() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/hopwise.toml");
    Settings::load(Some(&file)).unwrap_or_else(|error| panic!("{error}"));
}
