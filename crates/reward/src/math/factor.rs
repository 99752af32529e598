//! The grammar of single things: names, functions, groups, series and matrices.

use super::expression::{is_fraction_name, is_numeric, number, product_of};
use super::lexer::Token;
use super::parser::Parser;
use super::tree::{Constant, Function, Joint, Node};
use super::vocabulary::{function, inverse};

impl Parser {
    /// One thing that can stand before `^`.
    pub(super) fn factor(&mut self) -> Option<Node> {
        self.skip_spaces();
        let token = self.peek()?.clone();
        match token {
            Token::Number(digits) => {
                self.at += 1;
                if let Some(base) = self.base() {
                    return Some(Node::Based { digits, base });
                }
                number(&digits)
            }
            Token::Repeating(value) => {
                self.at += 1;
                Some(Node::Number { value, decimal: false })
            }
            Token::Letter(letter) => {
                self.at += 1;
                self.named(letter.to_string())
            }
            Token::Text(text) => {
                let mut words = text;
                self.at += 1;
                while let Some(Token::Text(more)) = self.peek() {
                    words = format!("{words} {more}");
                    self.at += 1;
                }
                let name = self.subscripted(words);
                Some(Node::Symbol(name))
            }
            Token::Command(name) => {
                self.at += 1;
                self.command(&name)
            }
            Token::Sign(sign) => {
                self.at += 1;
                self.opened(sign)
            }
            Token::Space | Token::Row => None,
        }
    }

    fn opened(&mut self, sign: char) -> Option<Node> {
        match sign {
            '(' | '[' => self.brackets(sign),
            '{' => {
                let node = self.bracketed(Self::list)?;
                self.eat('}').then_some(node)
            }
            '⦃' => self.set(),
            '⟨' => {
                let (items, _) = self.bracketed(Self::items)?;
                self.eat('⟩').then_some(Node::Tuple(items))
            }
            '|' => {
                self.bars += 1;
                let inner = self.deeper(Self::sum);
                self.bars -= 1;
                let inner = inner?;
                self.eat('|').then(|| Node::Function(Function::Abs, vec![inner]))
            }
            '‖' => {
                let inner = self.sum()?;
                self.eat('‖').then(|| Node::Apply("norm".into(), vec![inner]))
            }
            '⌊' => {
                let inner = self.bracketed(Self::sum)?;
                self.eat('⌋').then(|| Node::Function(Function::Floor, vec![inner]))
            }
            '⌈' => {
                let inner = self.bracketed(Self::sum)?;
                self.eat('⌉').then(|| Node::Function(Function::Ceiling, vec![inner]))
            }
            _ => None,
        }
    }

    /// The base that a subscript gives to digits.
    pub(super) fn base(&mut self) -> Option<String> {
        let start = self.at;
        if !matches!(self.peek(), Some(Token::Sign('_'))) {
            return None;
        }
        self.at += 1;
        let found = self.raw_argument();
        if found.as_ref().is_none_or(String::is_empty) {
            self.at = start;
            return None;
        }
        let written = found?;
        let words =
            ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
        let lower = written.to_ascii_lowercase();
        Some(words.iter().position(|word| *word == lower).map_or(written, |at| (at + 2).to_string()))
    }

    /// The text of a subscript: a group or one token.
    fn raw_argument(&mut self) -> Option<String> {
        self.skip_spaces();
        if self.peek() != Some(&Token::Sign('{')) {
            let text = token_text(self.peek()?);
            self.at += 1;
            return Some(text);
        }
        let mut text = String::new();
        let mut depth = 0;
        while let Some(token) = self.peek() {
            match token {
                Token::Sign('{') => depth += 1,
                Token::Sign('}') => depth -= 1,
                other => text.push_str(&token_text(other)),
            }
            self.at += 1;
            if depth == 0 {
                return Some(text);
            }
        }
        None
    }

    /// A name with its subscript and primes.
    fn subscripted(&mut self, mut name: String) -> String {
        loop {
            match self.peek() {
                Some(Token::Sign('\'')) => {
                    name.push('\'');
                    self.at += 1;
                }
                Some(Token::Sign('_')) => {
                    self.at += 1;
                    let Some(text) = self.raw_argument() else { return name };
                    name = format!("{name}_{text}");
                }
                _ => return name,
            }
        }
    }

