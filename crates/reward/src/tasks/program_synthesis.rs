//! Write a Python function from examples of what it returns.

use std::collections::HashSet;

use rand::{RngExt, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Fields, Generate, TaskError, check_order, check_range};
use program::{Datum, LETTERS, Program, Signature};

mod program;

pub use program::ProgramFamily;

/// Settings of `program_synthesis`: write a Python function `f` from examples.
///
/// A prompt is `f(3)=7 f(0)=1 f(5)=11`, and the response a whole program such as `def f(x):\n return 2*x+1`. The answer is JSON text:
/// `{"fn_name":"f","inputs":[[3],[0],…],"outputs":[7,1,…],"shown":3}`, where the first `shown` pairs stand in the prompt and all of
/// them score. `extra` holds `family`, `solution` (the source of the reference program) and `rivals`: how many other programs of the
/// enabled families fit what is shown and fail a hidden input. Shown inputs are chosen so that this is 0 wherever `shown` examples
/// can bring it about.
///
/// A family is drawn first and a member of it then, both uniformly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProgramSynthesisConfig {
    /// Families of the programs. Default: the seven of one integer.
    pub families: Vec<ProgramFamily>,
    /// Examples in the prompt, 1 to 16. Default 3.
    pub shown: usize,
    /// Examples that are not in the prompt, 1 to 64. Default 8.
    pub hidden: usize,
    /// Smallest integer argument and list item, −100 or more. Default −9.
    pub min_input: i64,
    /// Largest integer argument and list item, at most 100. Default 9.
    pub max_input: i64,
    /// Largest size of a factor, 1 to 100. Default 5.
    pub max_factor: i64,
    /// Largest size of any other constant, 0 to 100. Default 9.
    pub max_constant: i64,
    /// Largest divisor of `%` and `//`, 2 to 100. Default 9.
    pub max_divisor: i64,
    /// Fewest letters of a text and items of a list, 1 to 16; slices take fewer. Default 3.
    pub min_length: usize,
    /// Most letters of a text and items of a list, 1 to 16. Default 5.
    pub max_length: usize,
}

impl Default for ProgramSynthesisConfig {
    fn default() -> Self {
        Self {
            families: ProgramFamily::ALL[..7].to_vec(),
            shown: 3,
            hidden: 8,
            min_input: -9,
            max_input: 9,
            max_factor: 5,
            max_constant: 9,
            max_divisor: 9,
            min_length: 3,
            max_length: 5,
        }
    }
}

/// Programs that a problem is compared with.
const MOST_PROGRAMS: usize = 100_000;

/// Arguments among which those of a problem are chosen, where not all are taken.
const POOL: usize = 48;

/// Random choices of shown arguments before a directed one.
const RANDOM_CHOICES: usize = 8;

/// Programs that are tried before one is shown that its examples do not determine.
const PROGRAM_DRAWS: usize = 16;

impl ProgramSynthesisConfig {
    /// The values `c` for which `x>c` splits the integer arguments and no constant is larger than allowed.
    fn thresholds(&self) -> std::ops::Range<i64> {
        self.min_input.max(-self.max_constant)..self.max_input.min(self.max_constant + 1)
    }

    pub(super) fn validate(&self) -> Result<(), TaskError> {
        if self.families.is_empty() {
            return Err(TaskError::setting("families", "[]", "at least one family"));
        }
        check_range("shown", self.shown, 1, 16)?;
        check_range("hidden", self.hidden, 1, 64)?;
        check_range("min_input", self.min_input, -100, 100)?;
        check_range("max_input", self.max_input, -100, 100)?;
        check_order(("min_input", self.min_input), ("max_input", self.max_input))?;
        check_range("max_factor", self.max_factor, 1, 100)?;
        check_range("max_constant", self.max_constant, 0, 100)?;
        check_range("max_divisor", self.max_divisor, 2, 100)?;
        check_range("min_length", self.min_length, 1, 16)?;
        check_range("max_length", self.max_length, 1, 16)?;
        check_order(("min_length", self.min_length), ("max_length", self.max_length))?;
        let needed = self.shown + self.hidden;
        let spread = (self.max_input - self.min_input + 1) as usize;
        let enough = |signature| match signature {
            Signature::Integer => spread >= needed,
            Signature::Integers => spread * spread >= 2 * needed,
            Signature::Text => LETTERS.len().saturating_pow(self.max_length as u32) >= 2 * needed,
            Signature::List => spread.saturating_pow(self.max_length as u32) >= 2 * needed,
        };
        if let Some(family) = self.families.iter().find(|family| !enough(family.signature())) {
            let name = family.name();
            return Err(TaskError::setting(
                "shown + hidden",
                needed,
                format!(
                    "fewer: `{name}` has too few different arguments between min_input and max_input (or of max_length)"
                ),
            ));
        }
        let conditional = self.families.contains(&ProgramFamily::Conditional);
        let constants = (2 * self.max_constant + 1) as usize;
        let programs = constants * constants * self.thresholds().count();
        if conditional && programs > MOST_PROGRAMS {
            return Err(TaskError::setting(
                "max_constant",
                self.max_constant,
                format!(
                    "smaller: `conditional` would have {programs} programs, and {MOST_PROGRAMS} is the limit"
                ),
            ));
        }
        if let Some(family) = self.families.iter().find(|family| family.members(self).is_empty()) {
            let name = family.name();
            return Err(TaskError::setting("families", name, "a family with members: widen its constants"));
        }
        Ok(())
    }

