//! The shell of `hopwise query`: line editing with history, completion, dot commands, and a pager for long results.

use std::process::{Command, Stdio};
use std::{env, fs};
use std::{io::Write, path::PathBuf};

use rustyline::history::{DefaultHistory, History as _};
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use rustyline::{completion::Completer, error::ReadlineError, highlight::Highlighter, hint::Hinter};

use super::remote::path_variable;
use super::store_query::{Format, QueryOutput, StoreQuery, time};
use store::VIEWS;
use terminal::{CliError, Terminal};

const COMMANDS: [&str; 8] = [
    ".tables", ".schema", ".format", ".from", ".to", ".limit", ".help", ".quit",
];
const KEYWORDS: [&str; 34] = [
    "SELECT", "FROM", "WHERE", "GROUP", "BY", "ORDER", "LIMIT", "HAVING", "DISTINCT", "AND", "OR", "NOT",
    "IN", "LIKE", "BETWEEN", "IS", "NULL", "AS", "ASC", "DESC", "CASE", "WHEN", "THEN", "ELSE", "END",
    "JOIN", "LEFT", "USING", "UNION", "WITH", "COUNT", "DATETIME", "ROUND", "OFFSET",
];
const HELP: &str = "\
.tables                 the tables
.schema [TABLE]         their columns
.format table|json|csv  how results are printed
.from 2h, .to TIME      only this time: an age, or ns since 1970; without a value, all
.limit N                maximum number of rows
.quit                   ends (also Ctrl-D)
A statement ends with `;`. Tab completes, arrows and Ctrl-R search the history, Ctrl-C discards a statement.
";
/// Maximum number of lines in the history file.
const MAX_LINES: usize = 2_000;
/// Maximum length of a statement, bytes; a longer one runs at once and is rejected.
const MAX_STATEMENT_LEN: usize = 256 << 10;

/// Columns of each view, for `.schema` and completion.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Schema {
    views: Vec<(&'static str, Vec<String>)>,
}

/// Action that follows from a line of input.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Read the next line of an unfinished statement.
    More,
    /// Run this complete statement, which lacks its final `;`.
    Run(String),
    Print(String),
    /// Read the next line: a setting was changed, or the line was empty.
    Set,
    Quit,
}

/// Statement typed so far, and the settings of queries.
#[derive(Clone, Debug)]
struct Session {
    statement: String,
    query: StoreQuery,
    schema: Schema,
}

/// Runs the shell until input ends. `store` names the store: a directory or a URL. `run` runs a query; its errors are printed.
/// `columns` lists the columns of a table; none if the store lacks the table.
pub(super) fn run(
    store: &str,
    query: StoreQuery,
    run: &dyn Fn(&StoreQuery) -> Result<QueryOutput, CliError>,
    columns: &dyn Fn(&str) -> Result<Vec<String>, CliError>,
) -> Result<(), CliError> {
    let schema = Schema::read(columns)?;
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(MAX_LINES);
    let config = config.map_err(terminal_error)?.auto_add_history(false).build();
    let mut editor: Editor<Shell, DefaultHistory> = Editor::with_config(config).map_err(terminal_error)?;
    editor.set_helper(Some(Shell(schema.clone())));
    let history = history_file();
    if let Some(file) = &history {
        // The file does not exist before the first session.
        let _ = editor.load_history(file);
    }
    terminal::print(&format!(
        "hopwise {}: SQL over {store}. End a statement with `;`. `.help` lists commands.\n",
        env!("CARGO_PKG_VERSION"),
    ))?;
    let mut session = Session {
        statement: String::new(),
        query,
        schema,
    };
    loop {
        let prompt = if session.statement.is_empty() {
            "hopwise> "
        } else {
            "    ...> "
        };
        let line = match editor.readline(prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                session.statement.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(terminal_error(error)),
        };
        let step = session.line(&line);
        if !matches!(step, Step::More) && !line.trim().is_empty() {
            let entry = if let Step::Run(sql) = &step {
                sql.replace('\n', " ") + ";"
            } else {
                line
            };
            let _ = editor.add_history_entry(entry);
        }
        match step {
            Step::More | Step::Set => {}
            Step::Print(text) => terminal::print(&text)?,
            Step::Quit => break,
            Step::Run(sql) => match run(&StoreQuery {
                sql,
                ..session.query.clone()
            }) {
                Ok(output) => show(&output)?,
                Err(error) => terminal::note(error),
            },
        }
    }
    if let Some(file) = history
        && !editor.history().is_empty()
    {
        // Ignored: the shell works without a history file.
        let _ = file.parent().map(fs::create_dir_all);
        let _ = editor.save_history(&file);
    }
    Ok(())
}

fn terminal_error(error: ReadlineError) -> CliError {
    CliError::new(format!("cannot read from the terminal: {error}"))
}

