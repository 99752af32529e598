//! Little stories with numbers.

use rand::{RngExt, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Fields, Generate, TaskError, check_order, check_range};

const NAMES: [&str; 12] =
    ["Ada", "Ben", "Carla", "David", "Emma", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Leon"];

const THINGS: [&str; 12] = [
    "apples", "marbles", "stickers", "pencils", "books", "coins", "shells", "stamps", "cards", "buttons",
    "cookies", "balloons",
];

/// Settings of `word_problem`: `Ada has 7 apples. Ben gives Ada 5 more. How many apples does Ada have now?`, whose answer is `12`.
///
/// A step adds what someone gives, takes away what is lost, or adds some bags of as many each. No amount is ever negative.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WordProblemConfig {
    /// Fewest steps, 1 to 6. Default 1.
    pub min_steps: u32,
    /// Most steps, 1 to 6. Default 2.
    pub max_steps: u32,
    /// Largest number that is named, 2 to 1000. Default 20.
    pub max_value: i64,
}

impl Default for WordProblemConfig {
    fn default() -> Self {
        Self { min_steps: 1, max_steps: 2, max_value: 20 }
    }
}

impl WordProblemConfig {
    pub(super) fn validate(&self) -> Result<(), TaskError> {
        check_range("min_steps", self.min_steps, 1, 6)?;
        check_range("max_steps", self.max_steps, 1, 6)?;
        check_order(("min_steps", self.min_steps), ("max_steps", self.max_steps))?;
        check_range("max_value", self.max_value, 2, 1000)
    }

    pub(super) fn build(&self) -> Self {
        self.clone()
    }

    /// What happens to `owned` things: the sentence and the change.
    fn step(&self, rng: &mut ChaCha8Rng, owner: &str, things: &str, owned: i64) -> (String, i64) {
        let amount = rng.random_range(2..=self.max_value);
        match rng.random_range(0..3) {
            0 if owned >= 2 => {
                let lost = rng.random_range(1..owned.min(self.max_value + 1));
                (format!("{owner} loses {lost} of them."), -lost)
            }
            1 => {
                let bags = rng.random_range(2..=self.max_value.min(9));
                (format!("{owner} buys {bags} bags with {amount} {things} each."), bags * amount)
            }
            _ => {
                let others: Vec<&str> = NAMES.into_iter().filter(|name| *name != owner).collect();
                let giver = others.choose(rng).copied().unwrap_or("Someone");
                (format!("{giver} gives {owner} {amount} more."), amount)
            }
        }
    }
}

impl Generate for WordProblemConfig {
    fn fields(&self, rng: &mut ChaCha8Rng) -> Fields {
        let owner = NAMES[rng.random_range(0..NAMES.len())];
        let things = THINGS[rng.random_range(0..THINGS.len())];
        let mut owned = rng.random_range(2..=self.max_value);
        let mut sentences = vec![format!("{owner} has {owned} {things}.")];
        let mut amounts = vec![owned];
        for _ in 0..rng.random_range(self.min_steps..=self.max_steps) {
            let (sentence, change) = self.step(rng, owner, things, owned);
            sentences.push(sentence);
            amounts.push(change);
            owned += change;
        }
        sentences.push(format!("How many {things} does {owner} have now?"));
        Fields::new(sentences.join(" "), owned.to_string()).with("amounts", amounts)
    }
}
