//! Reading JSON as Python does: integers of any size, and `NaN` and `Infinity`.

use num_bigint::BigInt;

use super::value::Value;

/// Deeper nesting is not read, so that no input overflows the stack.
const MAX_DEPTH: usize = 512;

/// Longer decimal integers are not read: that takes time quadratic in their length.
const MAX_DIGITS: usize = 20_000;

/// Reads one JSON text; `None` if it is none, or beyond the limits above. Objects become dicts.
pub(crate) fn parse_json(text: &str) -> Option<Value> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.skip_space();
    (reader.at == text.len()).then_some(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Moves past `text` if it comes next.
    fn eat(&mut self, text: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(text.as_bytes());
        if found {
            self.at += text.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.skip_space();
        const WORDS: [(&str, Value); 6] = [
            ("null", Value::None),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ];
        match self.peek()? {
            b'[' => self.list(depth),
            b'{' => self.object(depth),
            b'"' => self.string().map(Value::Str),
            _ => match WORDS.into_iter().find(|(word, _)| self.eat(word)) {
                Some((_, value)) => Some(value),
                None => self.number(),
            },
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.eat("]") {
            return Some(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.eat("]") {
                return Some(Value::List(items));
            }
            if !self.eat(",") {
                return None;
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut entries = Vec::new();
        self.skip_space();
        if self.eat("}") {
            return Some(Value::Dict(entries));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return None;
            }
            let key = Value::Str(self.string()?);
            self.skip_space();
            if !self.eat(":") {
                return None;
            }
            entries.push((key, self.value(depth + 1)?));
            self.skip_space();
            if self.eat("}") {
                return Some(Value::Dict(entries));
            }
            if !self.eat(",") {
                return None;
            }
        }
    }

    /// A string; one that is no Unicode, with half of a surrogate pair, is refused.
    fn string(&mut self) -> Option<String> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        serde_json::from_str(self.text.get(start..self.at)?).ok()
    }

    fn number(&mut self) -> Option<Value> {
        let rest = &self.text[self.at..];
        let length =
            rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        let literal = &rest[..length];
        self.at += length;
        let digits = literal.strip_prefix('-').unwrap_or(literal);
        if !digits.starts_with(|c: char| c.is_ascii_digit()) || literal.len() > MAX_DIGITS {
            return None;
        }
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return literal.parse::<BigInt>().ok().map(Value::Int);
        }
        literal.parse::<f64>().ok().map(Value::Float)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_of_any_size_stay_exact_and_floats_stay_floats() {
        let big = "123456789012345678901234567890";
        assert_eq!(parse_json(big), Some(Value::Int(big.parse().unwrap())));
        assert_eq!(parse_json("1.0"), Some(Value::Float(1.0)));
        assert_eq!(parse_json("-1e3"), Some(Value::Float(-1000.0)));
        assert_eq!(parse_json("-Infinity"), Some(Value::Float(f64::NEG_INFINITY)));
        assert!(matches!(parse_json("NaN"), Some(Value::Float(float)) if float.is_nan()));
    }

    #[test]
    fn strings_hold_escapes_and_pairs_of_surrogates_but_no_half() {
        assert_eq!(parse_json(r#""a\"\u00e9\ud83d\ude00""#), Some(Value::Str("a\"é😀".into())));
        assert_eq!(parse_json(r#""\ud83d""#), None);
        assert_eq!(parse_json("\"a"), None);
        assert_eq!(parse_json("\"a\\"), None);
    }

    #[test]
    fn broken_texts_are_refused() {
        for text in [
            "",
            " ",
            "[1,]",
            "[1 2]",
            "{1: 2}",
            r#"{"a" 1}"#,
            "1 2",
            "tru",
            "+1",
            ".5",
            "--1",
            "1.2.3",
            "'a'",
            "[",
            "{",
        ] {
            assert_eq!(parse_json(text), None, "{text}");
        }
        assert_eq!(parse_json(&"9".repeat(MAX_DIGITS + 1)), None);
    }

    #[test]
    fn a_hundred_thousand_open_brackets_overflow_no_stack() {
        assert_eq!(parse_json(&"[".repeat(100_000)), None);
        assert_eq!(parse_json(&r#"{"t":"#.repeat(100_000)), None);
        let deep = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(parse_json(&deep).is_some());
    }

    proptest! {
        #[test]
        fn what_serde_reads_is_read_alike(text in r#"[\[\]{},:"a-c0-9.\-e ]{0,24}"#) {
            let theirs: Option<serde_json::Value> = serde_json::from_str(&text).ok();
            if let Some(theirs) = theirs {
                prop_assert!(parse_json(&text).is_some(), "{theirs}");
            }
        }
    }
}
