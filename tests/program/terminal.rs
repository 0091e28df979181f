//! What commands, the log and the API print: nothing that a name or a secret could put there.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::channel,
    thread,
};

use serde_json::json;

use crate::support::{
    TempDir, command, hopwise, pcap, report_frame,
    server::{Server, TIMEOUT, report},
    skipped, text,
};

/// A name that sets the title of a terminal, clears it, and turns the direction of writing: as in TOML and JSON.
const HOSTILE: &str = "\\u001b]0;x\\u0007\\u009b2J\\u202e\\u007f";
/// The name in a text for people.
const CLEANED: &str = "·]0;x··2J··";
/// A query whose answer is a part of the name.
const QUERY: &str = "SELECT char(27) || ']0;x' || char(7) AS a, char(155) AS b";

fn hostile_names() -> String {
    format!(
        "[nodes]\n101 = \"a{HOSTILE}\"\n102 = \"b{HOSTILE}\"\n103 = \"c{HOSTILE}\"\n[[rules]]\nname = \"slow\"\nwhen = \"flow_latency > 500us\"\n\
         [[sources]]\nprefix = \"127.0.0.1\"\nname = \"s{HOSTILE}\"\n"
    )
}

fn is_hostile(char: char) -> bool {
    (char.is_control() && char != '\n' && char != '\t') || char == '\u{202e}'
}

