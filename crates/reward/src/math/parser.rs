//! From tokens to a syntax tree: lists, relations and sets. Sums, products and what they are made of are in
//! `expression`.

use super::lexer::{Token, tokens};
use super::limits::{MAX_ANSWER_BYTES, MAX_DEPTH, MAX_NODES};
use super::tree::{Comparator, Function, Joint, Node};

/// Reads an answer; `None` if it is no mathematics in the grammar, too long or too deep.
pub(crate) fn parse(text: &str) -> Option<Node> {
    if text.len() > MAX_ANSWER_BYTES {
        return None;
    }
    let tokens = tokens(text);
    if tokens.len() > MAX_NODES {
        return None;
    }
    let mut parser =
        Parser { tokens, at: 0, depth: 0, steps: 0, bars: 0, bar_separates: false, bound: Vec::new() };
    let node = parser.list()?;
    parser.skip_spaces();
    while matches!(parser.peek(), Some(Token::Sign('.' | ',' | ';') | Token::Space | Token::Row)) {
        parser.at += 1;
    }
    parser.peek().is_none().then_some(node)
}

/// Reads tokens from the front. Methods return `None` when the grammar does not allow what comes; the position is
/// then unspecified unless they say otherwise.
#[derive(Debug)]
pub(super) struct Parser {
    pub(super) tokens: Vec<Token>,
    pub(super) at: usize,
    pub(super) depth: usize,
    /// Nested things begun, which bounds what any going back could repeat.
    steps: usize,
    /// Open `|`.
    pub(super) bars: usize,
    /// Within the first item of a set `|` ends it.
    pub(super) bar_separates: bool,
    /// Indices of series around: there `i` is no imaginary unit.
    pub(super) bound: Vec<String>,
}

