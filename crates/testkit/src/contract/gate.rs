//! The contract of a gate.

use firebrick_core::{Bounds, Gate, Gated};

use super::samples::{prepare, responses};
use crate::{TestResponse, slope_differences};

/// Windows that a gate is tried with, from narrow to none at all.
const WINDOWS: [Bounds; 4] = [
    Bounds { low: 0.9997, high: 1.0004 },
    Bounds { low: 0.8, high: 1.28 },
    Bounds { low: -1.0, high: 3.0 },
    Bounds::OPEN,
];

/// Checks a gate on responses of many lengths, including empty and extreme ones, with several windows.
///
/// It must write every entry, with finite numbers, and the same ones when asked twice or through a `Box`.
/// Unless it declares itself a score function, its slopes must be the central differences of its values.
///
/// # Panics
/// When the contract is broken.
#[track_caller]
pub fn check_gate(mut gate: impl Gate + 'static) {
    let name = format!("{gate:?}");
    if let Some(part) = gate.stateful() {
        prepare(part, &name);
    }
    let direct = outputs(&gate);
    for token in direct.iter().flatten() {
        assert!(
            token.value.is_finite() && token.slope.is_finite(),
            "{gate:?}: every entry must be written and finite, found {token:?}"
        );
    }
    assert!(direct == outputs(&gate), "{gate:?}: two calls give different numbers");
    if !gate.is_score_function() {
        check_slopes(&gate);
    }
    let (requirements, score_function) = (gate.requirements(), gate.is_score_function());
    let boxed: Box<dyn Gate> = Box::new(gate);
    assert_eq!(boxed.requirements(), requirements, "{name}: a Box has other requirements");
    assert_eq!(boxed.is_score_function(), score_function, "{name}: a Box is another kind of gate");
    assert!(direct == outputs(boxed.as_ref()), "{name}: a Box gives other numbers");
}

fn cases() -> Vec<(TestResponse, Vec<Bounds>)> {
    let case = |window: Bounds| {
        responses().into_iter().map(move |response| {
            let bounds = vec![window; response.tokens().len()];
            (response, bounds)
        })
    };
    WINDOWS.into_iter().flat_map(case).collect()
}

fn outputs(gate: &dyn Gate) -> Vec<Vec<Gated>> {
    let of = |(response, bounds): (TestResponse, Vec<Bounds>)| {
        let tokens = response.tokens();
        let unwritten = Gated { value: f64::NAN, slope: f64::NAN, ..Gated::default() };
        let mut out = vec![unwritten; tokens.len()];
        gate.gate(&tokens, tokens.log_ratios(), &bounds, &mut out);
        out
    };
    cases().into_iter().map(of).collect()
}

#[track_caller]
fn check_slopes(gate: &dyn Gate) {
    let mut compared = 0;
    for (response, bounds) in cases() {
        let tokens = response.tokens();
        let mut out = vec![Gated::default(); tokens.len()];
        gate.gate(&tokens, tokens.log_ratios(), &bounds, &mut out);
        // The difference of sums loses digits of the largest value, so that is what the error is relative to.
        let scale = out.iter().fold(1.0_f64, |scale, token| scale.max(token.value.abs()));
        let differences = slope_differences(gate, &response, tokens.log_ratios(), &bounds, 1e-5);
        for (token, difference) in out.iter().zip(differences) {
            let Some(difference) = difference else { continue };
            assert!(
                (token.slope - difference).abs() <= 1e-7 * scale,
                "{gate:?}: slope {} is not the derivative {difference} of the value; a gate whose weight is \
                 detached declares itself a score function",
                token.slope
            );
            compared += 1;
        }
    }
    assert!(compared > 0, "{gate:?}: its bindings change everywhere, so no slope could be checked");
}
