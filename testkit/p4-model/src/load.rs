//! Loads a program from the JSON of `p4c-bm2-ss`: resolves each name to an index, and rejects what the model does not execute.
//!
//! Objects that others refer to are read first: header types, headers, stacks, registers, counters, calculations, actions.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;

use crate::expression::{Binary, Expression, Unary};
use crate::field::{Field, VALID};
use crate::packet::Header;
use crate::program::{
    Action, Algorithm, Calculation, Checksum, CounterArray, Input, Lookahead, Node, ParseState, ParserErrors,
    ParserOp, Pipeline, Primitive, Program, RegisterArray, Standard, Transition, Value,
};
use crate::table::{ActionCall, Installed, Key, KeyField, MatchKind, Next, Table};

/// The reason why a program or a table entry is rejected, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub(crate) String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

type Result<T> = std::result::Result<T, Error>;

fn wrong<T>(what: impl fmt::Display) -> Result<T> {
    Err(Error(format!(
        "the program is not one that this model executes: {what}"
    )))
}

/// Indexes of a program's objects by name, needed only while loading.
#[derive(Default)]
struct Names {
    /// Header types by name.
    types: BTreeMap<String, HeaderType>,
    /// Field widths of each header type in bits; `None` for a field of variable length.
    widths: Vec<Vec<Option<u32>>>,
    headers: BTreeMap<String, usize>,
    stacks: BTreeMap<String, usize>,
    calculations: BTreeMap<String, usize>,
    registers: BTreeMap<String, usize>,
    counters: BTreeMap<String, usize>,
    /// Name of the type of each header instance.
    header_types: Vec<String>,
    /// The header instances of each stack.
    stack_headers: Vec<Vec<usize>>,
}

/// A header type: its index in `Names::widths`, and the indexes of its fields by name.
struct HeaderType {
    index: usize,
    fields: BTreeMap<String, usize>,
}

impl Program {
    /// Loads a program from the JSON text that `p4c-bm2-ss` writes.
    ///
    /// # Errors
    /// The text is not such JSON, or the program uses a feature that this model does not execute.
    pub fn read(text: &str) -> Result<Self> {
        let json: Json = serde_json::from_str(text).map_err(|error| Error(format!("not JSON: {error}")))?;
        // Features that no program of this project uses.
        for unused in [
            "header_unions",
            "parse_vsets",
            "meter_arrays",
            "learn_lists",
            "extern_instances",
            "force_arith",
        ] {
            if !list(&json, unused)?.is_empty() {
                return wrong(format_args!("it has {unused}"));
            }
        }
        let mut names = Names::default();
        header_types(&json, &mut names)?;
        let headers = headers(&json, &mut names)?;
        let stacks = stacks(&json, &mut names)?;
        let registers = read_arrays(&json, "register_arrays", &mut names.registers)?;
        let counters = read_arrays(&json, "counter_arrays", &mut names.counters)?;
        for (number, calculation) in list(&json, "calculations")?.iter().enumerate() {
            names.calculations.insert(text_of(calculation, "name")?, number);
        }
        let calculations = list(&json, "calculations")?
            .iter()
            .map(|json| names.calculation(json))
            .collect::<Result<_>>()?;
        let checksums = list(&json, "checksums")?
            .iter()
            .map(|json| names.checksum(json))
            .collect::<Result<_>>()?;
        let actions: Vec<Action> = list(&json, "actions")?
            .iter()
            .map(|json| names.action(json))
            .collect::<Result<_>>()?;
        let mut tables = Vec::new();
        let [ingress, egress] =
            ["ingress", "egress"].map(|name| names.pipeline(&json, name, &actions, &mut tables));
        let (states, first_state) = names.parser(&json)?;
        Ok(Self {
            errors: ParserErrors {
                packet_too_short: error_code(&json, "PacketTooShort"),
                stack_out_of_bounds: error_code(&json, "StackOutOfBounds"),
            },
            deparser: names.deparser(&json)?,
            field_lists: names.field_lists(&json)?,
            standard: names.standard()?,
            registers: registers
                .into_iter()
                .map(|(name, json)| {
                    Ok(RegisterArray {
                        name,
                        size: number(&json, "size")?,
                        width: number(&json, "bitwidth")? as u32,
                    })
                })
                .collect::<Result<_>>()?,
            counters: counters
                .into_iter()
                .map(|(name, json)| {
                    Ok(CounterArray {
                        name,
                        size: number(&json, "size")?,
                    })
                })
                .collect::<Result<_>>()?,
            ingress: ingress?,
            egress: egress?,
            headers,
            stacks,
            states,
            first_state,
            actions,
            tables,
            calculations,
            checksums,
        })
    }
}

