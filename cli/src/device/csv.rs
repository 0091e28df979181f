//! Reads an inventory from CSV (RFC 4180): the first row names the columns, each other row is a device, a link or a host.

use std::{collections::BTreeMap, str::FromStr};

use super::inventory::{DeviceRow, Import, PortName};

/// Columns that a file may have, in any order.
const COLUMNS: [&str; 13] = [
    "kind",
    "name",
    "node",
    "driver",
    "address",
    "labels",
    "ports",
    "edge",
    "a",
    "b",
    "mtu",
    "addresses",
    "at",
];
/// Maximum number of listed problems; of the rest, the number is given.
const MAX_PROBLEMS: usize = 20;

/// Row with its line number and its nonempty cells by column.
struct Row {
    line: usize,
    cells: BTreeMap<String, String>,
}

/// Parses an inventory; `file` is its name in messages.
///
/// # Errors
/// Every problem with its line and a remedy.
pub(super) fn read(text: &str, file: &str) -> Result<Import, String> {
    let mut import = Import::default();
    let mut problems = Vec::new();
    let rows = parse_rows(text).map_err(|(line, problem)| format!("{file}:{line}: {problem}"))?;
    // Three passes: a link or host may precede its devices, and free node ids are chosen after all given ones are known.
    for pass in 0..3 {
        for row in rows.iter().filter(|row| row.pass() == pass) {
            if let Err(problem) = row.add_to(&mut import) {
                problems.push((row.line, problem));
            }
        }
    }
    if problems.is_empty() {
        return Ok(import);
    }
    problems.sort();
    let omitted = problems.len().saturating_sub(MAX_PROBLEMS);
    let mut lines: Vec<String> = problems
        .into_iter()
        .take(MAX_PROBLEMS)
        .map(|(line, problem)| format!("{file}:{line}: {problem}"))
        .collect();
    if omitted > 0 {
        lines.push(format!("and {omitted} more"));
    }
    Err(lines.join("\n"))
}

/// Parses the header and the rows. An error is (line number, problem).
fn parse_rows(text: &str) -> Result<Vec<Row>, (usize, String)> {
    let mut records = parse_records(text.trim_start_matches('\u{feff}'))?.into_iter();
    let (line, header) = records.next().ok_or((
        1,
        "the file is empty; begin with a row of column names".to_owned(),
    ))?;
    let names: Vec<String> = header
        .iter()
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    if let Some(name) = names.iter().find(|name| !COLUMNS.contains(&name.as_str())) {
        let columns = COLUMNS.join(", ");
        return Err((line, format!("`{name}` is not a column; use {columns}")));
    }
    if let Some(name) = names
        .iter()
        .enumerate()
        .find(|(index, name)| names[..*index].contains(name))
    {
        return Err((line, format!("two columns are named `{}`; remove one", name.1)));
    }
    records
        .filter(|(_, cells)| cells.iter().any(|cell| !cell.trim().is_empty()))
        .map(|(line, cells)| Row::new(&names, line, cells))
        .collect()
}

impl Row {
    /// Pairs the cells of a line with the names of their columns; empty cells are left out.
    fn new(names: &[String], line: usize, cells: Vec<String>) -> Result<Self, (usize, String)> {
        if cells.len() != names.len() {
            let problem = format!(
                "{} cells, but {} columns; quote cells that contain commas",
                cells.len(),
                names.len()
            );
            return Err((line, problem));
        }
        let cells = names
            .iter()
            .cloned()
            .zip(cells.into_iter().map(|cell| cell.trim().to_owned()));
        Ok(Self {
            line,
            cells: cells.filter(|(_, cell)| !cell.is_empty()).collect(),
        })
    }

    fn cell(&self, column: &str) -> Option<&str> {
        self.cells.get(column).map(String::as_str)
    }

    fn kind(&self) -> &str {
        self.cell("kind").unwrap_or("device")
    }

    /// Returns the pass in which the row is added: devices with a node id, then other devices, then the rest.
    fn pass(&self) -> u8 {
        match self.kind() {
            "device" => u8::from(self.cell("node").is_none()),
            _ => 2,
        }
    }

    fn required_cell(&self, column: &str) -> Result<String, String> {
        let kind = self.kind();
        self.cell(column)
            .map(str::to_owned)
            .ok_or_else(|| format!("a {kind} needs `{column}`; fill in the cell"))
    }

    fn number<T: FromStr>(&self, column: &str) -> Result<Option<T>, String> {
        let Some(cell) = self.cell(column) else {
            return Ok(None);
        };
        cell.parse()
            .map(Some)
            .map_err(|_| format!("`{cell}` in `{column}` cannot be read; write a number from 1"))
    }

    /// Parses a list in one cell; items are separated by spaces or semicolons.
    fn list<T: FromStr>(&self, column: &str, description: &str) -> Result<Vec<T>, String> {
        let cell = self.cell(column).unwrap_or_default();
        cell.split([' ', ';'])
            .filter(|item| !item.is_empty())
            .map(|item| {
                item.parse().map_err(|_| {
                    format!("`{item}` in `{column}` cannot be read; write {description}, separated by spaces")
                })
            })
            .collect()
    }

    /// Parses the required port at one end of a link.
    fn end(&self, column: &str) -> Result<PortName, String> {
        self.required_cell(column)
            .and(self.port(column))
            .map(Option::unwrap_or_default)
    }

    /// Parses `DEVICE:PORT`; `None` if the cell is empty.
    fn port(&self, column: &str) -> Result<Option<PortName>, String> {
        let Some(cell) = self.cell(column) else {
            return Ok(None);
        };
        let port = cell
            .rsplit_once(':')
            .and_then(|(device, port)| Some((device.to_owned(), port.parse().ok()?)));
        port.map(Some).ok_or_else(|| {
            format!("`{cell}` in `{column}` is not a port; write DEVICE:PORT, such as leaf1:3")
        })
    }

