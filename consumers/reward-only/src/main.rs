//! Grades three texts that no model of Firebrick wrote, and fails if a grade is not the expected one.
//!
//! ```text
//! cargo run --manifest-path consumers/reward-only/Cargo.toml
//! ```

use std::error::Error;

use firebrick_core::{Prompt, RewardVerifier, Sample};
use firebrick_reward::{ExactAnswer, ExactAnswerConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let verifier: ExactAnswer =
        ExactAnswerConfig { wrong_reward: -1.0, ..ExactAnswerConfig::default() }.build()?;
    let prompt = Prompt::new("apples", "Three quarters of 1,600 apples are sold. How many are left?", "400");
    let responses = [
        (r"A quarter is left: \boxed{\frac{800}{2}}.", 1.0),
        ("1,600 - 1,200 = 500\nAnswer: 500", -1.0),
        ("Most of them are sold.", -1.0),
    ];
    for (response, expected) in responses {
        let verdict = verifier.verify(&Sample::of_text(&prompt, response))?;
        println!("{response:?}: {verdict:?}");
        if verdict.reward() != Some(expected) {
            return Err(format!("expected {expected}").into());
        }
    }
    Ok(())
}
