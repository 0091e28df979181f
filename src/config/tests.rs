//! Bad configurations with the whole message that each gives, reload, dump, and the reference page.

use std::path::Path;

use super::*;

/// Files that are refused, and the whole message about each.
const BAD: &str = include_str!("bad_files.txt");

#[test]
fn a_bad_file_gets_the_line_a_caret_and_what_to_do() {
    let mut made = String::new();
    for case in BAD.split("=== file\n").skip(1) {
        let (file, _) = case.split_once("=== message\n").unwrap();
        let message =
            Settings::parse(file, "h.toml").map_or_else(|error| error.to_string(), |_| "accepted".to_owned());
        made.push_str(&format!("=== file\n{file}=== message\n{message}\n"));
    }
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/bad_files.txt"), &made)
            .unwrap();
    }
    assert_eq!(made, BAD, "read the difference; to accept it: UPDATE_REFERENCE=1 cargo test -p hopwise");
}

#[test]
fn a_drop_reason_has_a_name_where_the_profiles_agree() {
    let file = "[profiles.a.drop_reasons]\n1 = \"acl\"\n2 = \"tail\"\n[profiles.b.drop_reasons]\n2 = \"parity\"\n3 = \"ttl\"\n\
                [[sources]]\nprefix = \"10.0.0.1\"\nprofile = \"a\"\n[[sources]]\nprefix = \"10.0.0.2\"\nprofile = \"b\"\n";
    let settings = Settings::parse(file, "h.toml").unwrap();
    assert_eq!(build::drop_reasons(&settings), [(1, "acl".to_owned()), (3, "ttl".to_owned())].into());
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
    testkit::compare_page("docs/reference/config.md", &reference());
}

#[test]
fn the_examples_are_good_files_and_name_only_what_exists() {
    for name in ["hopwise.toml", "dta-secret.toml"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
        Settings::load(Some(&file)).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_collector_without_a_secret_of_its_own_has_the_translators() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/dta-secret.toml");
    let settings = Settings::load(Some(&file)).unwrap();
    let dta = settings.translator.unwrap();
    let files: Vec<_> =
        dta.collectors.iter().map(|one| dta.secret_file(one).unwrap().display().to_string()).collect();
    assert_eq!(files, ["/etc/hopwise/dta-secret", "/etc/hopwise/dta-secret-b"]);
    let mut memory = settings.collector.memory.unwrap();
    assert_eq!(memory.missing_secret_warning(), None, "it has a secret");
    memory.secret_file = None;
    assert!(memory.missing_secret_warning().unwrap().contains("10.0.0.9:18515"));
    memory.exchange = "[::ffff:127.0.0.1]:18515".parse().unwrap();
    assert_eq!(memory.missing_secret_warning(), None, "only this machine reaches it");
}

#[test]
fn every_listening_port_is_a_report_port() {
    let text = "[collector]\nlisten = [\"udp://*:5000\", \"udp://127.0.0.1:5001\"]\n[profiles.x]\ntelemetry_ports = [5001, 7]\n\
                [[sources]]\nprefix = \"10.0.0.0/8\"\nprofile = \"x\"\n";
    let settings = Settings::parse(text, "h.toml").unwrap();
    let (default, by_source) = build::profiles(&settings);
    let ports = |profile: &collector::Profile| profile.wire.telemetry_ports.as_slice().to_vec();
    assert_eq!(ports(&default), [32766, 5000, 5001]);
    assert_eq!(by_source.iter().map(|(_, profile)| ports(profile)).collect::<Vec<_>>(), [[5001, 7, 5000]]);
}