/// Returns the code of a parser error, or `u128::MAX`, which no error has, if the program does not declare it.
fn error_code(json: &Json, name: &str) -> u128 {
    let errors = list(json, "errors").unwrap_or_default();
    let declared = errors.iter().find(|error| error[0] == name);
    declared
        .and_then(|error| error[1].as_u64())
        .map_or(u128::MAX, u128::from)
}

/// Returns the position of the element with this name. `None` also if `name` is null, which ends a parser or pipeline.
fn position<'a>(all: impl IntoIterator<Item = &'a Json>, name: &Json) -> Option<usize> {
    all.into_iter()
        .position(|element| element["name"] == *name)
        .filter(|_| name.is_string())
}

fn list<'a>(json: &'a Json, key: &str) -> Result<&'a [Json]> {
    match &json[key] {
        Json::Null => Ok(&[]),
        Json::Array(list) => Ok(list),
        _ => wrong(format_args!("`{key}` is not a list")),
    }
}

fn text_of(json: &Json, key: &str) -> Result<String> {
    json[key]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| Error(format!("`{key}` is not a text")))
}

fn number(json: &Json, key: &str) -> Result<usize> {
    let number = json[key].as_u64().and_then(|number| usize::try_from(number).ok());
    number
        .filter(|number| *number <= MAX)
        .ok_or_else(|| Error(format!("`{key}` is not a number up to {MAX}")))
}

fn hex(json: &Json) -> Result<u128> {
    let text = json.as_str().and_then(|text| text.strip_prefix("0x"));
    text.and_then(|text| u128::from_str_radix(text, 16).ok())
        .ok_or_else(|| Error(format!("{json} is not a 128-bit number")))
}

/// Reads the operand of a look-ahead: a list of offset and width in bits.
fn lookahead(json: &Json) -> Result<Lookahead> {
    let [offset, width] = [0, 1].map(|index: usize| json[index].as_u64());
    match (offset, width) {
        (Some(offset), Some(width @ 1..=128)) if offset <= MAX as u64 => Ok(Lookahead {
            offset: offset as usize,
            width: width as u32,
        }),
        _ => wrong(format_args!("look-ahead {json}")),
    }
}

/// Upper bound of every number in a program file, so that a malformed file cannot exhaust memory.
const MAX: usize = 1 << 20;

fn header_types(json: &Json, names: &mut Names) -> Result<()> {
    for kind in list(json, "header_types")? {
        let mut fields = BTreeMap::new();
        let mut widths = Vec::new();
        for field in list(kind, "fields")? {
            let name = field[0].as_str().unwrap_or_default();
            fields.insert(name.to_owned(), widths.len());
            widths.push(match &field[1] {
                Json::Number(width) => match width.as_u64() {
                    Some(width @ 1..=128) => Some(width as u32),
                    _ => return wrong(format_args!("field `{name}` has {width} bits")),
                },
                _ => None,
            });
        }
        names.types.insert(
            text_of(kind, "name")?,
            HeaderType {
                index: names.widths.len(),
                fields,
            },
        );
        names.widths.push(widths);
    }
    Ok(())
}

fn headers(json: &Json, names: &mut Names) -> Result<Vec<Header>> {
    let mut headers = Vec::new();
    for header in list(json, "headers")? {
        let kind = text_of(header, "header_type")?;
        let Some(header_type) = names.types.get(&kind) else {
            return wrong(format_args!("there is no type {kind}"));
        };
        names.headers.insert(text_of(header, "name")?, headers.len());
        headers.push(Header {
            widths: names.widths[header_type.index].clone(),
            metadata: header["metadata"].as_bool().unwrap_or(false),
        });
        names.header_types.push(kind);
    }
    Ok(headers)
}