    /// A variable, a constant or the value of an unknown function.
    fn named(&mut self, letter: String) -> Option<Node> {
        let name = self.subscripted(letter);
        let is_bound = self.bound.contains(&name);
        match name.as_str() {
            "e" if !is_bound => return Some(Node::Constant(Constant::E)),
            "i" if !is_bound => return Some(Node::Constant(Constant::I)),
            _ => {}
        }
        let head = name.trim_end_matches('\'').split('_').next().unwrap_or("");
        let is_function = matches!(head, "f" | "g" | "h");
        let may_apply = is_function || matches!(head, "F" | "G" | "P" | "Q" | "p" | "q");
        // Looked ahead and never gone back: going back would take time exponential in the depth.
        let simple = matches!(
            self.tokens.get(self.at + 1..),
            Some([Token::Letter(_) | Token::Number(_), Token::Sign(')'), ..])
        );
        if may_apply && (is_function || simple) && self.peek() == Some(&Token::Sign('(')) {
            self.at += 1;
            let (arguments, _) = self.bracketed(Self::items)?;
            return self.eat(')').then_some(Node::Apply(name, arguments));
        }
        Some(Node::Symbol(name))
    }

    fn command(&mut self, name: &str) -> Option<Node> {
        if is_fraction_name(name) {
            let above = self.argument()?;
            let below = self.argument()?;
            return Some(Node::Quotient(Box::new(above), Box::new(below)));
        }
        if let Some(matrix) = name.strip_prefix("begin:") {
            return self.environment(matrix);
        }
        match name {
            "sqrt" => {
                let mut degree = Node::integer(2);
                if self.eat('[') {
                    degree = self.bracketed(Self::sum)?;
                    self.eat(']').then_some(())?;
                }
                let inner = self.argument()?;
                Some(Node::Function(Function::Root, vec![inner, degree]))
            }
            "binom" | "dbinom" | "tbinom" => {
                let above = self.argument()?;
                let below = self.argument()?;
                Some(Node::Function(Function::Binomial, vec![above, below]))
            }
            "log" | "lg" => {
                let mut base = Node::integer(10);
                if matches!(self.peek(), Some(Token::Sign('_'))) {
                    self.at += 1;
                    base = self.argument()?;
                }
                let power = self.function_power()?;
                let inner = self.function_argument()?;
                Some(raise(Node::Function(Function::Log, vec![inner, base]), power))
            }
            "pi" => Some(Node::Constant(Constant::Pi)),
            "infty" => Some(Node::Constant(Constant::Infinity)),
            "imath" => Some(Node::Constant(Constant::I)),
            "reals" => Some(Node::Reals),
            "emptyset" | "varnothing" => Some(Node::Set(Vec::new())),
            "sum" | "prod" => self.series(name == "prod"),
            "overline" | "bar" | "vec" | "hat" | "tilde" | "overrightarrow" | "widehat" | "overarc" => {
                let inner = self.raw_argument()?;
                let name = self.subscripted(format!("{name} {inner}"));
                Some(Node::Symbol(name))
            }
            "and" | "or" => None,
            _ => match function(name) {
                Some(function) => {
                    let power = self.function_power()?;
                    let inverted = match &power {
                        Some(Node::Negative(one)) if **one == Node::integer(1) => inverse(function),
                        _ => None,
                    };
                    let inner = self.function_argument()?;
                    let arguments = match inner {
                        Node::Tuple(items) | Node::List { items, .. } => items,
                        inner => vec![inner],
                    };
                    Some(match inverted {
                        Some(inverse) => Node::Function(inverse, arguments),
                        None => raise(Node::Function(function, arguments), power),
                    })
                }
                None => {
                    let name = self.subscripted(format!("\\{name}"));
                    Some(Node::Symbol(name))
                }
            },
        }
    }

    /// `^2` between a function's name and its argument.
    fn function_power(&mut self) -> Option<Option<Node>> {
        if self.eat('^') { self.exponent().map(Some) } else { Some(None) }
    }

    /// A group, or the product up to the next sign or function.
    fn function_argument(&mut self) -> Option<Node> {
        self.skip_spaces();
        if matches!(self.peek(), Some(Token::Sign('(' | '{' | '['))) {
            return self.power();
        }
        let mut factors = vec![self.power()?];
        loop {
            self.skip_spaces();
            match self.peek() {
                Some(Token::Letter(_)) => {}
                Some(Token::Command(name))
                    if is_fraction_name(name) || matches!(name.as_str(), "pi" | "sqrt") => {}
                Some(Token::Command(name)) if function(name).is_none() && is_letter_command(name) => {}
                Some(Token::Sign('/'))
                    if matches!(self.tokens.get(self.at + 1), Some(Token::Number(_)))
                        && factors.iter().all(is_numeric) =>
                {
                    self.at += 1;
                    let below = self.power()?;
                    let above = product_of(factors)?;
                    factors = vec![Node::Quotient(Box::new(above), Box::new(below))];
                    continue;
                }
                _ => break,
            }
            factors.push(self.power()?);
        }
        product_of(factors)
    }

