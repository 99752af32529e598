//! The programs that are asked for: what each computes, as Python computes it, and its source.

use num_integer::Integer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ProgramSynthesisConfig;

/// A kind of programs that differ by their constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProgramFamily {
    /// `a*x+b` of an integer.
    Linear,
    /// `x*x+c`.
    Square,
    /// `x%m`.
    Modulo,
    /// `abs(x)+c`.
    Absolute,
    /// `min(x,c)` or `max(x,c)`.
    Extremum,
    /// `x//k`.
    FloorDivision,
    /// `a if x>c else b`.
    Conditional,
    /// `a*x+b*y` of two integers.
    WeightedSum,
    /// `x*y+c`.
    Product,
    /// `min(x,y)+c` or `max(x,y)+c`.
    ExtremumOfTwo,
    /// `abs(x-y)+c`.
    Distance,
    /// A text of a text: reversed, upper case, sliced, repeated, with a letter appended.
    TextChange,
    /// An integer of a text: `len(s)+c` and how often a letter occurs.
    TextMeasure,
    /// A list of a list: reversed, sorted, sliced, shifted, scaled.
    ListChange,
    /// An integer of a list: sum, length, smallest or largest item, plus a constant.
    ListMeasure,
}

impl ProgramFamily {
    /// Every family.
    pub const ALL: [Self; 15] = [
        Self::Linear,
        Self::Square,
        Self::Modulo,
        Self::Absolute,
        Self::Extremum,
        Self::FloorDivision,
        Self::Conditional,
        Self::WeightedSum,
        Self::Product,
        Self::ExtremumOfTwo,
        Self::Distance,
        Self::TextChange,
        Self::TextMeasure,
        Self::ListChange,
        Self::ListMeasure,
    ];

    /// What its programs take.
    pub(super) fn signature(self) -> Signature {
        match self {
            Self::Linear
            | Self::Square
            | Self::Modulo
            | Self::Absolute
            | Self::Extremum
            | Self::FloorDivision
            | Self::Conditional => Signature::Integer,
            Self::WeightedSum | Self::Product | Self::ExtremumOfTwo | Self::Distance => Signature::Integers,
            Self::TextChange | Self::TextMeasure => Signature::Text,
            Self::ListChange | Self::ListMeasure => Signature::List,
        }
    }

    /// The name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Square => "square",
            Self::Modulo => "modulo",
            Self::Absolute => "absolute",
            Self::Extremum => "extremum",
            Self::FloorDivision => "floor_division",
            Self::Conditional => "conditional",
            Self::WeightedSum => "weighted_sum",
            Self::Product => "product",
            Self::ExtremumOfTwo => "extremum_of_two",
            Self::Distance => "distance",
            Self::TextChange => "text_change",
            Self::TextMeasure => "text_measure",
            Self::ListChange => "list_change",
            Self::ListMeasure => "list_measure",
        }
    }

    /// All members, in a fixed order.
    pub(super) fn members(self, config: &ProgramSynthesisConfig) -> Vec<Program> {
        let shifts = || -config.max_constant..=config.max_constant;
        let factors = || (-config.max_factor..=config.max_factor).filter(|factor| *factor != 0);
        let several = || 2..=config.max_divisor;
        let short = || 1..config.min_length as i64;
        let pairs = |first: Vec<i64>, make: fn(i64, i64) -> Program| -> Vec<Program> {
            first.into_iter().flat_map(|a| shifts().map(move |b| make(a, b))).collect()
        };
        match self {
            Self::Linear => pairs(factors().collect(), |a, b| Program::Linear { a, b }),
            Self::Square => shifts().map(|c| Program::Square { c }).collect(),
            Self::Modulo => several().map(|m| Program::Modulo { m }).collect(),
            Self::Absolute => shifts().map(|c| Program::Absolute { c }).collect(),
            Self::Extremum => config
                .thresholds()
                .flat_map(|c| {
                    [Program::Extremum { largest: false, c }, Program::Extremum { largest: true, c }]
                })
                .collect(),
            Self::FloorDivision => several().map(|k| Program::FloorDivision { k }).collect(),
            Self::Conditional => config
                .thresholds()
                .flat_map(|c| {
                    shifts()
                        .flat_map(move |a| shifts().map(move |b| (a, b)))
                        .filter(|(a, b)| a != b)
                        .map(move |(a, b)| Program::Conditional { a, b, c })
                })
                .collect(),
            Self::WeightedSum => {
                factors().flat_map(|a| factors().map(move |b| Program::WeightedSum { a, b })).collect()
            }
            Self::Product => shifts().map(|c| Program::Product { c }).collect(),
            Self::ExtremumOfTwo => [false, true]
                .into_iter()
                .flat_map(|largest| shifts().map(move |c| Program::ExtremumOfTwo { largest, c }))
                .collect(),
            Self::Distance => shifts().map(|c| Program::Distance { c }).collect(),
            Self::TextChange => [Program::Reversed, Program::Upper, Program::ReversedUpper]
                .into_iter()
                .chain(short().flat_map(|k| [Program::Head { k }, Program::Rest { k }, Program::Tail { k }]))
                .chain((2..=3).map(|k| Program::Repeated { k }))
                .chain(LETTERS.into_iter().map(|letter| Program::Appended { letter }))
                .collect(),
            Self::TextMeasure => shifts()
                .map(|c| Program::Length { c })
                .chain(LETTERS.into_iter().map(|letter| Program::Count { letter }))
                .collect(),
            Self::ListChange => [Program::Reversed, Program::Sorted, Program::SortedDown]
                .into_iter()
                .chain(short().flat_map(|k| [Program::Head { k }, Program::Rest { k }, Program::Tail { k }]))
                .chain(shifts().filter(|c| *c != 0).map(|c| Program::Shifted { c }))
                .chain(factors().filter(|a| *a != 1).map(|a| Program::Scaled { a }))
                .collect(),
            Self::ListMeasure => shifts()
                .flat_map(|c| {
                    [
                        Program::Sum { c },
                        Program::Length { c },
                        Program::Smallest { c },
                        Program::Largest { c },
                    ]
                })
                .collect(),
        }
    }
}