    fn add_to(&self, import: &mut Import) -> Result<(), String> {
        match self.kind() {
            "device" => import.device(DeviceRow {
                name: self.required_cell("name")?,
                node: self.number("node")?,
                driver: self.cell("driver").unwrap_or("hopwise").to_owned(),
                address: self.required_cell("address")?,
                labels: self.list("labels", "labels")?,
                ports: self.number("ports")?.unwrap_or(0),
                edge: self.list("edge", "numbers of ports")?,
                comment: String::new(),
            }),
            "link" => import.link([self.end("a")?, self.end("b")?], self.number("mtu")?),
            "host" => import.host(
                self.required_cell("name")?,
                self.list("addresses", "addresses")?,
                self.port("at")?,
            ),
            other => Err(format!(
                "`{other}` is not a kind of row; write device, link or host"
            )),
        }
    }
}

/// Line on which a record begins, and its cells.
type Record = (usize, Vec<String>);

/// Splits CSV text into records. A doubled quotation mark inside a quoted cell stands for one.
fn parse_records(text: &str) -> Result<Vec<Record>, (usize, String)> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut cell = String::new();
    let mut line = 1;
    let mut start_line = 1;
    let mut quote_line = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        line += usize::from(c == '\n');
        match c {
            '"' if quote_line.is_some() && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' if quote_line.is_some() => quote_line = None,
            _ if quote_line.is_some() => cell.push(c),
            '"' if cell.is_empty() => quote_line = Some(line),
            ',' => record.push(std::mem::take(&mut cell)),
            '\n' => {
                record.push(std::mem::take(&mut cell));
                records.push((start_line, std::mem::take(&mut record)));
                start_line = line;
            }
            '\r' if chars.peek() == Some(&'\n') => {}
            c => cell.push(c),
        }
    }
    if let Some(line) = quote_line {
        return Err((
            line,
            "a quoted cell does not end; add the closing quotation mark".to_owned(),
        ));
    }
    if !cell.is_empty() || !record.is_empty() {
        record.push(cell);
        records.push((start_line, record));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\u{feff}Kind,name,node,driver,address,labels,ports,edge,a,b,mtu,addresses,at\r\n\
        link,,,,,,,,leaf1:3,spine:1,9000,,\r\n\
        ,leaf1,11,,10.9.0.11:8080,\"rack1 \"\"old\"\"\",3,1 2,,,,,\r\n\
        device,spine,,files,,x,2,,,,,,\r\n";

    #[test]
    fn rows_become_tables_of_the_configuration() {
        let text =
            FILE.replace("files,,x", "files,spine.json,") + "host,h1,,,,,,,,,,10.0.0.1 fd00::1,leaf1:1\n\n";
        let import = read(&text, "a.csv").unwrap();
        assert_eq!(import.summary(), "2 devices, 1 link and 1 host");
        let expected = "[[inventory.devices]]\nname = \"leaf1\"\nnode = 11\naddress = \"10.9.0.11:8080\"\n\
            labels = [\"rack1\", \"\\\"old\\\"\"]\nports = 3\nedge = [1, 2]\n\n\
            [[inventory.devices]]\nname = \"spine\"\ndriver = \"files\"\naddress = \"spine.json\"\nports = 2\n\n\
            [[inventory.links]]\nbetween = [\"leaf1:3\", \"spine:1\"]\nmtu = 9000\n\n\
            [[inventory.hosts]]\nname = \"h1\"\naddresses = [\"10.0.0.1\", \"fd00::1\"]\nat = \"leaf1:1\"\n\n";
        assert_eq!(import.toml(), expected);
        // It is what the program reads.
        let inventory = manager::inventory::read(&expected.replace("inventory.", ""), "i.toml").unwrap();
        assert_eq!((inventory.devices().count(), inventory.hosts().count()), (2, 1));
    }

    #[test]
    fn each_problem_has_its_line() {
        let error = |text: &str| read(text, "a.csv").unwrap_err();
        assert_eq!(
            error(FILE),
            "a.csv:2: there is no device `spine`; add it to the inventory\n\
             a.csv:4: a device needs `address`; fill in the cell"
        );
        assert_eq!(
            error(""),
            "a.csv:1: the file is empty; begin with a row of column names"
        );
        assert!(error("name,rack\n").starts_with("a.csv:1: `rack` is not a column; use kind, name, "));
        assert_eq!(
            error("name,name\n"),
            "a.csv:1: two columns are named `name`; remove one"
        );
        assert_eq!(
            error("name\n\"a"),
            "a.csv:2: a quoted cell does not end; add the closing quotation mark"
        );
        assert_eq!(
            error("name,node\na\n"),
            "a.csv:2: 1 cells, but 2 columns; quote cells that contain commas"
        );
        let text = "kind,name,address,node,a,b\ndevice,\"a\n\",x,,,\ndevice,a,x,y,,\ndevice,b c,x,,,\nlink,,,,a:1,d:1\n\
                    link,,,,a:x,d:1\nport,,,,,\n";
        let expected = "a.csv:4: `y` in `node` cannot be read; write a number from 1\n\
            a.csv:5: `b c` is not a name; use 1 to 63 letters, digits, `.`, `_` and `-`\n\
            a.csv:6: there is no device `d`; add it to the inventory\n\
            a.csv:7: `a:x` in `a` is not a port; write DEVICE:PORT, such as leaf1:3\n\
            a.csv:8: `port` is not a kind of row; write device, link or host";
        assert_eq!(error(text), expected);
        let many = "name,address\n".to_owned() + &"a b,x\n".repeat(30);
        assert!(error(&many).ends_with("\nand 10 more"));
    }
}
