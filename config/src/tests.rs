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
        std::fs::write(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bad_files.txt"),
            &made,
        )
        .unwrap();
    }
    assert_eq!(
        made, BAD,
        "read the difference; to accept it: UPDATE_REFERENCE=1 cargo test -p hopwise-config"
    );
}

#[test]
fn a_drop_reason_has_a_name_where_the_profiles_agree() {
    let file = "[profiles.a.drop_reasons]\n1 = \"acl\"\n2 = \"tail\"\n[profiles.b.drop_reasons]\n2 = \"parity\"\n3 = \"ttl\"\n\
                [[sources]]\nprefix = \"10.0.0.1\"\nprofile = \"a\"\n[[sources]]\nprefix = \"10.0.0.2\"\nprofile = \"b\"\n";
    let settings = Settings::parse(file, "h.toml").unwrap();
    assert_eq!(
        settings.collect().drop_reasons(),
        [(1, "acl".to_owned()), (3, "ttl".to_owned())].into()
    );
}

#[test]
fn an_empty_file_gives_the_defaults() {
    assert_eq!(Settings::parse("", "h.toml"), Ok(Settings::default()));
}

#[test]
fn a_missing_file_is_one_sentence_with_a_remedy() {
    let error = Settings::load(Some(Path::new("/nonexistent/h.toml")))
        .map(|_| ())
        .unwrap_err();
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
    assert_eq!(
        Settings::parse(&Settings::default().to_toml(), "dump"),
        Ok(Settings::default())
    );
}

#[test]
fn a_token_is_never_shown() {
    let settings = Settings::parse("[api]\ntoken = \"0123456789abcdef\"\n", "h.toml").unwrap();
    let shown = format!("{} {} {settings:?}", settings.to_toml(), settings.to_json());
    assert!(
        !shown.contains("0123456789abcdef") && shown.contains("(hidden)"),
        "{shown}"
    );
}

/// A secret: as a number, a word, or a text, it is the same digits.
const MARKER: &str = "7331733173317331";

/// The tables and keys of all secrets, as `[api]` and `token`.
fn secrets() -> Vec<(String, &'static str)> {
    let mut chapters = Vec::new();
    Settings::explain("", &mut chapters);
    let tables: Vec<String> = chapters.iter().map(|chapter| chapter.heading.clone()).collect();
    let mut secrets = Vec::new();
    for chapter in &chapters {
        for key in chapter.keys.iter().filter(|key| key.is_secret) {
            let path = chapter.heading.trim_matches(['[', ']']);
            let below = if path.is_empty() {
                key.name.to_owned()
            } else {
                format!("{path}.{}", key.name)
            };
            // A table that holds a secret has a chapter of its own.
            let is_table = tables.iter().any(|table| table.trim_matches(['[', ']']) == below);
            secrets.extend((!is_table).then(|| (chapter.heading.clone(), key.name)));
        }
    }
    secrets
}

/// Every kind of mistake in the line of a secret.
fn mistakes(table: &str, key: &str) -> Vec<String> {
    let m = MARKER;
    let path = table.trim_matches(['[', ']']);
    let is_list = table.starts_with("[[");
    let other = if is_list {
        format!("[{path}]")
    } else {
        format!("[[{path}]]")
    };
    let mut values = vec![
        format!("\"{m} {m}\""),
        format!("\"{}\"", &m[..14]),
        m.to_owned(),
        format!("{m}.5"),
        format!("0x{m}"),
        format!("[\"{m}\"]"),
        format!("[[{m}], {{ a = \"{m}\" }}]"),
        format!("{{ a = \"{m}\" }}"),
        format!("{{ {m} = 1 }}"),
        // Not TOML.
        format!("{m}x"),
        format!("x{m}"),
        format!("\"{m}"),
        format!("'{m}"),
        format!("\"\"\"{m}"),
        format!("\"\"\"\n{m}"),
        format!("\"{m}\" {m}"),
        format!("\"{m}\\q\""),
        format!("\"{m}\u{7}\""),
        format!("= \"{m}\""),
        format!("[\"{m}\", {m}x]"),
        format!("[\n  \"{m}\",\n  {m}x,\n]"),
        format!("{{ a = \"{m}\""),
        format!("2026-{m}"),
    ];
    values.push(format!("\"{m}\"\nlisten = {m}x"));
    let mut files: Vec<String> = values
        .iter()
        .map(|value| format!("{table}\n{key} = {value}\n"))
        .collect();
    files.extend([
        format!("{table}\n{key} \"{m}\"\n"),
        format!("{table}\n{key}: \"{m}\"\n"),
        format!("{table}\n{key}.{m} = \"{m}\"\n"),
        format!("{table}\n{key} = \"{m}\"\n{key} = \"{m}\"\n"),
        format!("{table}\n{key}x = \"{m}\"\n"),
        format!("{table}\n\"{key} \" = \"{m}\"\n"),
        format!("{table}\n{key} = \"{m}\", {key}x = \"{m}\"\n"),
        format!("{other}\n{key} = \"{m}\"\n"),
        format!("[{path}x]\n{key} = \"{m}\"\n"),
        format!("{path}x = {{ {key} = \"{m}\", a = 1 }}\n"),
        format!("{path} = [[{{ {key} = \"{m}\" }}]]\n"),
        format!("{path} = \"{m}\"\n"),
        format!("{path} = [\"{m}\"]\n"),
        format!("{path} = {m}\n"),
        format!("[{path}.{key}.{m}]\n"),
        format!("[{path}.{key}]\nx = \"{m}\"\n"),
        format!("[collector]\n{key} = \"{m}\"\n"),
        format!("[collector]\nlisten = {{ {key} = \"{m}\" }}\n"),
    ]);
    if is_list {
        files.push(format!("{path} = [{{ {key} = \"{m}\", role = \"reed\" }}]\n"));
        files.push(format!("{path} = [{{ {key} = \"{m}\", role = reed }}]\n"));
        files.push(format!("{path} = [\n  {{ {key} = \"{m}\",\n  \"{m}\",\n"));
    }
    files
}

