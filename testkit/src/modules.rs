//! Builds a crate's module graph from its source. A test rejects cycles and checks the levels in `ARCHITECTURE.md`.
//!
//! All paths count: in `use`, types, expressions and macros, but not in test modules; re-exports as their defining module.
//!
//! Modules are compared with their siblings, at each depth of the tree. Uses between a module and its descendants do not count,
//! except at the root of the crate, where the root file counts as the module `.`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// A module's path from the crate's root; the root itself is empty.
type Module = Vec<String>;

/// The modules of one crate, and the uses between them.
#[derive(Debug, Default)]
pub struct Graph {
    /// Source text of each module, without comments, literals and tests.
    sources: BTreeMap<Module, String>,
    /// Pairs of user and used module.
    edges: BTreeSet<(Module, Module)>,
}

/// Siblings below one parent that use each other in a cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// The parent's path, `crate` for the root.
    pub parent: String,
    /// The siblings, in alphabetical order.
    pub modules: Vec<String>,
    /// One example for each pair of siblings: `a::x -> b::y`.
    pub uses: Vec<String>,
}

/// One path in the source: the module that it leads to, the names after that, and whether it is re-exported (`pub use`).
struct Mention {
    module: Module,
    rest: Vec<String>,
    exported: bool,
}

impl Graph {
    /// Reads the crate whose root file (`lib.rs` or `main.rs`) is in `folder`.
    ///
    /// # Errors
    /// A source file cannot be read.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let mut graph = Self::default();
        let root = ["lib.rs", "main.rs"]
            .map(|name| folder.join(name))
            .into_iter()
            .find(|file| file.exists());
        let root =
            root.ok_or_else(|| io::Error::other(format!("{}: no lib.rs, no main.rs", folder.display())))?;
        graph.read_module(Vec::new(), &root, folder)?;
        graph.link();
        Ok(graph)
    }

    /// Builds the graph of a crate given as pairs of module path (`""` for the root) and source.
    #[must_use]
    pub fn from_sources(sources: &[(&str, &str)]) -> Self {
        let mut graph = Self::default();
        for (path, text) in sources {
            let module = path
                .split("::")
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect();
            graph.sources.insert(module, without_tests(&plain(text)));
        }
        graph.link();
        graph
    }

    fn read_module(&mut self, module: Module, file: &Path, folder: &Path) -> io::Result<()> {
        let text = without_tests(&plain(&fs::read_to_string(file)?));
        let children = declared(&text);
        self.sources.insert(module.clone(), text);
        for name in children {
            let inner = folder.join(&name);
            let files = [folder.join(format!("{name}.rs")), inner.join("mod.rs")];
            if let Some(file) = files.iter().find(|file| file.exists()) {
                let path = module.iter().cloned().chain([name]).collect();
                self.read_module(path, file, &inner)?;
            }
        }
        Ok(())
    }

    /// Finds the uses between modules, follows re-exports, and stores the edges.
    fn link(&mut self) {
        let mentions: Vec<(Module, Vec<Mention>)> = self
            .sources
            .iter()
            .map(|(module, text)| (module.clone(), self.mentions(module, text)))
            .collect();
        let mut exports: BTreeMap<(&Module, &str), &Module> = BTreeMap::new();
        for (module, mentions) in &mentions {
            for mention in mentions.iter().filter(|mention| mention.exported) {
                if let Some(name) = mention.rest.last() {
                    exports.insert((module, name), &mention.module);
                }
            }
        }
        for (module, mentions) in &mentions {
            for mention in mentions {
                let mut target = &mention.module;
                // Re-exports may form a cycle, so chains are followed for eight steps at most.
                for _ in 0..8 {
                    let Some(next) = mention.rest.first().and_then(|name| exports.get(&(target, name)))
                    else {
                        break;
                    };
                    target = next;
                }
                if target != module {
                    self.edges.insert((module.clone(), target.clone()));
                }
            }
        }
    }

    /// Finds the paths of a module that lead into the crate: first those of `use`, then those of the remaining text.
    fn mentions(&self, module: &Module, text: &str) -> Vec<Mention> {
        let mut found = Vec::new();
        let mut rest = String::new();
        let mut at = 0;
        while let Some(start) = next_word(text, "use", at) {
            let end = text[start..]
                .find(';')
                .map_or(text.len(), |length| start + length);
            let line = &text[text[..start].rfind([';', '}', '{']).map_or(0, |i| i + 1)..start];
            let exported = next_word(line, "pub", 0).is_some();
            for path in leaves(&text[start + 3..end]) {
                found.extend(self.resolve(module, &path, exported));
            }
            rest.push_str(&text[at..start]);
            at = end;
        }
        rest.push_str(&text[at..]);
        for path in paths(&rest) {
            found.extend(self.resolve(module, &path, false));
        }
        found
    }

    /// Resolves a path used in `module`; `None` if it leads out of the crate or names an item of `module` itself.
    fn resolve(&self, module: &Module, path: &[String], exported: bool) -> Option<Mention> {
        let (mut base, mut rest): (Module, &[String]) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (module.clone(), &path[1..]),
            "super" => (module.clone(), path),
            _ => (module.clone(), path),
        };
        while rest.first().is_some_and(|name| name == "super") {
            base.pop();
            rest = &rest[1..];
        }
        // A path without `crate`, `self` or `super` may also name a local item or another crate.
        let relative = base == *module && rest.len() == path.len();
        let depth = base.len();
        while let Some(name) = rest.first() {
            base.push(name.clone());
            if !self.sources.contains_key(&base) {
                base.pop();
                break;
            }
            rest = &rest[1..];
        }
        if relative && base.len() == depth {
            return None;
        }
        Some(Mention {
            module: base,
            rest: rest.to_vec(),
            exported,
        })
    }

    /// Returns the uses between the siblings below `parent`: user, used, and one example.
    fn siblings(&self, parent: &Module) -> BTreeMap<String, BTreeMap<String, String>> {
        let depth = parent.len();
        let name = |module: &Module| module.get(depth).cloned().unwrap_or_else(|| ".".to_owned());
        let mut graph: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        let below = self
            .sources
            .keys()
            .filter(|module| module.len() > depth && module.starts_with(parent));
        for module in below {
            graph.entry(name(module)).or_default();
        }
        for (from, to) in &self.edges {
            let a = name(from);
            let b = name(to);
            let inside = from.starts_with(parent) && to.starts_with(parent) && a != b;
            if inside && (depth == 0 || (a != "." && b != ".")) {
                let text = format!("{} -> {}", from.join("::"), to.join("::"));
                graph.entry(a).or_default().entry(b).or_insert(text);
            }
        }
        graph
    }

    /// Returns the cycles between siblings at every depth of the crate.
    #[must_use]
    pub fn cycles(&self) -> Vec<Cycle> {
        let parents: BTreeSet<Module> = self
            .sources
            .keys()
            .filter(|module| !module.is_empty())
            .map(|module| module[..module.len() - 1].to_vec())
            .collect();
        parents
            .iter()
            .flat_map(|parent| self.cycles_below(parent))
            .collect()
    }

    fn cycles_below(&self, parent: &Module) -> Vec<Cycle> {
        let graph = self.siblings(parent);
        let reach: BTreeMap<&String, BTreeSet<&String>> =
            graph.keys().map(|name| (name, reachable(&graph, name))).collect();
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for name in graph.keys() {
            if !reach[name].contains(name) || seen.contains(name) {
                continue;
            }
            let members: Vec<&String> = graph
                .keys()
                .filter(|other| reach[name].contains(*other) && reach[*other].contains(name))
                .collect();
            seen.extend(members.iter().copied());
            let uses = members.iter().flat_map(|a| {
                graph[*a]
                    .iter()
                    .filter(|(b, _)| members.contains(b))
                    .map(|(_, text)| text.clone())
            });
            let parent = if parent.is_empty() {
                "crate".to_owned()
            } else {
                parent.join("::")
            };
            cycles.push(Cycle {
                parent,
                uses: uses.collect(),
                modules: members.into_iter().cloned().collect(),
            });
        }
        cycles
    }

    /// Sorts the modules right below the root into levels, lowest first: each uses only earlier levels. `None` for a cycle.
    #[must_use]
    pub fn levels(&self) -> Option<Vec<Vec<String>>> {
        let mut left = self.siblings(&Vec::new());
        left.remove(".");
        let mut levels = Vec::new();
        while !left.is_empty() {
            let ready = |uses: &BTreeMap<String, String>| !uses.keys().any(|name| left.contains_key(name));
            let level: Vec<String> = left
                .iter()
                .filter(|(_, uses)| ready(uses))
                .map(|(name, _)| name.clone())
                .collect();
            if level.is_empty() {
                return None;
            }
            left.retain(|name, _| !level.contains(name));
            levels.push(level);
        }
        Some(levels)
    }

    /// Lists violations of `levels` (lowest first): modules without a level, unknown names, and uses of a later level.
    #[must_use]
    pub fn violations(&self, levels: &[Vec<String>]) -> Vec<String> {
        let mut graph = self.siblings(&Vec::new());
        graph.remove(".");
        let place = |name: &str| {
            levels
                .iter()
                .position(|level| level.iter().any(|module| module == name))
        };
        let missing = graph
            .keys()
            .filter(|name| place(name).is_none())
            .map(|name| format!("`{name}` stands in no level"));
        let unknown = levels
            .iter()
            .flatten()
            .filter(|name| !graph.contains_key(*name))
            .map(|name| format!("`{name}` is no module"));
        let upward = graph.iter().flat_map(|(name, uses)| {
            let later = uses
                .iter()
                .filter(move |(used, _)| place(used) > place(name) && place(name).is_some());
            later.map(|(_, text)| text.clone())
        });
        missing.chain(unknown).chain(upward).collect()
    }
}

