//! The syntax tree of an answer.

use num_rational::BigRational;

/// A mathematical object as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    /// A number; `decimal` when it is written with a decimal point, so that it may be rounded.
    Number {
        value: BigRational,
        decimal: bool,
    },
    /// A variable, or words: the name keeps its case.
    Symbol(String),
    /// π, e, i or ∞.
    Constant(Constant),
    Sum(Vec<Node>),
    Product(Vec<Node>),
    Quotient(Box<Node>, Box<Node>),
    Power(Box<Node>, Box<Node>),
    Negative(Box<Node>),
    /// `±`, or `∓` when `flipped`.
    PlusMinus {
        left: Option<Box<Node>>,
        right: Box<Node>,
        flipped: bool,
    },
    /// A known function of its arguments.
    Function(Function, Vec<Node>),
    /// A named function that is not known, such as `f(x)`, or anything that is only compared by its parts.
    Apply(String, Vec<Node>),
    /// A finite sum or product over an index.
    Series {
        product: bool,
        index: String,
        from: Box<Node>,
        to: Box<Node>,
        body: Box<Node>,
    },
    Percent(Box<Node>),
    Degrees(Box<Node>),
    /// A value with a unit.
    Quantity(Box<Node>, String),
    /// Digits in a base that the answer names.
    Based {
        digits: String,
        base: String,
    },
    /// `a : b : c`.
    Ratio(Vec<Node>),
    /// Items without brackets.
    List {
        items: Vec<Node>,
        joint: Joint,
    },
    Set(Vec<Node>),
    /// Two or more items in parentheses: a tuple, or an open interval.
    Tuple(Vec<Node>),
    /// Two or more items of which at least one bracket is square.
    Bracketed {
        open: char,
        close: char,
        items: Vec<Node>,
    },
    Union(Vec<Node>),
    Intersection(Vec<Node>),
    Difference(Box<Node>, Box<Node>),
    Reals,
    /// A chain of relations.
    Relation {
        first: Box<Node>,
        rest: Vec<(Comparator, Node)>,
    },
    /// `x ∈ S`.
    Member(Box<Node>, Box<Node>),
    /// The `x` that fulfil a condition.
    Where(Box<Node>),
    Matrix(Vec<Vec<Node>>),
}

/// What stands between the items of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joint {
    /// Commas, semicolons or rows, which say nothing.
    Unsaid,
    And,
    Or,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Constant {
    Pi,
    E,
    I,
    Infinity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    /// Of the argument, and the degree of the root.
    Root,
    /// Of the argument, and the base.
    Log,
    Ln,
    Exp,
    Sin,
    Cos,
    Tan,
    Cot,
    Sec,
    Csc,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Abs,
    Floor,
    Ceiling,
    Factorial,
    Binomial,
    Gcd,
    Lcm,
    Max,
    Min,
    Determinant,
}

impl Function {
    /// Whether an angle is expected, so that degrees are converted.
    pub(crate) fn takes_an_angle(self) -> bool {
        matches!(self, Self::Sin | Self::Cos | Self::Tan | Self::Cot | Self::Sec | Self::Csc)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Approximately,
    In,
    /// An arrow or another sign that is only compared as such.
    Other(char),
}

impl Comparator {
    /// The comparator that holds when the sides are exchanged.
    pub(crate) fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            same => same,
        }
    }
}

impl Node {
    pub(crate) fn integer(value: i64) -> Self {
        Self::Number { value: BigRational::from_integer(value.into()), decimal: false }
    }

    pub(crate) fn symbol(name: impl Into<String>) -> Self {
        Self::Symbol(name.into())
    }

    pub(crate) fn difference(left: &Self, right: &Self) -> Self {
        Self::Sum(vec![left.clone(), Self::Negative(Box::new(right.clone()))])
    }