#[test]
fn no_message_quotes_a_secret_whatever_is_wrong_with_its_line() {
    let secrets = secrets();
    let expected = [
        ("[manager]", "peer_token"),
        ("[manager]", "token"),
        ("[api]", "token"),
        ("[[api.tokens]]", "token"),
    ];
    assert!(
        expected
            .iter()
            .all(|(table, key)| secrets.contains(&((*table).to_owned(), key))),
        "{secrets:?}"
    );
    for (table, key) in secrets {
        for file in mistakes(&table, key) {
            let error = Settings::parse(&file, "h.toml").err();
            let error = error.unwrap_or_else(|| panic!("accepted:\n{file}"));
            let shown = format!("{error} {error:?}");
            // A part of it is too much, too.
            assert!(!shown.contains(&MARKER[..8]), "of the file\n{file}\n{error}");
        }
    }
}

#[test]
fn no_message_quotes_a_user_or_a_path_of_a_url() {
    let m = MARKER;
    let mut accepted = 0;
    for url in [
        format!("https://user:{m}@h:1/"),
        format!("https://{m}@h"),
        format!("https://h:1/services/{m}"),
        format!("https://h:1/?key={m}"),
        format!("https:/user:{m}@h"),
        format!("user:{m}@h"),
        format!("redis://:{m}@h/0"),
    ] {
        for rest in ["", "\nkindd = 1", "\nx = ", " x", "\nbatch = 0"] {
            for table in [
                format!("[exports.x]\nkind = \"redis\"\nurl = \"{url}\"{rest}\n"),
                format!("[exports.x]\nkind = \"webhook\"\nurl = \"{url}\"{rest}\n"),
                format!("exports.x = {{ kind = \"webhok\", url = \"{url}\" }}{rest}\n"),
                format!("[console]\nurl = \"{url}\"{rest}\n"),
                format!("[console]\nurl = \"http://h\"\ncollectors = {{ c1 = \"{url}\" }}{rest}\n"),
                format!("[manager]\nstandby = true\npeer = \"{url}\"{rest}\n"),
                format!(
                    "[manager]\n[[inventory.devices]]\nname = \"a\"\nnode = 1\naddress = \"{url}\"{rest}\n"
                ),
            ] {
                match Settings::parse(&table, "h.toml") {
                    Ok(_) => accepted += 1,
                    Err(error) => assert!(!format!("{error} {error:?}").contains(m), "{table}\n{error}"),
                }
            }
        }
    }
    assert!(accepted < 40, "{accepted}");
}

#[test]
fn a_key_that_was_refused_is_not_missing() {
    for (file, expected) in [
        ("[[collector.allow]]\nfrom = [\"127.0.0.1/8\"]\n", 1),
        ("[exports.x]\nkind = \"slack\"\nurl = \"http://127.0.0.1:1\"\n", 1),
        (
            "[exports.x]\nknd = \"webhook\"\nurl = \"http://127.0.0.1:1\"\n",
            1,
        ),
        ("[[rules]]\nname = \"\"\nwhen = \"hops > 1\"\n", 1),
        ("[[rules]]\nnme = \"a\"\nwhen = \"hops > 1\"\n", 1),
        ("[[rules]]\nname = \"a\"\nwhen = 5\n", 1),
        ("[[sources]]\nprefix = \"10.0.0.1/33\"\n", 1),
        ("[api]\nlisten = \"0.0.0.0:1\"\ntoken = \"short\"\n", 1),
        // Other tables are still checked.
        (
            "[api]\nlisten = \"0.0.0.0:1\"\ntokn = 1\n[store]\nmax_age = \"1s\"\n",
            2,
        ),
        (
            "[[rules]]\nname = \"a\"\nwhen = 5\n[[rules]]\nname = \"b\"\nwhen = \"hops >\"\n",
            2,
        ),
    ] {
        let error = Settings::parse(file, "h.toml").unwrap_err().to_string();
        assert_eq!(error.matches("h.toml:").count(), expected, "{error}");
    }
}

