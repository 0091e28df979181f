//! The lexer of the rule language: text to tokens with their positions.

use super::error::Fault;
use super::names;
use super::term::Comparison;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token<'a> {
    Name(&'a str),
    Number(Number),
    Comparison(Comparison),
    Open,
    Close,
    Comma,
    At,
    And,
    Or,
    Not,
    End,
}

/// A number: `digits / 10^decimals`, times the factor of its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    pub digits: u64,
    pub decimals: u32,
    pub unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    None,
    Time(u64),
    /// A decimal factor: k, M or G.
    Factor(u64),
    Percent,
}

/// A token at bytes `start..start + len` of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpannedToken<'a> {
    pub token: Token<'a>,
    pub start: usize,
    pub len: usize,
}

pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next token; at the end of the text, [`Token::End`].
    pub(crate) fn next(&mut self) -> Result<SpannedToken<'a>, Fault> {
        self.at += self.rest().len() - self.rest().trim_start().len();
        let start = self.at;
        let token = match self.rest().chars().next() {
            None => Token::End,
            Some('0'..='9') => self.number()?,
            Some('a'..='z' | 'A'..='Z' | '_') => self.name(),
            Some(_) => self.symbol()?,
        };
        Ok(SpannedToken {
            token,
            start,
            len: self.at - start,
        })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Consumes bytes while `wanted` accepts them; they must be ASCII.
    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.bytes().position(|byte| !wanted(byte)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn name(&mut self) -> Token<'a> {
        match self.take_while(is_word) {
            "and" => Token::And,
            "or" => Token::Or,
            "not" => Token::Not,
            name => Token::Name(name),
        }
    }

    /// Consumes an operator or a punctuation mark. For common symbols of other languages, the error names the right one.
    fn symbol(&mut self) -> Result<Token<'a>, Fault> {
        // Longer symbols come first, so that `<=` is not read as `<`.
        const SYMBOLS: [(&str, Token<'static>); 10] = [
            ("<=", Token::Comparison(Comparison::AtMost)),
            (">=", Token::Comparison(Comparison::AtLeast)),
            ("==", Token::Comparison(Comparison::Equal)),
            ("!=", Token::Comparison(Comparison::Unequal)),
            ("<", Token::Comparison(Comparison::Less)),
            (">", Token::Comparison(Comparison::Greater)),
            ("(", Token::Open),
            (")", Token::Close),
            (",", Token::Comma),
            ("@", Token::At),
        ];
        const INSTEAD: [(&str, &str); 9] = [
            ("=", "to compare, write `==`"),
            ("&&", "write `and`"),
            ("&", "write `and`"),
            ("||", "write `or`"),
            ("|", "write `or`"),
            ("!", "write `not`, or `!=` to compare"),
            ("≥", "write `>=`"),
            ("≤", "write `<=`"),
            ("-", "values are never negative"),
        ];
        let rest = self.rest();
        if let Some((symbol, token)) = SYMBOLS.into_iter().find(|(symbol, _)| rest.starts_with(symbol)) {
            self.at += symbol.len();
            return Ok(token);
        }
        if let Some((symbol, advice)) = INSTEAD.into_iter().find(|(symbol, _)| rest.starts_with(symbol)) {
            return Err(Fault::new(
                self.at,
                symbol.len(),
                format!("`{symbol}` is not used here: {advice}"),
            ));
        }
        let character = rest.chars().next().unwrap_or(' ');
        Err(Fault::new(
            self.at,
            character.len_utf8(),
            format!("{character:?} does not belong in a rule"),
        ))
    }

    fn number(&mut self) -> Result<Token<'a>, Fault> {
        let start = self.at;
        let (digits, decimals) = if self.rest().starts_with("0x") {
            self.hex(start)?
        } else {
            self.decimal(start)?
        };
        let unit = self.unit()?;
        Ok(Token::Number(Number {
            digits,
            decimals,
            unit,
        }))
    }

    /// Consumes a hexadecimal number that begins at `start`. Returns its value, and 0 decimals.
    fn hex(&mut self, start: usize) -> Result<(u64, u32), Fault> {
        self.at += "0x".len();
        let digits = self.take_while(|byte| byte.is_ascii_hexdigit() || byte == b'_');
        let value = u64::from_str_radix(&digits.replace('_', ""), 16);
        value.map(|value| (value, 0)).map_err(|_| self.bad_number(start))
    }

    fn digits(&mut self) -> String {
        self.take_while(|byte| byte.is_ascii_digit() || byte == b'_')
            .replace('_', "")
    }

    /// Consumes a decimal number that begins at `start`. Returns all digits as one number, and how many of them are
    /// decimals.
    fn decimal(&mut self, start: usize) -> Result<(u64, u32), Fault> {
        let mut digits = self.digits();
        let mut decimals = 0;
        if self.rest().starts_with('.') {
            self.at += 1;
            let fraction = self.digits();
            if fraction.is_empty() {
                return Err(Fault::new(
                    start,
                    self.at - start,
                    "digits are missing after the point".into(),
                ));
            }
            let fraction = fraction.trim_end_matches('0');
            decimals = fraction.len() as u32;
            digits.push_str(fraction);
        }
        // With more than 18 decimals, 10^decimals could exceed 64 bits.
        let value = digits.parse().map_err(|_| self.bad_number(start))?;
        if decimals > 18 {
            Err(self.bad_number(start))
        } else {
            Ok((value, decimals))
        }
    }

    fn bad_number(&self, start: usize) -> Fault {
        let written = &self.text[start..self.at];
        Fault::new(
            start,
            written.len(),
            format!("`{written}` is not a number of at most 64 bits"),
        )
    }

    /// Consumes the unit directly after a number, or after blanks. Leaves a word after blanks that is not a unit to the
    /// parser.
    fn unit(&mut self) -> Result<Unit, Fault> {
        const UNITS: [(&str, Unit); 10] = [
            ("ns", Unit::Time(1)),
            ("us", Unit::Time(1_000)),
            // The micro sign and the Greek letter mu look alike, and keyboards produce either.
            ("\u{b5}s", Unit::Time(1_000)),
            ("\u{3bc}s", Unit::Time(1_000)),
            ("ms", Unit::Time(1_000_000)),
            ("s", Unit::Time(1_000_000_000)),
            ("k", Unit::Factor(1_000)),
            ("M", Unit::Factor(1_000_000)),
            ("G", Unit::Factor(1_000_000_000)),
            ("%", Unit::Percent),
        ];
        let rest = self.rest();
        let blanks = rest.len() - rest.trim_start().len();
        let after = &rest[blanks..];
        let word_len = after
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(after.len())
            .max(usize::from(after.starts_with('%')));
        let word = &after[..word_len];
        if let Some((_, unit)) = UNITS.into_iter().find(|(name, _)| *name == word) {
            self.at += blanks + word_len;
            return Ok(unit);
        }
        if word.is_empty() || blanks > 0 {
            return Ok(Unit::None);
        }
        let message = match names::nearest(word, UNITS.iter().map(|(name, _)| *name)) {
            Some(unit) => format!("`{word}` is not a unit: did you mean `{unit}`?"),
            None => format!("`{word}` is not a unit: use ns, us, ms, s, k, M, G or %"),
        };
        Err(Fault::new(self.at, word_len, message))
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
