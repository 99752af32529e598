//! What a query may attend to.
//!
//! Shapes: B rows, S queries, K keys (K ≥ S: the queries are the last S of the K positions).

use burn::tensor::{Tensor, TensorData, backend::Backend};

/// Added to the score of a key that a query must not see. Finite, so that a row without any visible key
/// (padding) has a finite softmax, and small enough that two of them add up in f16.
const HIDDEN: f32 = -3.0e4;

/// Which keys each query sees: those up to its own position that are not left padding.
///
/// Built once for all layers of a forward pass.
#[derive(Debug, Clone)]
pub struct CausalMask<B: Backend> {
    bias: Option<Tensor<B, 3>>,
}

impl<B: Backend> CausalMask<B> {
    /// Lets each of the last `queries` of `keys` positions see the keys up to its own.
    pub fn new(queries: usize, keys: usize, device: &B::Device) -> Self {
        if queries == 1 {
            return Self { bias: None };
        }
        let mut values = vec![0.0; queries * keys];
        for (query, row) in values.chunks_exact_mut(keys).enumerate() {
            row[keys - queries + query + 1..].fill(HIDDEN);
        }
        Self { bias: Some(Tensor::from_data(TensorData::new(values, [1, queries, keys]), device)) }
    }

    /// Also hides padding.
    ///
    /// # Shapes
    /// - `padding`: `[B, K]`, as [`hide_left`] makes it
    pub(crate) fn with_padding(self, padding: Tensor<B, 2>) -> Self {
        let padding: Tensor<B, 3> = padding.unsqueeze_dim(1);
        let bias = match self.bias {
            Some(causal) => padding + causal,
            None => padding,
        };
        Self { bias: Some(bias) }
    }

    /// What is to be added to the scaled scores, `[1, S, K]` or `[B, S, K]`: zero where a query sees a key, a
    /// large negative but finite number where it does not. `None` when every query sees every key.
    pub fn bias(&self) -> Option<&Tensor<B, 3>> {
        self.bias.as_ref()
    }
}

/// Hides the first `left_padding[row]` columns of each row. Returns `[B, K]` with K the longest padding.
pub(crate) fn hide_left<B: Backend>(left_padding: &[usize], device: &B::Device) -> Option<Tensor<B, 2>> {
    let columns = left_padding.iter().copied().max().filter(|columns| *columns > 0)?;
    let mut values = vec![0.0; left_padding.len() * columns];
    for (row, padding) in values.chunks_exact_mut(columns).zip(left_padding) {
        row[..*padding].fill(HIDDEN);
    }
    Some(Tensor::from_data(TensorData::new(values, [left_padding.len(), columns]), device))
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;

    fn visible(bias: &Tensor<Flex, 3>) -> Vec<bool> {
        bias.to_data().iter::<f32>().map(|value| value == 0.0).collect()
    }

    #[test]
    fn each_query_sees_the_keys_up_to_its_own_position() {
        let device = Default::default();
        let mask = CausalMask::<Flex>::new(2, 4, &device);
        let (o, x) = (true, false);
        assert_eq!(visible(mask.bias().unwrap()), [o, o, o, x, o, o, o, o]);
        assert!(CausalMask::<Flex>::new(1, 4, &device).bias().is_none());
    }

    #[test]
    fn left_padding_is_hidden_row_by_row_and_stays_finite() {
        let device = Default::default();
        assert!(hide_left::<Flex>(&[0, 0], &device).is_none());
        let padding = hide_left::<Flex>(&[0, 2], &device).unwrap();
        let mask = CausalMask::new(2, 2, &device).with_padding(padding);
        let (o, x) = (true, false);
        assert_eq!(visible(mask.bias().unwrap()), [o, x, o, o, x, x, x, x]);
        let lowest = mask.bias().unwrap().to_data().iter::<f32>().fold(0.0, f32::min);
        assert!(lowest >= -65504.0, "{lowest} does not fit into f16");
    }
}
