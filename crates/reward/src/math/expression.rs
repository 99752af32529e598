//! The grammar of sums, products, powers and functions.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Pow;

use super::lexer::Token;
use super::limits::MAX_DIGITS;
use super::parser::Parser;
use super::tree::{Function, Node};
use super::vocabulary::{unit, unit_name};

impl Parser {
    /// Terms with signs between them.
    pub(super) fn sum(&mut self) -> Option<Node> {
        let mut terms = Vec::new();
        self.skip_spaces();
        if let Some(Token::Sign(sign @ ('±' | '∓'))) = self.peek() {
            let flipped = *sign == '∓';
            self.at += 1;
            let right = Box::new(self.product()?);
            terms.push(Node::PlusMinus { left: None, right, flipped });
        } else {
            terms.push(self.signed_product()?);
        }
        loop {
            self.skip_spaces();
            let sign = match self.peek() {
                Some(Token::Sign(sign @ ('+' | '-' | '±' | '∓'))) => *sign,
                _ => break,
            };
            self.at += 1;
            match sign {
                '+' => terms.push(self.signed_product()?),
                '-' => terms.push(Node::Negative(Box::new(self.signed_product()?))),
                _ => {
                    let right = Box::new(self.product()?);
                    let left = Some(Box::new(sum_of(terms)?));
                    terms = vec![Node::PlusMinus { left, right, flipped: sign == '∓' }];
                }
            }
        }
        sum_of(terms)
    }

    /// A product behind any number of signs.
    fn signed_product(&mut self) -> Option<Node> {
        let mut negative = false;
        loop {
            if self.eat('-') {
                negative = !negative;
            } else if !self.eat('+') {
                break;
            }
        }
        let product = self.product()?;
        Some(if negative { Node::Negative(Box::new(product)) } else { product })
    }

    pub(super) fn product(&mut self) -> Option<Node> {
        let mut factors = vec![self.power()?];
        loop {
            let spaced = matches!(self.peek(), Some(Token::Space));
            self.skip_spaces();
            match self.peek() {
                Some(Token::Sign('*')) => {
                    self.at += 1;
                    let factor = self.signed_factor()?;
                    factors.push(factor);
                }
                Some(Token::Sign('/')) => {
                    self.at += 1;
                    let below = self.signed_factor()?;
                    let above = product_of(factors)?;
                    factors = vec![Node::Quotient(Box::new(above), Box::new(below))];
                }
                Some(Token::Text(_)) => match self.trailing_unit() {
                    Some(unit) => {
                        let value = Box::new(product_of(factors)?);
                        return Some(Node::Quantity(value, unit));
                    }
                    None => factors.push(self.power()?),
                },
                Some(Token::Letter(_)) if factors.iter().all(is_numeric) => match self.trailing_letters() {
                    Some(unit) => {
                        let value = Box::new(product_of(factors)?);
                        return Some(Node::Quantity(value, unit));
                    }
                    None => factors.push(self.power()?),
                },
                Some(Token::Number(_)) if !factors.last().is_some_and(is_literal) => {
                    factors.push(self.power()?)
                }
                Some(Token::Number(_)) => {
                    // `3 1/2`; any other two numbers side by side mean nothing.
                    let whole = factors.pop().filter(|_| spaced && factors.is_empty())?;
                    let fraction = self.plain_fraction()?;
                    factors.push(mixed(whole, fraction)?);
                }
                Some(token) if starts_factor(token, self.bars, self.bar_separates) => {
                    let is_fraction = matches!(token, Token::Command(name) if is_fraction_name(name));
                    let before = factors.len();
                    let factor = self.power()?;
                    match (is_fraction && before == 1, &factor) {
                        (true, Node::Quotient(..)) if mixed(factors[0].clone(), factor.clone()).is_some() => {
                            factors = vec![mixed(factors.pop()?, factor)?];
                        }
                        _ => factors.push(factor),
                    }
                }
                Some(Token::Sign('{')) if self.tokens.get(self.at + 1) == Some(&Token::Sign('}')) => {
                    self.at += 2
                }
                Some(Token::Command(name)) if name == "pmod" || name == "bmod" || name == "mod" => {
                    self.at += 1;
                    let modulus = self.power()?.key();
                    return Some(Node::Quantity(Box::new(product_of(factors)?), format!("mod {modulus}")));
                }
                _ => break,
            }
        }
        product_of(factors)
    }

    fn signed_factor(&mut self) -> Option<Node> {
        if self.eat('-') {
            return Some(Node::Negative(Box::new(self.power()?)));
        }
        self.eat('+');
        self.power()
    }