fn stacks(json: &Json, names: &mut Names) -> Result<Vec<Vec<usize>>> {
    let mut stacks = Vec::new();
    for stack in list(json, "header_stacks")? {
        // The JSON lists ids; everything else in the model uses the position in `headers`.
        let ids = list(stack, "header_ids")?.iter().filter_map(Json::as_u64);
        let all = list(json, "headers")?;
        names.stacks.insert(text_of(stack, "name")?, stacks.len());
        stacks.push(
            ids.filter_map(|id| all.iter().position(|header| header["id"].as_u64() == Some(id)))
                .collect::<Vec<_>>(),
        );
    }
    names.stack_headers.clone_from(&stacks);
    Ok(stacks)
}

/// Reads the arrays of registers or counters, and adds their names to `names`.
fn read_arrays(json: &Json, key: &str, names: &mut BTreeMap<String, usize>) -> Result<Vec<(String, Json)>> {
    let mut arrays = Vec::new();
    for array in list(json, key)? {
        let name = text_of(array, "name")?;
        names.insert(name.clone(), arrays.len());
        arrays.push((name, array.clone()));
    }
    Ok(arrays)
}

/// Reads an entry that the program itself declares (`const entries`); only exact matches are supported.
fn const_entry(table: &str, json: &Json, actions: &[usize]) -> Result<Installed> {
    let keys = list(json, "match_key")?
        .iter()
        .map(|key| match key["match_type"].as_str() {
            Some("exact") => hex(&key["key"]).map(Key::Exact),
            other => wrong(format_args!(
                "table {table} has a constant entry of match kind {other:?}"
            )),
        })
        .collect::<Result<_>>()?;
    let call = &json["action_entry"];
    let action = number(call, "action_id")?;
    if !actions.contains(&action) {
        return wrong(format_args!(
            "table {table} has a constant entry with an action that it has not"
        ));
    }
    Ok(Installed {
        keys,
        priority: 0,
        action,
        parameters: list(call, "action_data")?
            .iter()
            .map(hex)
            .collect::<Result<_>>()?,
    })
}

impl Names {
    fn header(&self, name: &Json) -> Result<usize> {
        let header = name.as_str().and_then(|name| self.headers.get(name));
        header
            .copied()
            .ok_or_else(|| Error(format!("there is no header {name}")))
    }

    fn field(&self, json: &Json) -> Result<Field> {
        let header = self.header(&json[0])?;
        let name = json[1].as_str().unwrap_or_default();
        if name == "$valid$" {
            return Ok(Field { header, field: VALID });
        }
        let fields = &self.types[&self.header_types[header]].fields;
        let field = fields.get(name).copied();
        field
            .map(|field| Field { header, field })
            .ok_or_else(|| Error(format!("there is no field {json}")))
    }

    fn expression(&self, json: &Json) -> Result<Expression> {
        let value = &json["value"];
        match json["type"].as_str() {
            Some("hexstr") => hex(value).map(Expression::Constant),
            Some("bool") => Ok(Expression::Constant(u128::from(value.as_bool().unwrap_or(false)))),
            Some("field") => self.field(value).map(Expression::Field),
            Some("runtime_data" | "local") => Ok(Expression::Parameter(value.as_u64().unwrap_or(0) as usize)),
            Some("expression") if value.get("op").is_none() => self.expression(value),
            Some("expression") => self.operation(value),
            _ => wrong(format_args!("operand {json}")),
        }
    }