fn reachable<'a>(graph: &'a BTreeMap<String, BTreeMap<String, String>>, from: &str) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&String> = graph[from].keys().collect();
    while let Some(name) = open.pop() {
        if found.insert(name) {
            open.extend(graph.get(name).into_iter().flat_map(BTreeMap::keys));
        }
    }
    found
}

/// Replaces each comment, string and character literal by a space.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = comment(rest).or_else(|| quoted(rest, out.chars().last()));
        match length {
            Some(length) => {
                out.push(' ');
                rest = rest.get(length..).unwrap_or_default();
            }
            None => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

/// Returns the length of the comment at the start of `text`, if there is one.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    text.starts_with("/*")
        .then(|| text.find("*/").map_or(text.len(), |end| end + 2))
}

/// Returns the length of the literal (string or character) at the start of `text`, unless it follows an identifier.
fn quoted(text: &str, before: Option<char>) -> Option<usize> {
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let body = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - body.len();
    if prefix <= 1 && body.starts_with('r') {
        let hashes = body[1..].bytes().take_while(|byte| *byte == b'#').count();
        if body[1 + hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let from = 2 + hashes;
            return Some(
                prefix
                    + body[from..]
                        .find(&end)
                        .map_or(body.len(), |at| from + at + end.len()),
            );
        }
    }
    if prefix <= 1 && body.starts_with('"') {
        return Some(prefix + 1 + closing(&body[1..], '"'));
    }
    // A character, not a lifetime: it ends after one character or an escape.
    let inner = body.strip_prefix('\'').filter(|_| prefix <= 1)?;
    let mut chars = inner.chars();
    let first = chars.next()?;
    if first == '\\' || chars.next() == Some('\'') {
        Some(prefix + 1 + closing(inner, '\''))
    } else {
        None
    }
}