/// Letters of generated texts.
pub(super) const LETTERS: [char; 5] = ['a', 'b', 'c', 'd', 'e'];

/// What a program takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    Integer,
    Integers,
    Text,
    List,
}

impl Signature {
    /// Names of the parameters.
    fn parameters(self) -> &'static str {
        match self {
            Self::Integer => "x",
            Self::Integers => "x,y",
            Self::Text => "s",
            Self::List => "v",
        }
    }
}

/// An argument or a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Datum {
    Integer(i64),
    Text(String),
    List(Vec<i64>),
}

impl Datum {
    /// As Python writes it, without spaces.
    pub(super) fn python(&self) -> String {
        match self {
            Self::Integer(value) => value.to_string(),
            Self::Text(text) => format!("'{text}'"), // letters only: nothing to escape
            Self::List(items) => {
                format!("[{}]", items.iter().map(i64::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Self::Integer(value) => Value::from(*value),
            Self::Text(text) => Value::from(text.as_str()),
            Self::List(items) => Value::from(items.clone()),
        }
    }
}

/// A program of one expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Program {
    Linear { a: i64, b: i64 },
    Square { c: i64 },
    Modulo { m: i64 },
    Absolute { c: i64 },
    Extremum { largest: bool, c: i64 },
    FloorDivision { k: i64 },
    Conditional { a: i64, b: i64, c: i64 },
    WeightedSum { a: i64, b: i64 },
    Product { c: i64 },
    ExtremumOfTwo { largest: bool, c: i64 },
    Distance { c: i64 },
    Reversed,
    Upper,
    ReversedUpper,
    Head { k: i64 },
    Rest { k: i64 },
    Tail { k: i64 },
    Repeated { k: i64 },
    Appended { letter: char },
    Count { letter: char },
    Length { c: i64 },
    Sorted,
    SortedDown,
    Shifted { c: i64 },
    Scaled { a: i64 },
    Sum { c: i64 },
    Smallest { c: i64 },
    Largest { c: i64 },
}

impl Program {
    /// What Python returns. The arguments must be those of the signature.
    pub(super) fn run(self, arguments: &[Datum]) -> Datum {
        match arguments {
            [Datum::Integer(x)] => Datum::Integer(self.of_integer(*x)),
            [Datum::Integer(x), Datum::Integer(y)] => Datum::Integer(self.of_integers(*x, *y)),
            [Datum::Text(text)] => self.of_text(text),
            [Datum::List(items)] => self.of_list(items),
            _ => unreachable!("no program takes {arguments:?}"),
        }
    }

    fn of_integer(self, x: i64) -> i64 {
        match self {
            Self::Linear { a, b } => a * x + b,
            Self::Square { c } => x * x + c,
            Self::Modulo { m } => Integer::mod_floor(&x, &m),
            Self::Absolute { c } => x.abs() + c,
            Self::Extremum { largest: false, c } => x.min(c),
            Self::Extremum { largest: true, c } => x.max(c),
            Self::FloorDivision { k } => Integer::div_floor(&x, &k),
            Self::Conditional { a, b, c } => {
                if x > c {
                    a
                } else {
                    b
                }
            }
            _ => unreachable!("{self:?} takes no integer"),
        }
    }

    fn of_integers(self, x: i64, y: i64) -> i64 {
        match self {
            Self::WeightedSum { a, b } => a * x + b * y,
            Self::Product { c } => x * y + c,
            Self::ExtremumOfTwo { largest: false, c } => x.min(y) + c,
            Self::ExtremumOfTwo { largest: true, c } => x.max(y) + c,
            Self::Distance { c } => (x - y).abs() + c,
            _ => unreachable!("{self:?} takes no two integers"),
        }
    }

    fn of_text(self, text: &str) -> Datum {
        let length = text.len(); // letters of one byte
        let changed = match self {
            Self::Reversed => text.chars().rev().collect(),
            Self::Upper => text.to_ascii_uppercase(),
            Self::ReversedUpper => text.chars().rev().collect::<String>().to_ascii_uppercase(),
            Self::Head { k } => text[..length.min(k as usize)].to_owned(),
            Self::Rest { k } => text[length.min(k as usize)..].to_owned(),
            Self::Tail { k } => text[length.saturating_sub(k as usize)..].to_owned(),
            Self::Repeated { k } => text.repeat(k as usize),
            Self::Appended { letter } => format!("{text}{letter}"),
            Self::Count { letter } => return Datum::Integer(text.matches(letter).count() as i64),
            Self::Length { c } => return Datum::Integer(length as i64 + c),
            _ => unreachable!("{self:?} takes no text"),
        };
        Datum::Text(changed)
    }

    fn of_list(self, items: &[i64]) -> Datum {
        let length = items.len();
        let mut changed = items.to_vec();
        match self {
            Self::Reversed => changed.reverse(),
            Self::Sorted => changed.sort_unstable(),
            Self::SortedDown => changed.sort_unstable_by(|a, b| b.cmp(a)),
            Self::Head { k } => changed.truncate(k as usize),
            Self::Rest { k } => changed = items[length.min(k as usize)..].to_vec(),
            Self::Tail { k } => changed = items[length.saturating_sub(k as usize)..].to_vec(),
            Self::Shifted { c } => changed.iter_mut().for_each(|item| *item += c),
            Self::Scaled { a } => changed.iter_mut().for_each(|item| *item *= a),
            Self::Length { c } => return Datum::Integer(length as i64 + c),
            Self::Sum { c } => return Datum::Integer(items.iter().sum::<i64>() + c),
            Self::Smallest { c } => return Datum::Integer(items.iter().min().map_or(c, |item| item + c)),
            Self::Largest { c } => return Datum::Integer(items.iter().max().map_or(c, |item| item + c)),
            _ => unreachable!("{self:?} takes no list"),
        }
        Datum::List(changed)
    }

    /// The whole program.
    pub(super) fn source(self, name: &str, signature: Signature) -> String {
        let parameters = signature.parameters();
        format!("def {name}({parameters}):\n return {}", self.expression(parameters))
    }

    fn expression(self, p: &str) -> String {
        let extremum = |largest: bool| if largest { "max" } else { "min" };
        match self {
            Self::Linear { a, b } => format!("{}{}", times(a, "x"), plus(b)),
            Self::Square { c } => format!("x*x{}", plus(c)),
            Self::Modulo { m } => format!("x%{m}"),
            Self::Absolute { c } => format!("abs(x){}", plus(c)),
            Self::Extremum { largest, c } => format!("{}(x,{c})", extremum(largest)),
            Self::FloorDivision { k } => format!("x//{k}"),
            Self::Conditional { a, b, c } => format!("{a} if x>{c} else {b}"),
            Self::WeightedSum { a, b } => {
                let second = times(b, "y");
                let sign = if second.starts_with('-') { "" } else { "+" };
                format!("{}{sign}{second}", times(a, "x"))
            }
            Self::Product { c } => format!("x*y{}", plus(c)),
            Self::ExtremumOfTwo { largest, c } => format!("{}(x,y){}", extremum(largest), plus(c)),
            Self::Distance { c } => format!("abs(x-y){}", plus(c)),
            Self::Reversed => format!("{p}[::-1]"),
            Self::Upper => format!("{p}.upper()"),
            Self::ReversedUpper => format!("{p}[::-1].upper()"),
            Self::Head { k } => format!("{p}[:{k}]"),
            Self::Rest { k } => format!("{p}[{k}:]"),
            Self::Tail { k } => format!("{p}[-{k}:]"),
            Self::Repeated { k } => format!("{p}*{k}"),
            Self::Appended { letter } => format!("{p}+'{letter}'"),
            Self::Count { letter } => format!("{p}.count('{letter}')"),
            Self::Length { c } => format!("len({p}){}", plus(c)),
            Self::Sorted => format!("sorted({p})"),
            Self::SortedDown => format!("sorted({p})[::-1]"),
            Self::Shifted { c } => format!("[x{} for x in {p}]", plus(c)),
            Self::Scaled { a } => format!("[{} for x in {p}]", times(a, "x")),
            Self::Sum { c } => format!("sum({p}){}", plus(c)),
            Self::Smallest { c } => format!("min({p}){}", plus(c)),
            Self::Largest { c } => format!("max({p}){}", plus(c)),
        }
    }
}

fn times(factor: i64, name: &str) -> String {
    match factor {
        1 => name.to_owned(),
        -1 => format!("-{name}"),
        factor => format!("{factor}*{name}"),
    }
}

fn plus(constant: i64) -> String {
    if constant == 0 { String::new() } else { format!("{constant:+}") }
}