/// Returns the path of the history file: `hopwise/query_history` in `$XDG_STATE_HOME` or `~/.local/state`.
fn history_file() -> Option<PathBuf> {
    let state = path_variable("XDG_STATE_HOME")
        .or_else(|| path_variable("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("hopwise/query_history"))
}

/// Prints an answer; if it is longer than the screen, in the pager.
fn show(output: &QueryOutput) -> Result<(), CliError> {
    let terminal = Terminal::stdout();
    let text = terminal.clean(&output.text);
    let fits_screen = text.lines().take(terminal.height).count() < terminal.height;
    if !terminal.interactive || fits_screen || !show_in_pager(&text) {
        return output.print();
    }
    output.remarks.iter().for_each(terminal::note);
    Ok(())
}

/// Shows a text in `$PAGER`. Returns false if no pager could show it.
fn show_in_pager(text: &str) -> bool {
    let pager = env::var("PAGER")
        .ok()
        .filter(|pager| !pager.trim().is_empty())
        .unwrap_or_else(|| "less -SFX".into());
    let mut arguments = pager.split_whitespace();
    let Some(program) = arguments.next() else {
        return false;
    };
    let Ok(mut child) = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
    else {
        return false;
    };
    if let Some(mut input) = child.stdin.take() {
        // A broken pipe means that the user left the pager early.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait().is_ok_and(|status| status.success())
}

impl Session {
    /// Processes an input line: a dot command, or part of a statement, which ends with `;` outside quotes.
    fn line(&mut self, line: &str) -> Step {
        let trimmed = line.trim();
        if self.statement.is_empty() {
            if trimmed.is_empty() {
                return Step::Set;
            }
            if let Some(command) = trimmed.strip_prefix('.') {
                return self.command(command);
            }
            if matches!(trimmed, "exit" | "quit" | "help") {
                return self.command(trimmed);
            }
        }
        if !self.statement.is_empty() {
            self.statement.push('\n');
        }
        self.statement.push_str(line);
        let statement = self.statement.trim_end();
        let is_complete = statement.ends_with(';') && !is_quoted(statement);
        if !is_complete && self.statement.len() <= MAX_STATEMENT_LEN {
            return Step::More;
        }
        let sql = statement.trim_end_matches(';').trim().to_owned();
        self.statement.clear();
        if sql.is_empty() { Step::Set } else { Step::Run(sql) }
    }

    /// Executes a dot command. `.from` and `.to` without a value remove the limit.
    fn command(&mut self, command: &str) -> Step {
        let (name, value) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let value = value.trim();
        let query = &mut self.query;
        match (name, value) {
            ("quit" | "exit", _) => Step::Quit,
            ("tables", _) => Step::Print(self.schema.tables()),
            ("schema", _) => Step::Print(self.schema.describe(value)),
            ("from" | "to", "") => {
                *(if name == "from" {
                    &mut query.from
                } else {
                    &mut query.to
                }) = None;
                Step::Set
            }
            ("from", _) => setting(name, value, time(value).map(|time| query.from = Some(time))),
            ("to", _) => setting(name, value, time(value).map(|time| query.to = Some(time))),
            ("limit", _) => {
                let rows = value.parse().map_err(|_| "write a number of rows".to_owned());
                setting(name, value, rows.map(|rows| query.limit = rows))
            }
            ("format", _) => {
                let format = <Format as clap::ValueEnum>::from_str(value, true);
                setting(
                    name,
                    value,
                    format
                        .map(|format| query.format = format)
                        .map_err(|_| "write table, json or csv".to_owned()),
                )
            }
            ("help", _) => Step::Print(HELP.to_owned()),
            _ => Step::Print(format!("there is no command .{name}; .help lists them\n")),
        }
    }
}

/// Returns the step after `.name value`: continue, or print the reason that the value is invalid.
fn setting(name: &str, value: &str, result: Result<(), String>) -> Step {
    match result {
        Ok(()) => Step::Set,
        Err(message) => Step::Print(format!(".{name} {value}: {message}\n")),
    }
}

/// Returns whether a statement ends inside quotes.
fn is_quoted(statement: &str) -> bool {
    let mut open = None;
    for character in statement.chars() {
        open = match (open, character) {
            (None, '\'' | '"') => Some(character),
            (Some(quote), _) if quote == character => None,
            (open, _) => open,
        };
    }
    open.is_some()
}

impl Schema {
    fn read(columns: &dyn Fn(&str) -> Result<Vec<String>, CliError>) -> Result<Self, CliError> {
        let mut views = Vec::new();
        for view in VIEWS {
            let columns = columns(view)?;
            if !columns.is_empty() {
                views.push((view, columns));
            }
        }
        Ok(Self { views })
    }

    fn tables(&self) -> String {
        self.views.iter().map(|(view, _)| format!("{view}\n")).collect()
    }

    fn describe(&self, view: &str) -> String {
        let text: String = self
            .views
            .iter()
            .filter(|(name, _)| view.is_empty() || *name == view)
            .map(|(name, columns)| format!("{name}: {}\n", columns.join(", ")))
            .collect();
        if text.is_empty() {
            format!("there is no table {view}; .tables lists them\n")
        } else {
            text
        }
    }

    /// Completes the word that ends at `cursor`. Returns its start and the candidates. Columns are those of the tables in the
    /// line, or else of all tables.
    fn complete(&self, line: &str, cursor: usize) -> (usize, Vec<String>) {
        let prefix = line.get(..cursor).unwrap_or(line);
        let start = prefix
            .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.')
            .map_or(0, |i| i + 1);
        let word = &prefix[start..];
        if word.is_empty() {
            return (start, Vec::new());
        }
        if start == 0 && word.starts_with('.') {
            return (
                0,
                COMMANDS
                    .iter()
                    .filter(|name| name.starts_with(word))
                    .map(|name| (*name).to_owned())
                    .collect(),
            );
        }
        let names_view = self.views.iter().any(|(view, _)| has_word(line, view));
        let views = self
            .views
            .iter()
            .filter(|(view, _)| !names_view || has_word(line, view));
        let columns = views.flat_map(|(_, columns)| columns.iter().map(String::as_str));
        let tables = self.views.iter().map(|(view, _)| *view);
        let mut completions: Vec<String> = tables
            .chain(columns)
            .filter(|name| name.starts_with(word))
            .map(str::to_owned)
            .collect();
        let upper = word.to_ascii_uppercase();
        completions.extend(
            KEYWORDS
                .iter()
                .filter(|name| name.starts_with(&upper))
                .map(|name| (*name).to_owned()),
        );
        completions.sort_unstable();
        completions.dedup();
        (start, completions)
    }
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .any(|part| part == word)
}

/// Adapter of [`Schema`] to the line editor's completion.
struct Shell(Schema);

impl Helper for Shell {}
impl Highlighter for Shell {}
impl Validator for Shell {}
impl Hinter for Shell {
    type Hint = String;
}
impl Completer for Shell {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.0.complete(line, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let columns = |view: &str| {
            Ok(if view == "events" {
                vec!["ts".to_owned(), "kind".to_owned()]
            } else {
                vec!["flow".to_owned()]
            })
        };
        let schema = Schema::read(&columns).unwrap();
        let query = StoreQuery {
            sql: String::new(),
            format: Format::Table,
            from: None,
            to: None,
            limit: 100,
            timeout: std::time::Duration::from_secs(1),
        };
        Session {
            statement: String::new(),
            query,
            schema,
        }
    }

    #[test]
    fn a_statement_ends_with_a_semicolon_outside_of_quotes() {
        let mut session = session();
        assert_eq!(session.line("SELECT kind FROM events"), Step::More);
        assert_eq!(session.line("WHERE rule = ';"), Step::More);
        assert_eq!(
            session.line("';"),
            Step::Run("SELECT kind FROM events\nWHERE rule = ';\n'".into())
        );
        assert_eq!(session.line("  "), Step::Set);
        assert_eq!(session.line("SELECT 1 ; "), Step::Run("SELECT 1".into()));
        assert_eq!(session.line(";"), Step::Set);
        assert_eq!(
            session.line(&"x".repeat(MAX_STATEMENT_LEN + 1)),
            Step::Run("x".repeat(MAX_STATEMENT_LEN + 1))
        );
    }

    #[test]
    fn commands_set_what_is_asked_and_say_what_is_wrong() {
        let mut session = session();
        for line in [
            ".format csv",
            ".limit 7",
            ".from 1795000000000000000",
            ".to 1795000000000000001",
        ] {
            assert_eq!(session.line(line), Step::Set, "{line}");
        }
        let StoreQuery {
            format,
            limit,
            from,
            to,
            ..
        } = session.query;
        assert_eq!(
            (format, limit, from, to),
            (
                Format::Csv,
                7,
                Some(1_795_000_000_000_000_000),
                Some(1_795_000_000_000_000_001)
            )
        );
        assert_eq!(session.line(".from"), Step::Set);
        assert_eq!(session.query.from, None);
        let said = |line: &str, session: &mut Session| match session.line(line) {
            Step::Print(text) => text,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(
            said(".limit many", &mut session),
            ".limit many: write a number of rows\n"
        );
        assert_eq!(
            said(".format xml", &mut session),
            ".format xml: write table, json or csv\n"
        );
        assert_eq!(
            said(".drop", &mut session),
            "there is no command .drop; .help lists them\n"
        );
        assert_eq!(said(".schema events", &mut session), "events: ts, kind\n");
        assert_eq!(
            said(".schema x", &mut session),
            "there is no table x; .tables lists them\n"
        );
        assert_eq!(session.line(".quit"), Step::Quit);
    }

    #[test]
    fn words_are_completed_from_the_tables_that_the_line_names() {
        let schema = session().schema;
        let found = |line: &str| schema.complete(line, line.len());
        assert_eq!(found("SELECT k"), (7, vec!["kind".into()]));
        assert_eq!(found("sel"), (0, vec!["SELECT".into()]));
        assert_eq!(found(".s"), (0, vec![".schema".into()]));
        assert_eq!(found("SELECT fl"), (7, vec!["flow".into(), "flows".into()]));
        assert_eq!(
            schema.complete("SELECT fl FROM events", 9),
            (7, vec!["flows".into()])
        );
        assert_eq!(found("SELECT "), (7, Vec::new()));
    }
}