#[test]
fn a_reload_takes_what_is_live_and_names_the_rest() {
    let old = Settings::default();
    let new = "[collector]\nworkers = 3\nburst = 32\n[profiles.x]\n[nodes]\n1 = \"a\"\n[store]\nmax_age = \"2d\"\nperiod = \"hour\"\n\
               [thresholds]\nhop_latency = 5\n[api]\nlisten = \"127.0.0.1:1\"\n[log]\nlevel = \"debug\"\n";
    let (merged, kept) = old.reload(Settings::parse(new, "h.toml").unwrap());
    let live = "[nodes]\n1 = \"a\"\n[store]\nmax_age = \"2d\"\n[thresholds]\nhop_latency = 5\n[log]\nlevel = \"debug\"\n";
    assert_eq!(merged, Settings::parse(live, "h.toml").unwrap());
    assert_eq!(
        kept,
        [
            "collector.workers",
            "collector.burst",
            "profiles",
            "store.period",
            "api.listen"
        ]
    );
}

#[test]
fn the_reference_page_is_what_the_source_says() {
    testkit::compare_page("docs/reference/config.md", &reference());
}

#[test]
fn the_examples_are_good_files_and_name_only_what_exists() {
    for name in ["hopwise.toml", "dta-secret.toml"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../examples")
            .join(name);
        Settings::load(Some(&file)).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_collector_without_a_secret_of_its_own_has_the_translators() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/dta-secret.toml");
    let settings = Settings::load(Some(&file)).unwrap();
    let dta = settings.translator.unwrap();
    let files: Vec<_> = dta
        .collectors
        .iter()
        .map(|one| dta.secret_file(one).unwrap().display().to_string())
        .collect();
    assert_eq!(files, ["/etc/hopwise/dta-secret", "/etc/hopwise/dta-secret-b"]);
    let mut memory = settings.collector.memory.unwrap();
    assert_eq!(memory.missing_secret_warning(), None, "it has a secret");
    memory.secret_file = None;
    assert!(
        memory
            .missing_secret_warning()
            .unwrap()
            .contains("10.0.0.9:18515")
    );
    memory.exchange = "[::ffff:127.0.0.1]:18515".parse().unwrap();
    assert_eq!(
        memory.missing_secret_warning(),
        None,
        "only this machine reaches it"
    );
}

#[test]
fn listening_ports_that_are_not_all_report_ports_are_refused() {
    let listening = |last: u16, more: &str| {
        let listen: Vec<String> = (5000..=last).map(|port| format!("\"udp://*:{port}\"")).collect();
        let text = format!("[collector]\nlisten = [{}]\n{more}", listen.join(", "));
        Settings::parse(&text, "h.toml")
            .err()
            .map(|error| error.to_string())
    };
    // With port 32766 of the default profile.
    assert_eq!(listening(5006, ""), None);
    assert!(listening(5007, "").is_some_and(|error| error.contains("at most 8 UDP ports of reports")));
    let profile = |ports| {
        format!(
            "[profiles.x]\ntelemetry_ports = {ports}\n[[sources]]\nprefix = \"10.0.0.0/8\"\nprofile = \"x\"\n"
        )
    };
    assert_eq!(listening(5005, &profile("[1, 5000, 2]")), None);
    assert!(listening(5006, &profile("[1, 5000, 2]")).is_some());
    let defined = "[profiles.default]\ntelemetry_ports = [5000]\n";
    assert_eq!(listening(5007, defined), None);
}

#[test]
fn every_listening_port_is_a_report_port() {
    let text = "[collector]\nlisten = [\"udp://*:5000\", \"udp://127.0.0.1:5001\"]\n[profiles.x]\ntelemetry_ports = [5001, 7]\n\
                [[sources]]\nprefix = \"10.0.0.0/8\"\nprofile = \"x\"\n";
    let settings = Settings::parse(text, "h.toml").unwrap();
    let (default, by_source) = settings.collect().resolve_profiles();
    let ports = |profile: &collector::Profile| profile.wire.telemetry_ports.as_slice().to_vec();
    assert_eq!(ports(&default), [32766, 5000, 5001]);
    assert_eq!(
        by_source
            .iter()
            .map(|(_, profile)| ports(profile))
            .collect::<Vec<_>>(),
        [[5001, 7, 5000]]
    );
}

#[test]
fn further_ports_of_vxlan_are_bounded_and_not_those_of_other_tunnels() {
    let profile = |ports| {
        let source = "[[sources]]\nprefix = \"10.0.0.0/8\"\nprofile = \"x\"\n";
        Settings::parse(
            &format!("[profiles.x]\nvxlan_ports = {ports}\n{source}"),
            "h.toml",
        )
    };
    let settings = profile("[12345, 8472]").unwrap();
    let (_, by_source) = settings.collect().resolve_profiles();
    assert_eq!(by_source[0].1.wire.vxlan_ports, [12345, 8472, 0, 0]);
    for (ports, expected) in [
        ("[1, 2, 3, 4, 5]", "at most 4 ports"),
        ("[2152]", "2152 is not a port of VXLAN"),
        ("[0]", "0 is not a port of VXLAN"),
    ] {
        let error = profile(ports).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