    fn series(&mut self, product: bool) -> Option<Node> {
        self.skip_spaces();
        let name = if product { "prod" } else { "sum" };
        let (mut below, mut above) = (None, None);
        for _ in 0..2 {
            self.skip_spaces();
            match self.peek() {
                Some(Token::Sign('_')) => {
                    self.at += 1;
                    self.skip_spaces();
                    self.bound.push("i".into());
                    below = Some(self.argument());
                    self.bound.pop();
                }
                Some(Token::Sign('^')) => {
                    self.at += 1;
                    above = Some(self.argument()?);
                }
                _ => break,
            }
        }
        let (index, from) = match below.flatten() {
            Some(Node::Relation { first, rest }) if rest.len() == 1 => match *first {
                Node::Symbol(index) => (index, rest.into_iter().next()?.1),
                other => return self.formal(name, vec![other]),
            },
            Some(other) => return self.formal(name, vec![other]),
            None => return self.formal(name, Vec::new()),
        };
        self.bound.push(index.clone());
        let body = self.product();
        self.bound.pop();
        let (body, to) = (Box::new(body?), Box::new(above?));
        Some(Node::Series { product, index, from: Box::new(from), to, body })
    }

    fn formal(&mut self, name: &str, mut parts: Vec<Node>) -> Option<Node> {
        parts.push(self.product()?);
        Some(Node::Apply(name.to_owned(), parts))
    }

    /// A matrix, a determinant, or lines of equations.
    fn environment(&mut self, kind: &str) -> Option<Node> {
        let is_matrix = kind.ends_with("matrix") || kind == "array";
        let rows = self.bracketed(|parser| {
            let mut rows = vec![Vec::new()];
            loop {
                parser.skip_spaces();
                match parser.peek()? {
                    Token::Command(name) if name.starts_with("end:") => {
                        parser.at += 1;
                        return Some(rows);
                    }
                    Token::Command(name) if name == "hline" => parser.at += 1,
                    Token::Row => {
                        parser.at += 1;
                        rows.push(Vec::new());
                    }
                    Token::Sign('&') => parser.at += 1,
                    Token::Sign('.' | ',') if !is_matrix => parser.at += 1,
                    _ => {
                        let cell = parser.cell(is_matrix)?;
                        rows.last_mut()?.push(cell);
                    }
                }
            }
        })?;
        let mut rows: Vec<Vec<Node>> = rows.into_iter().filter(|row| !row.is_empty()).collect();
        let width = rows.first()?.len();
        if !is_matrix {
            let items: Vec<Node> = rows.drain(..).flatten().collect();
            return Some(if items.len() == 1 {
                items.into_iter().next()?
            } else {
                Node::List { items, joint: Joint::And }
            });
        }
        if rows.iter().any(|row| row.len() != width) {
            return None;
        }
        let matrix = Node::Matrix(rows);
        Some(if kind == "vmatrix" { Node::Function(Function::Determinant, vec![matrix]) } else { matrix })
    }

    fn cell(&mut self, is_matrix: bool) -> Option<Node> {
        if is_matrix { self.sum() } else { self.list_item() }
    }

    fn list_item(&mut self) -> Option<Node> {
        let (items, joint) = self.items()?;
        match items.len() {
            0 => None,
            1 => items.into_iter().next(),
            _ => Some(Node::List { items, joint }),
        }
    }
}

/// A Greek letter or the like.
fn is_letter_command(name: &str) -> bool {
    matches!(
        name,
        "alpha"
            | "beta"
            | "gamma"
            | "delta"
            | "theta"
            | "phi"
            | "varphi"
            | "omega"
            | "lambda"
            | "mu"
            | "psi"
            | "rho"
    )
}

fn raise(node: Node, power: Option<Node>) -> Node {
    match power {
        Some(power) => Node::Power(Box::new(node), Box::new(power)),
        None => node,
    }
}

fn token_text(token: &Token) -> String {
    match token {
        Token::Number(digits) => digits.clone(),
        Token::Repeating(value) => value.to_string(),
        Token::Letter(letter) => letter.to_string(),
        Token::Command(name) => format!("\\{name}"),
        Token::Text(text) => text.clone(),
        Token::Sign(sign) => sign.to_string(),
        Token::Space | Token::Row => String::new(),
    }
}