    /// The parts of a node, in the order in which they are written.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Number { .. } | Self::Symbol(_) | Self::Constant(_) | Self::Based { .. } | Self::Reals => {
                Vec::new()
            }
            Self::Sum(items)
            | Self::Product(items)
            | Self::Function(_, items)
            | Self::Apply(_, items)
            | Self::Ratio(items)
            | Self::List { items, .. }
            | Self::Set(items)
            | Self::Tuple(items)
            | Self::Bracketed { items, .. }
            | Self::Union(items)
            | Self::Intersection(items) => items.iter().collect(),
            Self::Quotient(a, b) | Self::Power(a, b) | Self::Difference(a, b) | Self::Member(a, b) => {
                vec![a, b]
            }
            Self::Negative(a)
            | Self::Percent(a)
            | Self::Degrees(a)
            | Self::Quantity(a, _)
            | Self::Where(a) => vec![a],
            Self::PlusMinus { left, right, .. } => {
                left.iter().map(AsRef::as_ref).chain([right.as_ref()]).collect()
            }
            Self::Series { from, to, body, .. } => vec![from, to, body],
            Self::Relation { first, rest } => {
                std::iter::once(first.as_ref()).chain(rest.iter().map(|(_, node)| node)).collect()
            }
            Self::Matrix(rows) => rows.iter().flatten().collect(),
        }
    }

    /// The node with each of its parts replaced.
    #[must_use]
    pub(crate) fn with_parts(&self, change: &mut dyn FnMut(&Self) -> Self) -> Self {
        let mut one = |node: &Self| Box::new(change(node));
        match self {
            Self::Number { .. } | Self::Symbol(_) | Self::Constant(_) | Self::Based { .. } | Self::Reals => {
                self.clone()
            }
            Self::Quotient(a, b) => Self::Quotient(one(a), one(b)),
            Self::Power(a, b) => Self::Power(one(a), one(b)),
            Self::Difference(a, b) => Self::Difference(one(a), one(b)),
            Self::Member(a, b) => Self::Member(one(a), one(b)),
            Self::Negative(a) => Self::Negative(one(a)),
            Self::Percent(a) => Self::Percent(one(a)),
            Self::Degrees(a) => Self::Degrees(one(a)),
            Self::Quantity(a, unit) => Self::Quantity(one(a), unit.clone()),
            Self::Where(a) => Self::Where(one(a)),
            Self::PlusMinus { left, right, flipped } => {
                let left = left.as_ref().map(|left| one(left));
                Self::PlusMinus { left, right: one(right), flipped: *flipped }
            }
            Self::Series { product, index, from, to, body } => Self::Series {
                product: *product,
                index: index.clone(),
                from: one(from),
                to: one(to),
                body: one(body),
            },
            Self::Relation { first, rest } => {
                let first = one(first);
                Self::Relation { first, rest: rest.iter().map(|(op, node)| (*op, change(node))).collect() }
            }
            Self::Sum(items) => Self::Sum(items.iter().map(change).collect()),
            Self::Product(items) => Self::Product(items.iter().map(change).collect()),
            Self::Function(function, items) => Self::Function(*function, items.iter().map(change).collect()),
            Self::Apply(name, items) => Self::Apply(name.clone(), items.iter().map(change).collect()),
            Self::Ratio(items) => Self::Ratio(items.iter().map(change).collect()),
            Self::List { items, joint } => {
                Self::List { items: items.iter().map(change).collect(), joint: *joint }
            }
            Self::Set(items) => Self::Set(items.iter().map(change).collect()),
            Self::Tuple(items) => Self::Tuple(items.iter().map(change).collect()),
            Self::Bracketed { open, close, items } => {
                Self::Bracketed { open: *open, close: *close, items: items.iter().map(change).collect() }
            }
            Self::Union(items) => Self::Union(items.iter().map(change).collect()),
            Self::Intersection(items) => Self::Intersection(items.iter().map(change).collect()),
            Self::Matrix(rows) => {
                Self::Matrix(rows.iter().map(|row| row.iter().map(&mut *change).collect()).collect())
            }
        }
    }

    /// Whether any node of the tree fulfils `wanted`.
    pub(crate) fn any(&self, wanted: &dyn Fn(&Self) -> bool) -> bool {
        wanted(self) || self.parts().into_iter().any(|part| part.any(wanted))
    }

    /// Names of the variables: symbols, and unknown functions with their arguments. The index of a series is
    /// none.
    pub(crate) fn variables(&self, found: &mut Vec<String>) {
        let mut add = |name: String| {
            if !found.contains(&name) {
                found.push(name);
            }
        };
        match self {
            Self::Symbol(name) => add(name.clone()),
            Self::Apply(..) => add(self.key()),
            Self::Series { index, from, to, body, .. } => {
                from.variables(found);
                to.variables(found);
                let mut inner = Vec::new();
                body.variables(&mut inner);
                for name in inner {
                    if name != *index && !found.contains(&name) {
                        found.push(name);
                    }
                }
            }
            _ => self.parts().into_iter().for_each(|part| part.variables(found)),
        }
    }

    /// A text that is equal for trees that differ only in the order of what commutes and in signs' places.
    pub(crate) fn key(&self) -> String {
        let mut text = String::new();
        self.write_key(&mut text);
        text
    }

    fn write_key(&self, out: &mut String) {
        let join = |out: &mut String, name: &str, mut keys: Vec<String>, sorted: bool| {
            if sorted {
                keys.sort();
            }
            out.push_str(name);
            out.push('(');
            out.push_str(&keys.join(","));
            out.push(')');
        };
        let keys = |items: &[Self]| items.iter().map(Self::key).collect::<Vec<_>>();
        match self {
            Self::Number { value, .. } => out.push_str(&value.to_string()),
            Self::Symbol(name) => {
                out.push('$');
                out.push_str(name);
            }
            Self::Constant(constant) => out.push_str(&format!("#{constant:?}")),
            Self::Based { digits, base } => out.push_str(&format!("{digits}_{base}")),
            Self::Reals => out.push_str("#R"),
            Self::Sum(items) => join(out, "+", keys(items), true),
            Self::Product(items) => join(out, "*", keys(items), true),
            Self::Set(items) => join(out, "set", keys(items), true),
            Self::Union(items) => join(out, "union", keys(items), true),
            Self::Intersection(items) => join(out, "cap", keys(items), true),
            Self::Function(function, items) => join(out, &format!("{function:?}"), keys(items), false),
            Self::Apply(name, items) => join(out, &format!("@{name}"), keys(items), false),
            Self::List { items, .. } => join(out, "list", keys(items), false),
            Self::Bracketed { open, close, items } => {
                join(out, &format!("{open}{close}"), keys(items), false);
            }
            Self::PlusMinus { left, right, flipped } => {
                let left = left.as_ref().map_or(String::new(), |left| left.key());
                join(out, if *flipped { "mp" } else { "pm" }, vec![left, right.key()], false);
            }
            Self::Quantity(value, unit) => join(out, unit, vec![value.key()], false),
            Self::Series { product, index, from, to, body } => {
                let name = format!("series{product}{index}");
                join(out, &name, vec![from.key(), to.key(), body.key()], false);
            }
            Self::Relation { first, rest } => {
                let mut parts = vec![first.key()];
                for (comparator, node) in rest {
                    parts.push(format!("{comparator:?}"));
                    parts.push(node.key());
                }
                join(out, "rel", parts, false);
            }
            Self::Matrix(rows) => {
                join(out, "matrix", rows.iter().map(|row| keys(row).join("&")).collect(), false)
            }
            Self::Quotient(..)
            | Self::Power(..)
            | Self::Negative(_)
            | Self::Percent(_)
            | Self::Degrees(_)
            | Self::Ratio(_)
            | Self::Tuple(_)
            | Self::Difference(..)
            | Self::Member(..)
            | Self::Where(_) => {
                let name = match self {
                    Self::Quotient(..) => "/",
                    Self::Power(..) => "^",
                    Self::Negative(_) => "-",
                    Self::Percent(_) => "%",
                    Self::Degrees(_) => "deg",
                    Self::Ratio(_) => ":",
                    Self::Tuple(_) => "()",
                    Self::Difference(..) => "minus",
                    Self::Member(..) => "in",
                    _ => "where",
                };
                join(out, name, self.parts().into_iter().map(Self::key).collect(), false);
            }
        }
    }
}
