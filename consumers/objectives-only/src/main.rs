//! Evaluates TAPO on one response of four tokens, and fails if a number is not the one worked by hand.
//!
//! ```text
//! cargo run --manifest-path consumers/objectives-only/Cargo.toml
//! ```

use std::error::Error;

use firebrick_core::{LogProbs, Objective, ResponseContext, ResponseTokens};
use firebrick_objectives::{Denominator, ObjectiveConfig};

/// Log-ratios d of the tokens: how much likelier the learner finds each than the policy that sampled it.
const LOG_RATIOS: [f64; 4] = [0.10, -0.20, 0.30, 0.05];
/// R_t = exp((1/t) Σ_{k≤t} d_k): the exponents are 0.1, −0.1/2, 0.2/3 and 0.25/4.
const PREFIX_RATIOS: [f64; 4] = [1.105171, 0.951229, 1.068939, 1.064494];
/// With A = 1: R_t inside the windows [0.8, 1.2] and [0.916982, 1.083077]; zero above 1.031278 and 1.0004.
const COEFFICIENTS: [f64; 4] = [1.105171, 0.951229, 0.0, 0.0];
/// Minus the mean of 1.105171, 0.951229 and the two upper ends 1.031278 and 1.0004.
const LOSS: f64 = -1.022020;

fn main() -> Result<(), Box<dyn Error>> {
    let config = ObjectiveConfig::preset("tapo")?;
    config.validate()?;
    let recipe = config.build();

    let behaviour = [0.5_f64, 0.2, 0.05, 0.9].map(f64::ln);
    let current = [0, 1, 2, 3].map(|index| behaviour[index] + LOG_RATIOS[index]);
    let context = ResponseContext::new(LogProbs::new(behaviour.to_vec()), vec![1.0; 4])?;
    let current = LogProbs::new(current.to_vec());
    let response = ResponseTokens::new(&context, &current)?;

    let weight = recipe.aggregation.weight(&Denominator::of([response.len()])?, response.len());
    let terms = recipe.objective.evaluate(&response, weight);

    let ratios: Vec<f64> = terms.log_weights.iter().map(|log_weight| log_weight.exp()).collect();
    check("prefix ratios", &ratios, &PREFIX_RATIOS)?;
    check("coefficients", &terms.coefficients, &COEFFICIENTS.map(|value| value / 4.0))?;
    check("loss", &[terms.loss], &[LOSS])
}

fn check(what: &str, found: &[f64], expected: &[f64]) -> Result<(), Box<dyn Error>> {
    println!("{what}: {found:.6?}");
    let close = |(found, expected): (&f64, &f64)| (found - expected).abs() <= 1e-6;
    if found.len() == expected.len() && found.iter().zip(expected).all(close) {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}").into())
    }
}