    pub(super) fn build(&self) -> ProgramSynthesis {
        let families = self.families.iter().map(|family| (*family, family.members(self))).collect();
        ProgramSynthesis { config: self.clone(), families }
    }
}

/// The generator, with every program of its families.
#[derive(Debug, Clone)]
pub(super) struct ProgramSynthesis {
    config: ProgramSynthesisConfig,
    families: Vec<(ProgramFamily, Vec<Program>)>,
}

/// The tests of a problem, as its answer holds them.
#[derive(Debug, Serialize)]
struct Tests {
    fn_name: &'static str,
    inputs: Vec<Vec<Value>>,
    outputs: Vec<Value>,
    shown: usize,
}

type Arguments = Vec<Datum>;

/// A choice of arguments, the shown ones first.
struct Choice {
    arguments: Vec<Arguments>,
    rivals: usize,
}

impl Generate for ProgramSynthesis {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let mut draws = 0;
        loop {
            let (family, members) = &self.families[rng.random_range(0..self.families.len())];
            let program = members[rng.random_range(0..members.len())];
            let choice = self.choose(program, family.signature(), rng);
            draws += 1;
            if choice.rivals == 0 || draws == PROGRAM_DRAWS {
                return self.problem(*family, program, choice);
            }
        }
    }
}

impl ProgramSynthesis {
    fn problem(&self, family: ProgramFamily, program: Program, choice: Choice) -> Fields {
        let outputs: Vec<Datum> = choice.arguments.iter().map(|arguments| program.run(arguments)).collect();
        let shown: Vec<String> = choice.arguments[..self.config.shown]
            .iter()
            .zip(&outputs)
            .map(|(arguments, output)| {
                let arguments: Vec<String> = arguments.iter().map(Datum::python).collect();
                format!("f({})={}", arguments.join(","), output.python())
            })
            .collect();
        let tests = Tests {
            fn_name: "f",
            inputs: choice.arguments.iter().map(|row| row.iter().map(Datum::json).collect()).collect(),
            outputs: outputs.iter().map(Datum::json).collect(),
            shown: self.config.shown,
        };
        let answer = serde_json::to_string(&tests).expect("numbers, texts and lists are JSON");
        Fields::new(shown.join(" "), answer)
            .with("family", family.name())
            .with("solution", program.source("f", family.signature()))
            .with("rivals", choice.rivals)
    }

    /// Chooses arguments of which the shown ones determine the program among all of its signature, if they can.
    fn choose(&self, program: Program, signature: Signature, rng: &mut ChaCha8Rng) -> Choice {
        let mut pool = self.pool(signature, rng);
        let all: Vec<Program> = self
            .families
            .iter()
            .filter(|(family, _)| family.signature() == signature)
            .flat_map(|(_, members)| members.iter().copied())
            .collect();
        for _ in 0..RANDOM_CHOICES {
            pool.shuffle(rng);
            if self.rivals(program, &all, &pool) == 0 {
                return self.choice(pool, 0);
            }
        }
        self.separate(program, all.clone(), &mut pool);
        let (shown, hidden) = pool.split_at_mut(self.config.shown);
        shown.shuffle(rng);
        hidden.shuffle(rng);
        let rivals = self.rivals(program, &all, &pool);
        self.choice(pool, rivals)
    }

    fn choice(&self, mut pool: Vec<Arguments>, rivals: usize) -> Choice {
        pool.truncate(self.config.shown + self.config.hidden);
        Choice { arguments: pool, rivals }
    }

    /// Programs that fit the first `shown` arguments and fail one of the `hidden` that follow.
    fn rivals(&self, program: Program, all: &[Program], pool: &[Arguments]) -> usize {
        let (shown, rest) = pool.split_at(self.config.shown);
        let wanted = |arguments: &[Arguments]| -> Vec<Datum> {
            arguments.iter().map(|arguments| program.run(arguments)).collect()
        };
        let hidden = &rest[..self.config.hidden];
        let (of_shown, of_hidden) = (wanted(shown), wanted(hidden));
        let fits = |other: &Program, arguments: &[Arguments], wanted: &[Datum]| {
            arguments.iter().zip(wanted).all(|(arguments, wanted)| other.run(arguments) == *wanted)
        };
        all.iter().filter(|other| fits(other, shown, &of_shown) && !fits(other, hidden, &of_hidden)).count()
    }

