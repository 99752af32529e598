//! Golden numbers: fixtures of [B, T] tables, read into responses and back.
//!
//! B rows (responses), T columns (response positions). Policy tokens are the columns where a mask is not
//! zero.

use firebrick_core::{Binding, Objective};
use serde_json::Value;

use crate::{Record, TestResponse, record::list};

/// The inputs of a fixture: named arrays over the same rows and columns.
#[derive(Debug, Clone)]
pub struct GoldenBatch {
    arrays: Record,
}

impl GoldenBatch {
    /// A batch of named arrays.
    pub fn new(arrays: Record) -> Self {
        Self { arrays }
    }

    /// The arrays.
    pub fn arrays(&self) -> &Record {
        &self.arrays
    }

    /// The responses with the array `old_logprobs` as behaviour policy; see [`Self::rows_under`].
    ///
    /// # Panics
    /// When an array is missing or has another shape.
    #[track_caller]
    pub fn rows(&self, mask: &str, advantages: &str) -> Vec<GoldenRow> {
        self.rows_under("old_logprobs", mask, advantages)
    }

    /// The responses: rows of the arrays `behaviour` and `logprobs` at the columns where the array `mask` is not zero. The
    /// array `advantages` is \[B\] or [B, T]. Number and seed of a response are its row.
    ///
    /// # Panics
    /// When an array is missing or has another shape.
    #[track_caller]
    pub fn rows_under(&self, behaviour: &str, mask: &str, advantages: &str) -> Vec<GoldenRow> {
        let (behaviour, current) = (self.arrays.table(behaviour), self.arrays.table("logprobs"));
        let advantages = self.advantages(advantages, &current);
        let row = |(index, mask): (usize, &Vec<f64>)| {
            let columns: Vec<usize> = (0..mask.len()).filter(|column| mask[*column] != 0.0).collect();
            let pick = |table: &[Vec<f64>]| -> Vec<f64> {
                columns.iter().map(|column| table[index][*column]).collect()
            };
            let response = TestResponse::new(&pick(&behaviour), &pick(&current), &pick(&advantages))
                .map_context(|context| context.with_index(index).with_seed(index as u64));
            GoldenRow { columns, width: mask.len(), response }
        };
        self.arrays.table(mask).iter().enumerate().map(row).collect()
    }

    #[track_caller]
    fn advantages(&self, key: &str, like: &[Vec<f64>]) -> Vec<Vec<f64>> {
        if list(self.arrays.value(key)).iter().all(Value::is_array) {
            return self.arrays.table(key);
        }
        let per_row = self.arrays.numbers(key);
        like.iter().zip(per_row).map(|(row, advantage)| vec![advantage; row.len()]).collect()
    }
}

/// A row of a fixture as a response.
#[derive(Debug, Clone)]
pub struct GoldenRow {
    columns: Vec<usize>,
    width: usize,
    response: TestResponse,
}

impl GoldenRow {
    /// The response of the row's policy tokens.
    pub fn response(&self) -> &TestResponse {
        &self.response
    }

    /// Changes the response: other policies, entropies, limits.
    ///
    /// # Panics
    /// When the change alters the number of policy tokens.
    #[must_use]
    #[track_caller]
    pub fn map_response(mut self, change: impl FnOnce(TestResponse) -> TestResponse) -> Self {
        self.response = change(self.response);
        assert_eq!(self.response.context().len(), self.columns.len(), "policy tokens");
        self
    }

    /// Number of policy tokens.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether the row has no policy token.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Puts one value per policy token back into its column, with zeros elsewhere: \[T\].
    ///
    /// # Panics
    /// When the number of values differs.
    #[track_caller]
    pub fn scatter(&self, values: &[f64]) -> Vec<f64> {
        assert_eq!(values.len(), self.columns.len(), "one value per policy token");
        let mut row = vec![0.0; self.width];
        for (column, value) in self.columns.iter().zip(values) {
            row[*column] = *value;
        }
        row
    }

    /// Takes the policy tokens' entries out of a row of a table.
    ///
    /// # Panics
    /// When the row has another width.
    #[track_caller]
    pub fn gather(&self, row: &[f64]) -> Vec<f64> {
        assert_eq!(row.len(), self.width, "one entry per column");
        self.columns.iter().map(|column| row[*column]).collect()
    }
}