#[test]
fn no_control_character_of_a_name_reaches_the_terminal() {
    let server = Server::start(&hostile_names());
    server.send((0..10).map(|seq| report(seq, 5000, [1_000, if seq == 5 { 900_000 } else { 2_000 }, 3_000])));
    server.settled(10);
    let silence = format!("{{\"filter\": \"node == 7\", \"seconds\": 3600, \"comment\": \"{HOSTILE}\"}}");
    let answer = server.ask(
        "POST",
        "/api/v1/alerts/silences",
        "Content-Type: application/json\r\n",
        &silence,
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    let api = format!("http://{}", server.api);
    let store = server.path("store");
    let capture = server.path("\u{1b}]0;x\u{9b}.pcap");
    fs::write(&capture, pcap(&[report_frame(&report(0, 5000, [1, 2, 3]))])).unwrap();
    let config = server.path("hopwise.toml");
    // What others say in a comment has no control characters from the start.
    let at_api: [(&[&str], &str); 7] = [
        (&["path", "10.0.0.1"], CLEANED),
        (&["path", "10.0.0.1:5000>10.0.0.2:80/17"], CLEANED),
        (&["events"], CLEANED),
        (&["top", "--once"], CLEANED),
        (&["top", "--json"], HOSTILE),
        (&["alerts", "silences"], "]0;x  2J·"),
        (&["alerts", "silences", "--json"], r"]0;x  2J\u202e "),
    ];
    let with_api = |(args, expected): &(&[&'static str], &'static str)| {
        (
            args.iter().copied().chain(["--api", api.as_str()]).collect(),
            *expected,
        )
    };
    let mut runs: Vec<(Vec<&str>, &str)> = at_api.iter().map(with_api).collect();
    let (store, capture, config) = (text(&store), text(&capture), text(&config));
    runs.extend([
        (vec!["query", "--dir", store, QUERY], "·]0;x·  ·"),
        (
            vec!["query", "--dir", store, "--format", "json", QUERY],
            r#"{"a":"\u001b]0;x\u0007","b":"\u009b"}"#,
        ),
        (vec!["check", "-c", config, "--dump"], HOSTILE),
        (vec!["replay", "-c", config, capture], CLEANED),
        (vec!["replay", "--json", capture], r"\u001b]0;x\u009b.pcap"),
        (vec!["decode", "\u{1b}]0;x\u{7}.pcap"], "·]0;x·"),
        (vec!["check", "-c", "\u{1b}]0;x\u{7}.toml"], "·]0;x·"),
    ]);
    let mut missing = Vec::new();
    for (args, expected) in runs {
        let run = hopwise(&args);
        let shown = format!("{}{}", run.stdout, run.stderr);
        assert!(!shown.contains(is_hostile), "{args:?}: {shown:?}");
        if !shown.contains(expected) {
            missing.push(format!("{args:?}: {shown}"));
        }
    }
    assert_eq!(
        missing,
        Vec::<String>::new(),
        "the name is not in it, so that this shows nothing"
    );
    // A key of the file, in the message about it and in the log of a reload.
    server.reconfigure("\"\\u007fa\\u001b]0;x\" = 1\n");
    let answer = server.ask("POST", "/api/v1/config/reload", "", "");
    assert_eq!(answer.status, 400, "{answer:?}");
    let line = server.log_line("reload");
    assert!(!line.contains(is_hostile) && line.contains("]0;x"), "{line:?}");
}

#[test]
fn csv_is_exact_in_a_file_and_harmless_on_a_terminal() {
    let server = Server::start("");
    server.send([report(0, 5000, [1_000, 2_000, 3_000])]);
    server.settled(1);
    let store = server.path("store");
    let run = hopwise(["query", "--dir", text(&store), "--format", "csv", QUERY]);
    assert_eq!(run.stdout, "a,b\r\n\u{1b}]0;x\u{7},\u{9b}\r\n");
    let program = env!("CARGO_BIN_EXE_hopwise");
    let query = format!("{program} query --dir {} --format csv \"{QUERY}\"", text(&store));
    let Ok(shown) = Command::new("script")
        .args(["-qec", &query, "/dev/null"])
        .stdin(Stdio::null())
        .output()
    else {
        return skipped("CSV on a terminal: there is no `script`");
    };
    let shown = String::from_utf8_lossy(&shown.stdout).replace('\r', "");
    assert!(
        shown.contains("·]0;x·,·\n") && !shown.contains(is_hostile),
        "{shown:?}"
    );
}

#[test]
fn a_secret_is_in_no_output() {
    const SECRET: &str = "read-token-7331733173317331";
    let directory = TempDir::new();
    let server = Server::start("api.token = \"0123456789abcdef\"\n");
    let bearer = "Authorization: Bearer 0123456789abcdef\r\n";
    for lines in [
        format!("[api]\ntokens = [{{ name = \"v\", token = \"{SECRET}\", role = \"reed\" }}]\n"),
        format!("[api]\ntoken = \"{SECRET}\n"),
        format!("[api]\ntokn = \"{SECRET}\"\n"),
        format!("[exports.x]\nkind = \"webhook\"\nurl = \"http://user:{SECRET}@127.0.0.1:1\"\n"),
        format!("[api]\ntoken = \"{SECRET}\"\nlisten = 5\n"),
    ] {
        let file = directory.join("h.toml");
        fs::write(&file, &lines).unwrap();
        for command in ["check", "run"] {
            let run = hopwise([command, "-c", text(&file)]);
            let shown = format!("{}{}", run.stdout, run.stderr);
            assert!(run.code == Some(2) && !shown.contains(SECRET), "{shown}");
        }
        server.reconfigure_raw(&lines);
        let answer = server.ask("POST", "/api/v1/config/reload", bearer, "");
        assert!(
            answer.status == 400 && !answer.body.contains(SECRET),
            "{answer:?}"
        );
        let line = server.log_line("reload");
        assert!(!line.contains(SECRET), "{line}");
    }
    // And where it is valid.
    fs::write(directory.join("h.toml"), format!("[api]\ntoken = \"{SECRET}\"\n")).unwrap();
    for options in [&[][..], &["--dump"]] {
        let file = directory.join("h.toml");
        let run = hopwise(["check", "-c", text(&file)].iter().chain(options));
        let shown = format!("{}{}", run.stdout, run.stderr);
        assert!(run.code == Some(0) && !shown.contains(SECRET), "{shown}");
    }
}

/// All text of commands goes through one place, which cleans it.
#[test]
fn nothing_is_printed_around_the_crate_for_it() {
    let allowed = ["history/src/sql/helper.rs", "cli/src/top/screen.rs"];
    let mut found = Vec::new();
    let mut directories: Vec<_> = ["src", "api/src", "cli/src", "roles", "history/src", "lab/src"]
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
        .into();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let name = path
                .strip_prefix(env!("CARGO_MANIFEST_DIR"))
                .unwrap()
                .display()
                .to_string();
            if path.extension().is_none_or(|extension| extension != "rs") || allowed.contains(&name.as_str())
            {
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            let around = |line: &&str| {
                let bare = [
                    "println!(",
                    "print!(",
                    "eprintln!(",
                    "eprint!(",
                    "io::stdout()",
                    "io::stderr()",
                ];
                bare.iter().any(|what| line.contains(what)) && !line.contains("SKIPPED")
            };
            found.extend(
                source
                    .lines()
                    .filter(around)
                    .map(|line| format!("{name}: {}", line.trim())),
            );
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn frames_of_a_pipe_are_printed_as_they_arrive() {
    let frames: Vec<Vec<u8>> = (0..3)
        .map(|seq| report_frame(&report(seq, 5000, [1, 2, 3])))
        .collect();
    let file = pcap(&frames);
    let length = 16 + frames[0].len();
    for name in ["-", "/dev/stdin"] {
        let mut child = command(["decode", "--json", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .for_each(|line| drop(sender.send(line)))
        });
        let mut input = child.stdin.take().unwrap();
        let mut rest = file.as_slice();
        for (seq, bytes) in [24 + length, length, length].into_iter().enumerate() {
            let (part, after) = rest.split_at(bytes);
            input.write_all(part).unwrap();
            rest = after;
            // The pipe is open: what has arrived is all that there is.
            let line = lines
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|_| panic!("{name}: no report {seq}"));
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&line).unwrap()["seq"],
                json!(seq),
                "{name}"
            );
        }
        drop(input);
        assert!(child.wait().unwrap().success(), "{name}");
    }
    let directory = TempDir::new();
    let capture = directory.join("c.pcap");
    fs::write(&capture, file).unwrap();
    let named = hopwise(["replay", "--json", text(&capture)]);
    let piped = command(["replay", "--json", "-"])
        .stdin(fs::File::open(&capture).unwrap())
        .output()
        .unwrap();
    assert!(piped.status.success(), "{piped:?}");
    let reports = |out: &str| serde_json::from_str::<serde_json::Value>(out).unwrap()["flows"].clone();
    assert_eq!(
        reports(std::str::from_utf8(&piped.stdout).unwrap()),
        reports(&named.stdout)
    );
}

#[test]
fn a_printed_time_is_a_time_of_every_option() {
    let server = Server::start("");
    server.send([report(0, 5000, [1_000, 2_000, 3_000])]);
    server.settled(1);
    let api = format!("http://{}", server.api);
    let events = hopwise(["events", "--api", &api]);
    let printed = events
        .stdout
        .lines()
        .next()
        .unwrap()
        .get(..24)
        .unwrap()
        .to_owned();
    assert!(printed.ends_with('Z') && printed.contains(' '), "{printed}");
    let all = events.stdout.lines().count();
    let short = &printed[..16];
    for from in [
        printed.as_str(),
        &printed[..23],
        &printed[..19],
        short,
        &printed.replace(' ', "T"),
    ] {
        let run = hopwise(["events", "--api", &api, "--from", from]);
        assert_eq!(
            (run.code, run.stdout.lines().count()),
            (Some(0), all),
            "{from}: {}",
            run.stderr
        );
    }
    let query = format!("/api/v1/events?from={}", printed.replace(' ', "%20"));
    assert_eq!(server.json(&query)["events"].as_array().unwrap().len(), all);
    let later = hopwise(["events", "--api", &api, "--from", "2200-01-01T00:00+05:30"]);
    assert_eq!(
        (later.code, later.stdout.as_str()),
        (Some(1), ""),
        "{}",
        later.stderr
    );
}