    /// Moves the arguments that tell the program from most others to the front, one after another; the first stays.
    fn separate(&self, program: Program, mut others: Vec<Program>, pool: &mut [Arguments]) {
        for place in 1..self.config.shown {
            let known = &pool[place - 1];
            let wanted = program.run(known);
            others.retain(|other| other.run(known) == wanted);
            let told_apart = |arguments: &Arguments| {
                let wanted = program.run(arguments);
                others.iter().filter(|other| other.run(arguments) != wanted).count()
            };
            let counts: Vec<usize> = pool[place..].iter().map(told_apart).collect();
            let most = counts.iter().max().copied().unwrap_or(0);
            let best = counts.iter().position(|count| *count == most).unwrap_or(0);
            pool.swap(place, place + best);
        }
    }

    /// Different arguments, more than a problem needs.
    fn pool(&self, signature: Signature, rng: &mut ChaCha8Rng) -> Vec<Arguments> {
        let (low, high) = (self.config.min_input, self.config.max_input);
        if signature == Signature::Integer {
            return (low..=high).map(|x| vec![Datum::Integer(x)]).collect();
        }
        let needed = self.config.shown + self.config.hidden;
        let mut seen = HashSet::new();
        let mut pool = Vec::new();
        let mut draws = 0;
        // a pool may stay small where there is little to choose from; `validate` sees to it that it is large enough
        while pool.len() < needed || (pool.len() < POOL && draws < 4 * POOL) {
            draws += 1;
            let length = rng.random_range(self.config.min_length as u64..=self.config.max_length as u64);
            let arguments = match signature {
                Signature::Integer | Signature::Integers => {
                    (0..2).map(|_| Datum::Integer(rng.random_range(low..=high))).collect()
                }
                Signature::Text => {
                    vec![Datum::Text(
                        (0..length).map(|_| LETTERS[rng.random_range(0..LETTERS.len())]).collect(),
                    )]
                }
                Signature::List => {
                    vec![Datum::List((0..length).map(|_| rng.random_range(low..=high)).collect())]
                }
            };
            let written: Vec<String> = arguments.iter().map(Datum::python).collect();
            if seen.insert(written.join(",")) {
                pool.push(arguments);
            }
        }
        pool
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{RootSeed, SeedStream};

    use super::*;

    /// What choosing the shown arguments is for: taken at random, three of them leave a rival to many programs.
    #[test]
    fn three_examples_at_random_would_often_not_determine_the_program() {
        let task = ProgramSynthesisConfig::default().build();
        let all: Vec<Program> = task.families.iter().flat_map(|(_, members)| members.clone()).collect();
        let mut ambiguous = Vec::new();
        for (family, members) in &task.families {
            let mut rng = RootSeed(1).rng(SeedStream::Problem, &[ambiguous.len() as u64]);
            let with_rivals = (0..100).filter(|_| {
                let program = members[rng.random_range(0..members.len())];
                let mut pool = task.pool(family.signature(), &mut rng);
                pool.shuffle(&mut rng);
                task.rivals(program, &all, &pool) > 0
            });
            ambiguous.push((family.name(), with_rivals.count()));
        }
        let of_hundred = [
            ("linear", 1),
            ("square", 1),
            ("modulo", 38),
            ("absolute", 25),
            ("extremum", 72),
            ("floor_division", 83),
            ("conditional", 89),
        ];
        assert_eq!(ambiguous, of_hundred);
    }

    #[test]
    fn quotients_and_remainders_are_those_of_python() {
        let run = |program: Program, x| program.run(&[Datum::Integer(x)]);
        for (x, quotient, remainder) in [(-7, -4, 1), (-8, -4, 0), (7, 3, 1), (0, 0, 0)] {
            assert_eq!(run(Program::FloorDivision { k: 2 }, x), Datum::Integer(quotient));
            assert_eq!(run(Program::Modulo { m: 2 }, x), Datum::Integer(remainder));
        }
    }

    #[test]
    fn slices_reach_no_further_than_the_text() {
        let run = |program: Program| program.run(&[Datum::Text("ab".into())]);
        assert_eq!(run(Program::Head { k: 3 }), Datum::Text("ab".into()));
        assert_eq!(run(Program::Rest { k: 3 }), Datum::Text(String::new()));
        assert_eq!(run(Program::Tail { k: 3 }), Datum::Text("ab".into()));
    }
}