    fn operation(&self, json: &Json) -> Result<Expression> {
        let op = json["op"].as_str().unwrap_or_default();
        if let Some(binary) = Binary::parse(op).filter(|_| !json["left"].is_null()) {
            let left = self.expression(&json["left"])?;
            let right = self.expression(&json["right"])?;
            return Ok(Expression::Binary(binary, Box::new([left, right])));
        }
        let unary = match op {
            "not" => Unary::Not,
            "~" => Unary::Complement,
            "b2d" | "d2b" => Unary::Same,
            "?" => {
                return Ok(Expression::Choice(Box::new([
                    self.expression(&json["cond"])?,
                    self.expression(&json["left"])?,
                    self.expression(&json["right"])?,
                ])));
            }
            _ => return wrong(format_args!("operator `{op}`")),
        };
        Ok(Expression::Unary(
            unary,
            Box::new(self.expression(&json["right"])?),
        ))
    }

    fn calculation(&self, json: &Json) -> Result<Calculation> {
        let algorithm = match json["algo"].as_str() {
            Some("csum16") => Algorithm::Csum16,
            Some("crc32") => Algorithm::Crc32,
            other => return wrong(format_args!("algorithm {other:?}")),
        };
        let input = list(json, "input")?
            .iter()
            .map(|json| match json["type"].as_str() {
                Some("field") => self.field(&json["value"]).map(Input::Field),
                Some("header") => self.header(&json["value"]).map(Input::Header),
                Some("hexstr") => Ok(Input::Constant(
                    hex(&json["value"])?,
                    number(json, "bitwidth")? as u32,
                )),
                _ => wrong(format_args!("input {json}")),
            })
            .collect::<Result<_>>()?;
        Ok(Calculation { algorithm, input })
    }

    fn checksum(&self, json: &Json) -> Result<Checksum> {
        let name = text_of(json, "calculation")?;
        let Some(&calculation) = self.calculations.get(&name) else {
            return wrong(format_args!("there is no calculation {name}"));
        };
        let condition = &json["if_cond"];
        Ok(Checksum {
            target: self.field(&json["target"])?,
            calculation,
            verify: json["verify"].as_bool().unwrap_or(false),
            update: json["update"].as_bool().unwrap_or(false),
            condition: if condition.is_null() {
                None
            } else {
                Some(self.expression(condition)?)
            },
        })
    }

    fn action(&self, json: &Json) -> Result<Action> {
        let widths = list(json, "runtime_data")?
            .iter()
            .map(|parameter| number(parameter, "bitwidth").map(|width| width as u32));
        Ok(Action {
            name: text_of(json, "name")?,
            parameters: widths.collect::<Result<_>>()?,
            primitives: list(json, "primitives")?
                .iter()
                .map(|json| self.primitive(json))
                .collect::<Result<_>>()?,
        })
    }

    fn primitive(&self, json: &Json) -> Result<Primitive> {
        let p = Parameters {
            names: self,
            list: list(json, "parameters")?,
        };
        Ok(match json["op"].as_str().unwrap_or_default() {
            "assign" => Primitive::Assign(p.field(0)?, p.value(1)?),
            "assign_VL" => Primitive::AssignVariable(p.field(0)?, p.field(1)?),
            "assign_header" => Primitive::AssignHeader(p.header(0)?, p.header(1)?),
            "add_header" => Primitive::SetValid(p.header(0)?, true),
            "remove_header" => Primitive::SetValid(p.header(0)?, false),
            "_jump" => Primitive::Jump(p.line(0)?),
            "_jump_if_zero" => Primitive::JumpIfZero(p.value(0)?, p.line(1)?),
            "register_read" => {
                Primitive::RegisterRead(p.field(0)?, p.named(1, &self.registers)?, p.value(2)?)
            }
            "register_write" => {
                Primitive::RegisterWrite(p.named(0, &self.registers)?, p.value(1)?, p.value(2)?)
            }
            "truncate" => Primitive::Truncate(p.value(0)?),
            "modify_field_with_hash_based_offset" => Primitive::Hash {
                target: p.field(0)?,
                base: p.value(1)?,
                calculation: p.named(2, &self.calculations)?,
                size: p.value(3)?,
            },
            "count" => Primitive::Count(p.named(0, &self.counters)?, p.value(1)?),
            "clone_ingress_pkt_to_egress" => Primitive::CloneIngress {
                session: p.value(0)?,
                fields: p.line(1)?,
            },
            "clone_egress_pkt_to_egress" => Primitive::CloneEgress {
                session: p.value(0)?,
                fields: p.line(1)?,
            },
            "recirculate" => Primitive::Recirculate(p.line(0)?),
            "mark_to_drop" => Primitive::MarkToDrop,
            op => return wrong(format_args!("primitive `{op}`")),
        })
    }

