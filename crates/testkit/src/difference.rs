//! Central differences, against which coefficients and slopes are held.

use firebrick_core::{Bounds, Gate, Gated, Objective};

use crate::TestResponse;

/// Central differences of `function` at `point` with respect to each entry.
pub fn central_differences(point: &[f64], step: f64, function: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let at = |index: usize, moved: f64| {
        let mut point = point.to_vec();
        point[index] += moved;
        function(&point)
    };
    (0..point.len()).map(|index| (at(index, step) - at(index, -step)) / (2.0 * step)).collect()
}

/// Central differences of an objective's loss with respect to each current log-prob.
///
/// They equal −coefficient away from kinks when the objective's gradient is the full derivative of its loss:
/// the estimator's route reaches every token that its weight depends on, and the gate is no score function.
/// An objective that detaches something needs a reference in its test that says what is frozen.
pub fn loss_differences(
    objective: &dyn Objective,
    response: &TestResponse,
    weight: f64,
    step: f64,
) -> Vec<f64> {
    central_differences(response.current().values(), step, |current| {
        objective.evaluate(&response.clone().with_current(current).tokens(), weight).loss
    })
}

/// Central differences of the sum of a gate's values with respect to each log-weight, and whether each
/// token's binding stays the same over the step: `None` where it does not, which is where a kink may be.
///
/// They equal the slopes of a gate that is no score function.
pub fn slope_differences(
    gate: &dyn Gate,
    response: &TestResponse,
    log_weights: &[f64],
    bounds: &[Bounds],
    step: f64,
) -> Vec<Option<f64>> {
    let tokens = response.tokens();
    let gated = |index: usize, moved: f64| {
        let mut log_weights = log_weights.to_vec();
        log_weights[index] += moved;
        let mut out = vec![Gated::default(); log_weights.len()];
        gate.gate(&tokens, &log_weights, bounds, &mut out);
        (out.iter().map(|token| token.value).sum::<f64>(), out[index].binding)
    };
    (0..log_weights.len())
        .map(|index| {
            let ((above, high), (below, low)) = (gated(index, step), gated(index, -step));
            (high == low).then(|| (above - below) / (2.0 * step))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Binding, ResponseTerms, ResponseTokens};

    use super::*;
    use crate::assert_all_close;

    #[derive(Debug)]
    struct Square;

    impl Objective for Square {
        fn evaluate(&self, response: &ResponseTokens<'_>, weight: f64) -> ResponseTerms {
            let loss = response.log_ratios().iter().map(|d| weight * d * d).sum();
            ResponseTerms { loss, ..ResponseTerms::default() }
        }
    }

    impl Gate for Square {
        fn gate(&self, _: &ResponseTokens<'_>, log_weights: &[f64], _: &[Bounds], out: &mut [Gated]) {
            for (out, w) in out.iter_mut().zip(log_weights) {
                let binding = if *w > 1.0 { Binding::High } else { Binding::None };
                *out = Gated { value: w * w, slope: 2.0 * w, binding };
            }
        }
    }

    #[test]
    fn the_differences_of_a_square_are_twice_its_argument() {
        let response = TestResponse::from_log_ratios(&[0.5, -1.0], &[1.0; 2]);
        let found = loss_differences(&Square, &response, 3.0, 1e-4);
        assert_all_close(&found, &[3.0, -6.0], 1e-9, "differences");
    }

    #[test]
    fn a_step_over_a_kink_has_no_difference() {
        let response = TestResponse::from_log_ratios(&[0.0, 0.0], &[1.0; 2]);
        let found = slope_differences(&Square, &response, &[1.0, 0.5], &[Bounds::OPEN; 2], 1e-4);
        assert_eq!(found[0], None);
        assert_all_close(&[found[1].unwrap()], &[1.0], 1e-9, "slope");
    }
}