    /// The unit that ends an item here, in the dress of text; the position is kept if there is none.
    fn trailing_unit(&mut self) -> Option<String> {
        let start = self.at;
        let mut words = Vec::new();
        loop {
            self.skip_spaces();
            match self.peek() {
                Some(Token::Text(text)) => words.push(text.clone()),
                Some(Token::Sign('/')) if !words.is_empty() => words.push("/".into()),
                Some(Token::Sign('^')) if !words.is_empty() => {
                    let power = match self.tokens.get(self.at + 1..) {
                        Some([Token::Number(power), ..]) => Some((power.clone(), 2)),
                        Some([Token::Sign('{'), Token::Number(power), Token::Sign('}'), ..]) => {
                            Some((power.clone(), 4))
                        }
                        _ => None,
                    };
                    let Some((power, length)) = power else { break };
                    words.push(power);
                    self.at += length;
                    continue;
                }
                _ => break,
            }
            self.at += 1;
        }
        if !words.is_empty() && self.at_end_of_item() {
            return Some(unit_name(&words.join(" ")));
        }
        self.at = start;
        None
    }

    /// The unit that ends an item here, written as plain letters; the position is kept if there is none.
    fn trailing_letters(&mut self) -> Option<String> {
        let start = self.at;
        let mut text = String::new();
        loop {
            match self.peek() {
                Some(Token::Letter(letter)) => text.push(*letter),
                Some(Token::Space) => text.push(' '),
                Some(Token::Sign('^')) if !text.is_empty() => text.push('^'),
                Some(Token::Number(power)) if text.ends_with('^') => text.push_str(power),
                _ => break,
            }
            self.at += 1;
        }
        let is_unit = |word: &str| {
            let word = word.split('^').next().unwrap_or(word);
            word.len() > 1 && (unit(word).is_some() || matches!(word, "square" | "cubic" | "sq"))
        };
        if self.at_end_of_item() && text.split_whitespace().next().is_some_and(is_unit) {
            return Some(unit_name(&text));
        }
        self.at = start;
        None
    }

    fn at_end_of_item(&mut self) -> bool {
        self.skip_spaces();
        match self.peek() {
            None | Some(Token::Row) => true,
            Some(Token::Sign(sign)) => {
                matches!(
                    sign,
                    ',' | ';'
                        | '.'
                        | ')'
                        | ']'
                        | '}'
                        | '⦄'
                        | '⟩'
                        | '&'
                        | '='
                        | '<'
                        | '>'
                        | '≤'
                        | '≥'
                        | '≠'
                        | '≈'
                )
            }
            Some(Token::Command(name)) => name == "and" || name == "or" || name.starts_with("end:"),
            _ => false,
        }
    }

    /// `1/2` of digits.
    fn plain_fraction(&mut self) -> Option<Node> {
        let above = self.plain_integer()?;
        self.eat('/').then_some(())?;
        let below = self.plain_integer()?;
        Some(Node::Quotient(Box::new(above), Box::new(below)))
    }

    fn plain_integer(&mut self) -> Option<Node> {
        self.skip_spaces();
        let Some(Token::Number(digits)) = self.peek() else { return None };
        let node = number(digits)?;
        self.at += 1;
        is_integer(&node).then_some(node)
    }

    /// A factor with what stands behind it: `!`, `^`, `_`, `%`, `°`, primes.
    pub(super) fn power(&mut self) -> Option<Node> {
        let mut node = self.deeper(Self::factor)?;
        loop {
            match self.peek() {
                Some(Token::Sign('!')) => {
                    self.at += 1;
                    node = Node::Function(Function::Factorial, vec![node]);
                }
                Some(Token::Sign('^')) => {
                    self.at += 1;
                    self.skip_spaces();
                    node = self.raised(node)?;
                }
                Some(Token::Sign('%')) => {
                    self.at += 1;
                    node = Node::Percent(Box::new(node));
                }
                Some(Token::Sign('°')) => {
                    self.at += 1;
                    node = Node::Degrees(Box::new(node));
                }
                Some(Token::Sign('_')) if is_integer(&node) => {
                    // `(1101)_2`
                    let Node::Number { value, .. } = &node else { return None };
                    let digits = value.to_string();
                    return self.base().map(|base| Node::Based { digits, base });
                }
                Some(Token::Space) => {
                    // `28 \%`, `60 \degree`, `x ^ 2`.
                    let next =
                        self.tokens[self.at..].iter().position(|token| *token != Token::Space).unwrap_or(0);
                    match self.tokens.get(self.at + next) {
                        Some(Token::Sign('%' | '°' | '^')) => self.at += next,
                        _ => return Some(node),
                    }
                }
                _ => return Some(node),
            }
        }
    }