    fn pipeline(
        &self,
        json: &Json,
        name: &str,
        actions: &[Action],
        tables: &mut Vec<Table>,
    ) -> Result<Pipeline> {
        let pipelines = list(json, "pipelines")?;
        let Some(json) = pipelines.iter().find(|pipeline| pipeline["name"] == name) else {
            return wrong(format_args!("there is no pipeline {name}"));
        };
        let pipeline_tables = list(json, "tables")?;
        let conditionals = list(json, "conditionals")?;
        let all: Vec<&Json> = pipeline_tables.iter().chain(conditionals).collect();
        let mut nodes = Vec::new();
        for table in pipeline_tables {
            nodes.push(Node::Table(tables.len()));
            tables.push(self.table(table, actions, json, &all)?);
        }
        for conditional in conditionals {
            nodes.push(Node::If {
                condition: self.expression(&conditional["expression"])?,
                yes: position(all.iter().copied(), &conditional["true_next"]),
                no: position(all.iter().copied(), &conditional["false_next"]),
            });
        }
        Ok(Pipeline {
            first: position(all.iter().copied(), &json["init_table"]),
            nodes,
        })
    }

    /// Reads a table. `nodes` are the pipeline's tables and then its conditionals, in the order of `Pipeline::nodes`.
    fn table(&self, json: &Json, actions: &[Action], pipeline: &Json, nodes: &[&Json]) -> Result<Table> {
        let name = text_of(json, "name")?;
        if json["type"] != "simple"
            || !list(pipeline, "action_profiles")?.is_empty()
            || !json["direct_meters"].is_null()
        {
            return wrong(format_args!("table {name} has an action profile or a meter"));
        }
        let ids: Vec<usize> = list(json, "action_ids")?
            .iter()
            .filter_map(Json::as_u64)
            .map(|id| id as usize)
            .collect();
        if ids.iter().any(|id| *id >= actions.len()) {
            return wrong(format_args!("table {name} has actions that do not exist"));
        }
        let default = &json["default_entry"];
        let parameters = list(default, "action_data")?
            .iter()
            .map(hex)
            .collect::<Result<_>>()?;
        let next = &json["next_tables"];
        let next = if next.get("__HIT__").is_some() {
            Next::ByHit {
                hit: position(nodes.iter().copied(), &next["__HIT__"]),
                miss: position(nodes.iter().copied(), &next["__MISS__"]),
            }
        } else {
            Next::ByAction(
                ids.iter()
                    .map(|id| {
                        let name = &next[actions[*id].name.as_str()];
                        (*id, position(nodes.iter().copied(), name))
                    })
                    .collect(),
            )
        };
        let keys = list(json, "key")?
            .iter()
            .map(|json| self.key(json))
            .collect::<Result<_>>()?;
        let default = ActionCall {
            action: number(default, "action_id")?,
            parameters,
        };
        let entries = list(json, "entries")?
            .iter()
            .map(|entry| const_entry(&name, entry, &ids))
            .collect::<Result<_>>()?;
        Ok(Table {
            name,
            keys,
            actions: ids,
            default,
            size: number(json, "max_size")?,
            next,
            entries,
        })
    }

    /// Reads one field of a table's key.
    fn key(&self, json: &Json) -> Result<KeyField> {
        let field = self.field(&json["target"])?;
        let kind = match json["match_type"].as_str() {
            Some("exact") => MatchKind::Exact,
            Some("lpm") => MatchKind::Lpm,
            Some("ternary") => MatchKind::Ternary,
            Some("range") => MatchKind::Range,
            other => return wrong(format_args!("match kind {other:?}")),
        };
        Ok(KeyField {
            field,
            kind,
            width: self.width(field)?,
        })
    }