/// What an objective makes of a whole fixture.
#[derive(Debug, Clone)]
pub struct GoldenOutcome {
    /// Sum of the rows' losses.
    pub loss: f64,
    /// Loss of each row.
    pub row_losses: Vec<f64>,
    /// Gradient of the loss with respect to the current log-probs, [B, T]: minus the coefficients.
    pub grad: Vec<Vec<f64>>,
    /// Binding of every policy token, row after row.
    pub bindings: Vec<Binding>,
    /// Log-weights of every policy token, row by row.
    pub log_weights: Vec<Vec<f64>>,
}

impl GoldenOutcome {
    /// Evaluates `objective` on all rows; `weight` gives the aggregation weight of a response with so many tokens in the
    /// denominator.
    pub fn of(objective: &dyn Objective, rows: &[GoldenRow], weight: impl Fn(usize) -> f64) -> Self {
        let mut outcome = Self {
            loss: 0.0,
            row_losses: Vec::new(),
            grad: Vec::new(),
            bindings: Vec::new(),
            log_weights: Vec::new(),
        };
        for row in rows {
            let counted = objective.counted_tokens(row.response.context());
            let terms = objective.evaluate(&row.response.tokens(), weight(counted));
            outcome.loss += terms.loss;
            outcome.row_losses.push(terms.loss);
            let grad: Vec<f64> = terms.coefficients.iter().map(|coefficient| -coefficient).collect();
            outcome.grad.push(row.scatter(&grad));
            outcome.bindings.extend(terms.bindings);
            outcome.log_weights.push(terms.log_weights);
        }
        outcome
    }

    /// Fraction of the policy tokens on which the bound `binding` acted.
    pub fn fraction(&self, binding: Binding) -> f64 {
        let acted = self.bindings.iter().filter(|found| **found == binding).count();
        acted as f64 / self.bindings.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{ResponseTerms, ResponseTokens};
    use serde_json::json;

    use super::*;

    fn batch() -> GoldenBatch {
        GoldenBatch::new(Record::new(json!({
            "mask": [[1, 0, 1], [0, 0, 0]],
            "old_logprobs": [[-1.0, "nan", -2.0], [0.0, 0.0, 0.0]],
            "logprobs": [[-1.5, "inf", -1.0], [0.0, 0.0, 0.0]],
            "per_row": [2.0, 3.0],
            "per_token": [[1.0, "-inf", 4.0], [0.0, 0.0, 0.0]],
        })))
    }

    #[test]
    fn a_mask_picks_the_policy_tokens_and_padding_is_never_read() {
        let rows = batch().rows("mask", "per_row");
        assert_eq!(rows[0].response().tokens().log_ratios(), [-0.5, 1.0]);
        assert_eq!(rows[0].response().tokens().advantages(), [2.0, 2.0]);
        assert!(rows[1].is_empty());
        assert_eq!(rows[1].response().context().index(), 1);
        let rows = batch().rows_under("logprobs", "mask", "per_token");
        assert_eq!(rows[0].response().tokens().log_ratios(), [0.0, 0.0]);
        let rows = batch().rows("mask", "per_token");
        assert_eq!(rows[0].response().tokens().advantages(), [1.0, 4.0]);
    }

    #[test]
    fn values_return_to_the_columns_that_they_came_from() {
        let rows = batch().rows("mask", "per_row");
        assert_eq!(rows[0].scatter(&[7.0, 8.0]), [7.0, 0.0, 8.0]);
        assert_eq!(rows[0].gather(&[7.0, 9.0, 8.0]), [7.0, 8.0]);
        assert_eq!(rows[1].scatter(&[]), [0.0; 3]);
    }

    #[derive(Debug)]
    struct LogRatio;

    impl Objective for LogRatio {
        fn evaluate(&self, response: &ResponseTokens<'_>, weight: f64) -> ResponseTerms {
            ResponseTerms {
                loss: -weight * response.log_ratios().iter().sum::<f64>(),
                coefficients: vec![weight; response.len()],
                log_weights: response.log_ratios().to_vec(),
                bindings: vec![Binding::High; response.len()],
                ..ResponseTerms::default()
            }
        }
    }

    #[test]
    fn the_gradient_of_the_loss_is_minus_the_coefficients() {
        let outcome = GoldenOutcome::of(&LogRatio, &batch().rows("mask", "per_row"), |len| len as f64);
        assert_eq!((outcome.loss, &outcome.row_losses[..]), (-1.0, &[-1.0, 0.0][..]));
        assert_eq!(outcome.grad, [[-2.0, 0.0, -2.0], [0.0, 0.0, 0.0]]);
        assert_eq!((outcome.fraction(Binding::High), outcome.fraction(Binding::Low)), (1.0, 0.0));
    }
}
