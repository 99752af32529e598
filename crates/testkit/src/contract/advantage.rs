//! The contract of an advantage estimator.

use firebrick_core::{Advantage, AdvantageEstimator, Advantages, RewardBatch, RewardRow};

/// Checks an advantage estimator on groups of mixed, equal, missing and not finite rewards.
///
/// It must give one entry per row, exclude exactly the unscored rows, give exactly zero when all rewards are
/// equal, finite numbers otherwise, one per token where it gives tokens, and refuse a reward that is not
/// finite. Without state, it must give the same when asked twice, through a `Box`, and for rows in another
/// order.
///
/// # Panics
/// When the contract is broken.
#[track_caller]
pub fn check_advantage_estimator(mut estimator: impl AdvantageEstimator + 'static) {
    let name = format!("{estimator:?}");
    let size = estimator.requirements().min_group_size.max(4);
    let mixed = batch("mixed", size, |group, row| match (group + row) % 4 {
        3 if row >= size / 2 => None,
        other => Some(other as f64 - 0.5),
    });
    let direct = advantages(&mut estimator, &mixed, &name);
    check_rows(&mixed, &direct, &name);

    let equal = batch("equal", size, |_, _| Some(0.1));
    for advantage in advantages(&mut estimator, &equal, &name).rows {
        let zero = match &advantage {
            Advantage::Response(value) => *value == 0.0,
            Advantage::Tokens(values) => values.iter().all(|value| *value == 0.0),
            Advantage::Excluded => false,
        };
        assert!(zero, "{name}: equal rewards must have advantages of exactly zero, found {advantage:?}");
    }
    for reward in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let bad = batch("bad", size, |_, row| Some(if row == 1 { reward } else { 0.0 }));
        assert!(estimator.advantages(&bad).is_err(), "{name}: a reward of {reward} must be an error");
    }
    if estimator.stateful().is_some() {
        return;
    }
    assert_eq!(direct, advantages(&mut estimator, &mixed, &name), "{name}: two calls give different numbers");
    let mut reversed = mixed.clone();
    reversed.rows.reverse();
    let mut backwards = advantages(&mut estimator, &reversed, &name);
    backwards.rows.reverse();
    for (found, expected) in backwards.rows.iter().zip(&direct.rows) {
        assert!(close(found, expected), "{name}: the order of rows matters: {found:?}, {expected:?}");
    }
    let mut boxed: Box<dyn AdvantageEstimator> = Box::new(estimator);
    assert_eq!(direct, advantages(&mut boxed, &mixed, &name), "{name}: a Box gives other numbers");
}

/// Three interleaved groups of `size` rows with everything that an estimator may require: values and greedy rewards of 0.1,
/// log-probs of tokens, and collision probabilities that they allow.
fn batch(id: &str, size: usize, reward: impl Fn(usize, usize) -> Option<f64>) -> RewardBatch {
    let row = |index: usize| {
        let (group, len) = (index % 3, 1 + index % 5);
        RewardRow::new(group, reward(group, index / 3), len)
            .with_prompt(format!("{id} {group}"))
            .with_values(vec![0.1; len])
            .with_greedy_reward(Some(0.1))
            .with_collision_probabilities(
                vec![-0.5; len],
                (0..len).map(|token| 0.4 + 0.05 * token as f64).collect(),
            )
    };
    RewardBatch { rows: (0..3 * size).map(row).collect() }
}

#[track_caller]
fn advantages(estimator: &mut dyn AdvantageEstimator, batch: &RewardBatch, name: &str) -> Advantages {
    estimator.advantages(batch).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
fn check_rows(batch: &RewardBatch, advantages: &Advantages, name: &str) {
    assert_eq!(advantages.rows.len(), batch.rows.len(), "{name}: one entry per row");
    for (row, advantage) in batch.rows.iter().zip(&advantages.rows) {
        let fits = match advantage {
            Advantage::Excluded => row.reward.is_none(),
            Advantage::Response(value) => row.reward.is_some() && value.is_finite(),
            Advantage::Tokens(values) => {
                row.reward.is_some()
                    && values.len() == row.len
                    && values.iter().all(|value| value.is_finite())
            }
        };
        assert!(
            fits,
            "{name}: {advantage:?} does not fit {row:?}; unscored rows are excluded, others have numbers"
        );
    }
}

fn close(found: &Advantage, expected: &Advantage) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + b.abs());
    match (found, expected) {
        (Advantage::Excluded, Advantage::Excluded) => true,
        (Advantage::Response(a), Advantage::Response(b)) => near(*a, *b),
        (Advantage::Tokens(a), Advantage::Tokens(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| near(*a, *b))
        }
        _ => false,
    }
}