impl Parser {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    pub(super) fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(Token::Space)) {
            self.at += 1;
        }
    }

    /// The next token that is no space.
    pub(super) fn next_is(&mut self, token: &Token) -> bool {
        self.skip_spaces();
        self.peek() == Some(token)
    }

    pub(super) fn sign_is(&mut self, sign: char) -> bool {
        self.next_is(&Token::Sign(sign))
    }

    pub(super) fn eat(&mut self, sign: char) -> bool {
        let found = self.sign_is(sign);
        if found {
            self.at += 1;
        }
        found
    }

    /// Runs `inner` one level deeper; `None` beyond [`MAX_DEPTH`].
    pub(super) fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= MAX_DEPTH || self.steps >= 4 * MAX_NODES {
            return None;
        }
        self.steps += 1;
        self.depth += 1;
        let found = inner(self);
        self.depth -= 1;
        found
    }

    /// Runs `inner` within brackets, where bars and sets around mean nothing.
    pub(super) fn bracketed<T>(&mut self, inner: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let outer = (self.bars, self.bar_separates);
        (self.bars, self.bar_separates) = (0, false);
        let found = self.deeper(inner);
        (self.bars, self.bar_separates) = outer;
        found
    }

    /// Items between separators.
    pub(super) fn list(&mut self) -> Option<Node> {
        let (mut items, joint) = self.items()?;
        match items.len() {
            0 => None,
            1 => items.pop(),
            _ => Some(Node::List { items, joint }),
        }
    }

    /// Items between separators; "and" wins over "or", as it did not stand there for nothing.
    pub(super) fn items(&mut self) -> Option<(Vec<Node>, Joint)> {
        let mut items = Vec::new();
        let mut joint = Joint::Unsaid;
        loop {
            let mut separated = items.is_empty();
            loop {
                match self.peek() {
                    Some(Token::Space) => {}
                    Some(Token::Sign(',' | ';') | Token::Row) => separated = true,
                    Some(Token::Command(name)) if name == "and" || name == "or" => {
                        match (name == "and", joint) {
                            (true, _) => joint = Joint::And,
                            (false, Joint::Unsaid) => joint = Joint::Or,
                            (false, _) => {}
                        }
                        separated = true;
                    }
                    _ => break,
                }
                self.at += 1;
            }
            let ends = match self.peek() {
                None => true,
                Some(Token::Sign(')' | ']' | '}' | '⦄' | '⟩' | '∣' | '&')) => true,
                Some(Token::Sign('|')) => self.bars > 0 || (self.bar_separates && !items.is_empty()),
                Some(Token::Sign('.')) => true,
                Some(Token::Command(name)) => name.starts_with("end:"),
                _ => false,
            };
            if ends || !separated {
                return Some((items, joint));
            }
            items.push(self.relation()?);
        }
    }

    /// A chain of relations, or one side alone.
    fn relation(&mut self) -> Option<Node> {
        let mut first = self.ratio()?;
        let mut rest: Vec<(Comparator, Node)> = Vec::new();
        loop {
            self.skip_spaces();
            let comparator = match self.peek() {
                Some(Token::Sign(sign)) => match sign {
                    '=' | '≡' => Comparator::Equal,
                    '≠' => Comparator::NotEqual,
                    '<' => Comparator::Less,
                    '≤' => Comparator::LessEqual,
                    '>' => Comparator::Greater,
                    '≥' => Comparator::GreaterEqual,
                    '≈' => Comparator::Approximately,
                    '∈' => Comparator::In,
                    '⊂' | '∼' | '≅' | '∥' | '⟂' | '→' | '⇒' | '⇔' => Comparator::Other(*sign),
                    _ => break,
                },
                _ => break,
            };
            self.at += 1;
            let side = self.ratio()?;
            if comparator == Comparator::Other('⇒') {
                // What is concluded is the answer.
                (first, rest) = (side, Vec::new());
                continue;
            }
            rest.push((comparator, side));
        }
        if rest.is_empty() {
            return Some(first);
        }
        if let [(Comparator::In, _)] = rest.as_slice() {
            let (_, set) = rest.pop()?;
            return Some(Node::Member(Box::new(first), Box::new(set)));
        }
        Some(Node::Relation { first: Box::new(first), rest })
    }

    fn ratio(&mut self) -> Option<Node> {
        let first = self.union()?;
        let mut parts = vec![first];
        while self.sign_is(':') && !self.bar_separates {
            self.at += 1;
            parts.push(self.union()?);
        }
        if parts.len() == 1 { parts.pop() } else { Some(Node::Ratio(parts)) }
    }

    fn union(&mut self) -> Option<Node> {
        let mut node = self.sum()?;
        if self.next_is(&Token::Command("choose".into())) {
            self.at += 1;
            let below = self.sum()?;
            node = Node::Function(Function::Binomial, vec![node, below]);
        }
        loop {
            self.skip_spaces();
            let sign = match self.peek() {
                Some(Token::Sign(sign @ ('∪' | '∩' | '∖'))) => *sign,
                _ => return Some(node),
            };
            self.at += 1;
            let right = self.sum()?;
            node = match (sign, node) {
                ('∪', Node::Union(mut parts)) => {
                    parts.push(right);
                    Node::Union(parts)
                }
                ('∪', left) => Node::Union(vec![left, right]),
                ('∩', left) => Node::Intersection(vec![left, right]),
                (_, left) => Node::Difference(Box::new(left), Box::new(right)),
            };
        }
    }

    /// What `(` or `[` begins: a group, a tuple or an interval.
    pub(super) fn brackets(&mut self, open: char) -> Option<Node> {
        self.bracketed(|parser| {
            let (items, joint) = parser.items()?;
            parser.skip_spaces();
            let close = match parser.peek() {
                Some(Token::Sign(close @ (')' | ']'))) => *close,
                _ => return None,
            };
            parser.at += 1;
            group(open, close, items, joint)
        })
    }

    /// What `\{` begins, or `{` where it groups nothing.
    pub(super) fn set(&mut self) -> Option<Node> {
        self.bracketed(|parser| {
            parser.bar_separates = true;
            let (items, _) = parser.items()?;
            parser.bar_separates = false;
            parser.skip_spaces();
            if matches!(parser.peek(), Some(Token::Sign('|' | '∣' | ':'))) {
                parser.at += 1;
                let condition = parser.list()?;
                return parser.eat('⦄').then(|| Node::Where(Box::new(condition)));
            }
            parser.eat('⦄').then_some(Node::Set(items))
        })
    }
}

fn group(open: char, close: char, mut items: Vec<Node>, joint: Joint) -> Option<Node> {
    match (items.len(), open, close) {
        (0, ..) => None,
        (1, '(', ')') | (1, '[', ']') => items.pop(),
        (1, ..) => None,
        (_, '(', ')') if joint == Joint::And => Some(Node::List { items, joint }),
        (_, '(', ')') => Some(Node::Tuple(items)),
        _ => Some(Node::Bracketed { open, close, items }),
    }
}