/// Returns the length up to and including the first unescaped `end`.
fn closing(text: &str, end: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == end => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Removes each `#[cfg(test)] mod …` from the source.
fn without_tests(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("#[cfg(test)]") {
        let (before, after) = rest.split_at(start);
        out.push_str(before);
        let item = after["#[cfg(test)]".len()..].trim_start();
        let head = item.find(['{', ';']).unwrap_or(item.len());
        let length = if next_word(&item[..head], "mod", 0).is_some() {
            item_length(item)
        } else {
            0
        };
        rest = &item[length..];
    }
    out + rest
}

/// Returns the length of an item, up to its `;` or its closing brace.
fn item_length(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            ';' if depth == 0 => return at + 1,
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the names that `mod name;` declares.
fn declared(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = 0;
    while let Some(start) = next_word(text, "mod", at) {
        at = start + 3;
        let after = text[at..].trim_start();
        let name: String = after
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if !name.is_empty() && after[name.len()..].trim_start().starts_with(';') {
            names.push(name);
        }
    }
    names
}

/// Finds the next occurrence of `word` as a whole word, from `at` on.
fn next_word(text: &str, word: &str, mut at: usize) -> Option<usize> {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    loop {
        let start = at + text.get(at..)?.find(word)?;
        let end = start + word.len();
        if !text[..start].ends_with(inside) && !text[end..].starts_with(inside) {
            return Some(start);
        }
        at = end;
    }
}

/// Expands a `use` tree: `a::{b, c::d}` becomes `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    if let (Some(open), true) = (tree.find('{'), tree.ends_with('}')) {
        let prefix: Vec<String> = names(&tree[..open]);
        let inner = split(&tree[open + 1..tree.len() - 1]);
        let paths = inner.into_iter().flat_map(leaves);
        return paths
            .map(|path| prefix.iter().cloned().chain(path).collect())
            .collect();
    }
    let path = names(tree.split(" as ").next().unwrap_or_default());
    if path.is_empty() { Vec::new() } else { vec![path] }
}