    /// What follows `^`.
    fn raised(&mut self, base: Node) -> Option<Node> {
        let circle = |token: Option<&Token>| matches!(token, Some(Token::Sign('∘' | '°')));
        if circle(self.peek()) {
            self.at += 1;
            return Some(Node::Degrees(Box::new(base)));
        }
        if self.peek() == Some(&Token::Sign('{')) {
            let inner = self.tokens[self.at + 1..].iter().position(|token| *token != Token::Space)?;
            if circle(self.tokens.get(self.at + 1 + inner)) {
                self.at += inner + 2;
                return self.eat('}').then(|| Node::Degrees(Box::new(base)));
            }
        }
        let exponent = self.exponent()?;
        Some(Node::Power(Box::new(base), Box::new(exponent)))
    }

    pub(super) fn exponent(&mut self) -> Option<Node> {
        self.skip_spaces();
        if self.eat('-') {
            return Some(Node::Negative(Box::new(self.exponent_atom()?)));
        }
        self.eat('+');
        self.exponent_atom()
    }

    fn exponent_atom(&mut self) -> Option<Node> {
        self.skip_spaces();
        if let Some(Token::Sign('\'')) = self.peek() {
            self.at += 1;
            return Some(Node::symbol("'"));
        }
        self.deeper(Self::factor)
    }

    /// The argument of a command: a group, or one digit or letter.
    pub(super) fn argument(&mut self) -> Option<Node> {
        self.skip_spaces();
        if let Some(Token::Number(digits)) = self.peek() {
            let digits = digits.clone();
            if digits.len() > 1 && digits.bytes().all(|b| b.is_ascii_digit()) {
                self.tokens[self.at] = Token::Number(digits[1..].to_owned());
                return number(&digits[..1]);
            }
        }
        self.deeper(Self::factor)
    }
}

fn starts_factor(token: &Token, bars: usize, bar_separates: bool) -> bool {
    match token {
        Token::Letter(_) | Token::Repeating(_) => true,
        Token::Command(name) => {
            !(matches!(name.as_str(), "and" | "or" | "pmod" | "choose") || name.starts_with("end:"))
        }
        Token::Sign('(' | '⌊' | '⌈' | '⦃') => true,
        Token::Sign('|') => bars == 0 && !bar_separates,
        _ => false,
    }
}

pub(super) fn is_fraction_name(name: &str) -> bool {
    matches!(name, "frac" | "dfrac" | "tfrac" | "cfrac" | "nicefrac" | "sfrac")
}

pub(super) fn is_numeric(node: &Node) -> bool {
    !node.any(&|part| matches!(part, Node::Symbol(_) | Node::Apply(..)))
}

/// Ends in digits, so that more of them would read as one number.
fn is_literal(node: &Node) -> bool {
    match node {
        Node::Number { .. } | Node::Based { .. } => true,
        Node::Power(_, exponent) => is_literal(exponent),
        Node::Negative(inner) => is_literal(inner),
        _ => false,
    }
}

fn is_integer(node: &Node) -> bool {
    matches!(node, Node::Number { value, decimal: false } if value.is_integer())
}

/// A whole number with a fraction of whole numbers below one.
fn mixed(whole: Node, fraction: Node) -> Option<Node> {
    let Node::Quotient(above, below) = &fraction else { return None };
    let proper = match (above.as_ref(), below.as_ref()) {
        (Node::Number { value: above, .. }, Node::Number { value: below, .. }) => above < below,
        _ => false,
    };
    let written_whole = is_integer(&whole) && is_integer(above) && is_integer(below);
    (proper && written_whole).then(|| Node::Sum(vec![whole, fraction]))
}

fn sum_of(mut terms: Vec<Node>) -> Option<Node> {
    if terms.len() == 1 { terms.pop() } else { Some(Node::Sum(terms)) }
}

pub(super) fn product_of(mut factors: Vec<Node>) -> Option<Node> {
    if factors.len() == 1 { factors.pop() } else { Some(Node::Product(factors)) }
}

/// The number that digits with at most one point write.
pub(super) fn number(digits: &str) -> Option<Node> {
    if digits.len() > MAX_DIGITS {
        return None;
    }
    let (whole, places) = digits.split_once('.').unwrap_or((digits, ""));
    let mantissa: BigInt = format!("0{whole}{places}").parse().ok()?;
    let value = BigRational::new(mantissa, BigInt::from(10).pow(places.len()));
    Some(Node::Number { value, decimal: digits.contains('.') })
}