    /// Returns the width of a field in bits; fails for a field of variable length.
    fn width(&self, field: Field) -> Result<u32> {
        if field.field == VALID {
            return Ok(1);
        }
        let header_type = &self.types[&self.header_types[field.header]];
        self.widths[header_type.index][field.field]
            .ok_or_else(|| Error("a field of variable length cannot be a key".to_owned()))
    }

    /// Reads the parser's states, and the index of the first one.
    fn parser(&self, json: &Json) -> Result<(Vec<ParseState>, Option<usize>)> {
        let [parser] = list(json, "parsers")? else {
            return wrong("it has not one parser");
        };
        let states = list(parser, "parse_states")?;
        let parsed = states
            .iter()
            .map(|state| self.state(state, states))
            .collect::<Result<_>>()?;
        Ok((parsed, position(states, &parser["init_state"])))
    }

    fn state(&self, json: &Json, states: &[Json]) -> Result<ParseState> {
        let mut key = Vec::new();
        for part in list(json, "transition_key")? {
            let value = self.value(part)?;
            let width = match &value {
                Value::Expression(Expression::Field(field)) => self.width(*field)?,
                Value::LastOf(stack, field) => match self.stack_headers[*stack].first() {
                    Some(&header) => self.width(Field {
                        header,
                        field: *field,
                    })?,
                    None => 0,
                },
                Value::Expression(_) => return wrong(format_args!("key {part}")),
            };
            // BMv2 pads each part of the key to whole bytes.
            key.push((value, width.next_multiple_of(8)));
        }
        let mut transitions = Vec::new();
        for json in list(json, "transitions")? {
            let value = match json["type"].as_str() {
                Some("default") => None,
                Some("hexstr") => {
                    let mask = if json["mask"].is_null() {
                        u128::MAX
                    } else {
                        hex(&json["mask"])?
                    };
                    Some((hex(&json["value"])?, mask))
                }
                other => return wrong(format_args!("transition {other:?}")),
            };
            transitions.push(Transition {
                value,
                next: position(states, &json["next_state"]),
            });
        }
        Ok(ParseState {
            ops: list(json, "parser_ops")?
                .iter()
                .map(|op| self.parser_op(op))
                .collect::<Result<_>>()?,
            key,
            transitions,
        })
    }

    /// Reads an operand of the parser, which may be a field of the last extracted element of a stack.
    fn value(&self, json: &Json) -> Result<Value> {
        if json["type"] != "stack_field" {
            return self.expression(json).map(Value::Expression);
        }
        let stack = &json["value"][0];
        let field = json["value"][1].as_str().unwrap_or_default();
        let Some(&stack) = stack.as_str().and_then(|stack| self.stacks.get(stack)) else {
            return wrong(format_args!("there is no stack {stack}"));
        };
        let fields = self.stack_headers[stack]
            .first()
            .map(|header| &self.types[&self.header_types[*header]].fields);
        let field = fields.and_then(|fields| fields.get(field)).copied();
        field
            .map(|field| Value::LastOf(stack, field))
            .ok_or_else(|| Error(format!("there is no field {json}")))
    }

    fn parser_op(&self, json: &Json) -> Result<ParserOp> {
        let parameters = list(json, "parameters")?;
        let first = parameters.first().unwrap_or(&Json::Null);
        let second = parameters.get(1).unwrap_or(&Json::Null);
        match (json["op"].as_str().unwrap_or_default(), first["type"].as_str()) {
            ("extract", Some("regular")) => Ok(ParserOp::Extract(self.header(&first["value"])?)),
            ("extract", Some("stack")) => {
                let name = first["value"].as_str().unwrap_or_default();
                let stack = self.stacks.get(name).copied();
                stack
                    .map(ParserOp::ExtractNext)
                    .ok_or_else(|| Error(format!("there is no stack {name}")))
            }
            ("extract_VL", Some("regular")) => Ok(ParserOp::ExtractVariable(
                self.header(&first["value"])?,
                self.expression(second)?,
            )),
            ("set", Some("field")) if second["type"] == "lookahead" => {
                let lookahead = lookahead(&second["value"])?;
                Ok(ParserOp::SetLookahead(self.field(&first["value"])?, lookahead))
            }
            ("set", Some("field")) => Ok(ParserOp::Set(self.field(&first["value"])?, self.value(second)?)),
            (op, kind) => wrong(format_args!("parser operation `{op}` of {kind:?}")),
        }
    }