fn names(path: &str) -> Vec<String> {
    path.split("::")
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Splits a list at commas outside of braces.
fn split(list: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let mut from = 0;
    let mut parts = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    parts
}

/// Finds the paths of two or more names in code. Paths that begin with `::` lead to other crates and are left out.
fn paths(text: &str) -> Vec<Vec<String>> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        if !word(c) {
            before = c;
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let length = rest.find(|c: char| !word(c) && c != ':').unwrap_or(rest.len());
        let path = names(rest[..length].trim_end_matches(':'));
        if before != ':' && path.len() > 1 {
            found.push(path);
        }
        before = rest[..length].chars().last().unwrap_or(' ');
        rest = &rest[length..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Cycle, Graph, plain};

    fn cycle(parent: &str, modules: &[&str]) -> Cycle {
        Cycle {
            parent: parent.into(),
            modules: modules.iter().map(|name| (*name).to_owned()).collect(),
            uses: Vec::new(),
        }
    }

    fn cycles(sources: &[(&str, &str)]) -> Vec<Cycle> {
        let cycles = Graph::from_sources(sources).cycles();
        cycles
            .into_iter()
            .map(|cycle| Cycle {
                uses: Vec::new(),
                ..cycle
            })
            .collect()
    }

    #[test]
    fn modules_that_use_each_other_are_a_cycle() {
        let found = cycles(&[
            ("", "mod a; mod b;"),
            ("a", "use crate::b::B;"),
            ("b", "fn f() { crate::a::g() }"),
        ]);
        assert_eq!(found, [cycle("crate", &["a", "b"])]);
    }

    #[test]
    fn a_chain_has_levels_and_no_cycle() {
        let graph = Graph::from_sources(&[
            ("", ""),
            ("a", "use super::{b::B, c};"),
            ("b", "use crate::c::*;"),
            ("c", ""),
        ]);
        assert_eq!(graph.cycles(), []);
        assert_eq!(graph.levels().unwrap(), [["c"], ["b"], ["a"]]);
    }

    #[test]
    fn a_re_exported_name_counts_as_its_defining_module() {
        let sources = [
            ("", "pub use b::B;"),
            ("a", "use crate::B;"),
            ("b", "fn f() { crate::a::g() }"),
        ];
        assert_eq!(cycles(&sources), [cycle("crate", &["a", "b"])]);
        let root = [("", "pub use b::B;"), ("a", "use crate::B;"), ("b", "")];
        assert_eq!(cycles(&root), []);
    }

    #[test]
    fn an_item_of_the_root_file_is_used_from_the_root() {
        assert_eq!(
            cycles(&[("", "mod a; pub struct S(a::A);"), ("a", "use crate::S;")]),
            [cycle("crate", &[".", "a"])]
        );
    }

    #[test]
    fn children_of_a_folder_are_compared_with_each_other_only() {
        let sources = [
            ("", ""),
            ("a", "fn f() { b::g() }"),
            ("a::b", "use super::S; use super::c;"),
            ("a::c", "use super::b;"),
        ];
        assert_eq!(cycles(&sources), [cycle("a", &["b", "c"])]);
    }

    #[test]
    fn tests_comments_and_strings_do_not_count() {
        let text = "// crate::b::x\n/* crate::b */ const S: &str = \"crate::b::x\"; #[cfg(test)] mod tests { use crate::b; }";
        assert_eq!(cycles(&[("", ""), ("a", text), ("b", "use crate::a::S;")]), []);
        assert_eq!(
            plain(r##"('{', '\'', "a\"b", r#"x"y"#, b"z", 'a: loop)"##),
            "( ,  ,  ,  ,  , 'a: loop)"
        );
    }

    #[test]
    fn violations_of_levels_are_reported() {
        let graph = Graph::from_sources(&[("", ""), ("a", "use crate::b::B;"), ("b", ""), ("c", "")]);
        let levels = [vec!["a".to_owned()], vec!["b".to_owned(), "d".to_owned()]];
        let want = ["`c` stands in no level", "`d` is no module", "a -> b"];
        assert_eq!(graph.violations(&levels), want);
        assert_eq!(
            graph.violations(&[vec!["b".into(), "c".into()], vec!["a".into()]]),
            Vec::<String>::new()
        );
    }
}
