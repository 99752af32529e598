//! The contract of an importance estimator.

use firebrick_core::ImportanceEstimator;

use super::samples::{prepare, responses};
use crate::{TestResponse, assert_all_close};

/// Checks an importance estimator on responses of many lengths, including empty and extreme ones.
///
/// It must write every entry, with finite numbers, and the same ones when asked twice or through a `Box`;
/// `pull_back` must be linear.
///
/// # Panics
/// When the contract is broken.
#[track_caller]
pub fn check_estimator(mut estimator: impl ImportanceEstimator + 'static) {
    let name = format!("{estimator:?}");
    if let Some(part) = estimator.stateful() {
        prepare(part, &name);
    }
    let direct: Vec<_> = responses().iter().map(|response| outputs(&estimator, response)).collect();
    for (log_weights, pulled) in &direct {
        assert!(
            log_weights.iter().all(|value| value.is_finite()),
            "{estimator:?}: log-weights must all be written and finite, found {log_weights:?}"
        );
        assert!(
            pulled.iter().all(|value| value.is_finite()),
            "{estimator:?}: pull_back must write all entries, finite for finite input, found {pulled:?}"
        );
    }
    let again: Vec<_> = responses().iter().map(|response| outputs(&estimator, response)).collect();
    assert!(direct == again, "{estimator:?}: two calls with the same response give different numbers");
    for response in responses() {
        check_linear(&estimator, &response);
    }
    let requirements = estimator.requirements();
    let boxed: Box<dyn ImportanceEstimator> = Box::new(estimator);
    assert_eq!(boxed.requirements(), requirements, "{name}: a Box has other requirements");
    let through: Vec<_> = responses().iter().map(|response| outputs(boxed.as_ref(), response)).collect();
    assert!(direct == through, "{name}: a Box gives other numbers");
}

/// Checks that the log-weight of a position does not depend on later tokens.
///
/// # Panics
/// When it does.
#[track_caller]
pub fn check_causality(estimator: &dyn ImportanceEstimator) {
    for response in responses() {
        let (before, _) = outputs(estimator, &response);
        for index in 0..before.len() {
            let mut current = response.current().values().to_vec();
            current[index] += 0.37;
            let (after, _) = outputs(estimator, &response.clone().with_current(&current));
            assert_eq!(
                before[..index],
                after[..index],
                "{estimator:?}: a change at position {} reaches an earlier one",
                index + 1
            );
        }
    }
}

fn upstream(len: usize) -> Vec<f64> {
    (0..len).map(|index| 0.5 - (index % 3) as f64).collect()
}

/// Log-weights, and a pull-back. Entries that are not written stay NaN.
fn outputs(estimator: &dyn ImportanceEstimator, response: &TestResponse) -> (Vec<f64>, Vec<f64>) {
    let tokens = response.tokens();
    let mut log_weights = vec![f64::NAN; tokens.len()];
    estimator.log_weights(&tokens, &mut log_weights);
    let mut pulled = vec![f64::NAN; tokens.len()];
    estimator.pull_back(&tokens, &upstream(tokens.len()), &mut pulled);
    (log_weights, pulled)
}

fn check_linear(estimator: &dyn ImportanceEstimator, response: &TestResponse) {
    let tokens = response.tokens();
    let pull = |upstream: &[f64]| {
        let mut out = vec![f64::NAN; upstream.len()];
        estimator.pull_back(&tokens, upstream, &mut out);
        out
    };
    let first = upstream(tokens.len());
    let second: Vec<f64> = (0..first.len()).map(|index| (index as f64).cos()).collect();
    let sum: Vec<f64> = first.iter().zip(&second).map(|(a, b)| 2.0 * a + b).collect();
    let expected: Vec<f64> = pull(&first).iter().zip(pull(&second)).map(|(a, b)| 2.0 * a + b).collect();
    assert_all_close(&pull(&sum), &expected, 1e-9, "pull_back must be linear in upstream");
}