    fn deparser(&self, json: &Json) -> Result<Vec<usize>> {
        let [deparser] = list(json, "deparsers")? else {
            return wrong("it has not one deparser");
        };
        list(deparser, "order")?
            .iter()
            .map(|name| self.header(name))
            .collect()
    }

    fn field_lists(&self, json: &Json) -> Result<BTreeMap<u128, Vec<Field>>> {
        let mut lists = BTreeMap::new();
        for json in list(json, "field_lists")? {
            let fields = list(json, "elements")?
                .iter()
                .map(|element| self.field(&element["value"]))
                .collect::<Result<_>>()?;
            lists.insert(number(json, "id")? as u128, fields);
        }
        Ok(lists)
    }

    fn standard(&self) -> Result<Standard> {
        Ok(Standard {
            ingress_port: self.metadata("ingress_port")?,
            egress_spec: self.metadata("egress_spec")?,
            egress_port: self.metadata("egress_port")?,
            mcast_grp: self.metadata("mcast_grp")?,
            egress_rid: self.metadata("egress_rid")?,
            instance_type: self.metadata("instance_type")?,
            packet_length: self.metadata("packet_length")?,
            enq_qdepth: self.metadata("enq_qdepth")?,
            deq_qdepth: self.metadata("deq_qdepth")?,
            deq_timedelta: self.metadata("deq_timedelta")?,
            ingress_ts: self.metadata("ingress_global_timestamp")?,
            egress_ts: self.metadata("egress_global_timestamp")?,
            checksum_error: self.metadata("checksum_error")?,
            parser_error: self.metadata("parser_error")?,
        })
    }

    fn metadata(&self, name: &str) -> Result<Field> {
        self.field(&serde_json::json!(["standard_metadata", name]))
    }
}

/// The parameters of an action's primitive, read by position.
struct Parameters<'a> {
    names: &'a Names,
    list: &'a [Json],
}

impl Parameters<'_> {
    fn get(&self, index: usize) -> &Json {
        self.list.get(index).unwrap_or(&Json::Null)
    }

    fn value(&self, index: usize) -> Result<Expression> {
        self.names.expression(self.get(index))
    }

    fn field(&self, index: usize) -> Result<Field> {
        self.names.field(&self.get(index)["value"])
    }

    fn header(&self, index: usize) -> Result<usize> {
        self.names.header(&self.get(index)["value"])
    }

    /// Returns the index of the register, counter or calculation that a parameter names.
    fn named(&self, index: usize, names: &BTreeMap<String, usize>) -> Result<usize> {
        let name = self.get(index)["value"].as_str().unwrap_or_default();
        names
            .get(name)
            .copied()
            .ok_or_else(|| Error(format!("there is no `{name}`")))
    }

    /// Returns a jump target (the index of a primitive in the action) or the number of a field list.
    fn line(&self, index: usize) -> Result<usize> {
        hex(&self.get(index)["value"]).map(|line| usize::try_from(line).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lookahead_without_valid_bounds_is_rejected() {
        let mut names = Names::default();
        let types = json!({"header_types": [{"name": "h_t", "fields": [["f", 8, false]]}]});
        header_types(&types, &mut names).unwrap();
        let instances = json!({"headers": [{"name": "h", "header_type": "h_t"}]});
        headers(&instances, &mut names).unwrap();
        let operation = |bounds: Json| {
            json!({"op": "set", "parameters": [
                {"type": "field", "value": ["h", "f"]},
                {"type": "lookahead", "value": bounds},
            ]})
        };
        assert!(names.parser_op(&operation(json!([16, 8]))).is_ok());
        for bounds in [json!([null, 8]), json!([16, 0]), json!([u32::MAX, u32::MAX])] {
            assert!(names.parser_op(&operation(bounds.clone())).is_err(), "{bounds}");
        }
    }
}
