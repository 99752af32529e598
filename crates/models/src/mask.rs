//! What a query may attend to.
//!
//! Shapes: B rows, S queries, K keys (K ≥ S: the queries are the last S of the K positions).

use std::sync::Arc;

use burn::tensor::{
    Tensor, TensorData,
    backend::{AutodiffBackend, Backend},
};

/// Added to the score of a key that a query must not see. Finite, so that a row without any visible key
/// (padding) has a finite softmax, and not too large for f16.
const HIDDEN: f32 = -3.0e4;

/// Which keys each query sees: those up to its own position that are not left padding.
///
/// Built once for all layers of a forward pass.
#[derive(Debug, Clone)]
pub struct CausalMask<B: Backend> {
    queries: usize,
    keys: usize,
    left_padding: Arc<[usize]>,
    bias: Option<Tensor<B, 3>>,
}

impl<B: Backend> CausalMask<B> {
    /// Lets each of the last `queries` of `keys` positions see the keys up to its own, but not the first `left_padding[row]` of
    /// its row; an empty list stands for rows without padding.
    pub fn new(queries: usize, keys: usize, left_padding: Arc<[usize]>) -> Self {
        Self { queries, keys, left_padding, bias: None }
    }

    /// Number of queries, S.
    pub fn queries(&self) -> usize {
        self.queries
    }

    /// Number of keys, K.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// The first key that the queries of a row may see.
    pub fn first_key(&self, row: usize) -> usize {
        self.left_padding.get(row).copied().unwrap_or(0)
    }

    /// Keeps the bias, for attention that reads it in every layer.
    #[must_use]
    pub(crate) fn with_bias(mut self, device: &B::Device) -> Self {
        self.bias = self.bias(device);
        self
    }

    /// What is to be added to the scaled scores, `[1, S, K]` or `[B, S, K]`: zero where a query sees a key, a large negative but
    /// finite number where it does not. `None` when every query sees every key.
    pub fn bias(&self, device: &B::Device) -> Option<Tensor<B, 3>> {
        if self.bias.is_some() {
            return self.bias.clone();
        }
        let padded = self.left_padding.iter().any(|columns| *columns > 0);
        if self.queries <= 1 && !padded {
            return None;
        }
        let rows = if padded { self.left_padding.len() } else { 1 };
        let mut values = vec![0.0; rows * self.queries * self.keys];
        for (index, seen) in values.chunks_exact_mut(self.keys).enumerate() {
            let (row, query) = (index / self.queries, index % self.queries);
            seen[self.keys - self.queries + query + 1..].fill(HIDDEN);
            seen[..self.first_key(row).min(self.keys)].fill(HIDDEN);
        }
        Some(Tensor::from_data(TensorData::new(values, [rows, self.queries, self.keys]), device))
    }
}

impl<B: AutodiffBackend> CausalMask<B> {
    /// The same on the inner backend.
    pub(crate) fn inner(&self) -> CausalMask<B::InnerBackend> {
        CausalMask {
            queries: self.queries,
            keys: self.keys,
            left_padding: Arc::clone(&self.left_padding),
            bias: self.bias.clone().map(Tensor::inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;

    fn visible(mask: &CausalMask<Flex>) -> Option<Vec<bool>> {
        let bias = mask.bias(&Default::default())?;
        Some(bias.to_data().iter::<f32>().map(|value| value == 0.0).collect())
    }

    #[test]
    fn each_query_sees_the_keys_up_to_its_own_position() {
        let (o, x) = (true, false);
        assert_eq!(visible(&CausalMask::new(2, 4, [].into())), Some(vec![o, o, o, x, o, o, o, o]));
        assert_eq!(visible(&CausalMask::new(1, 4, [0, 0].into())), None);
    }

    #[test]
    fn left_padding_is_hidden_row_by_row_and_stays_finite() {
        let mask = CausalMask::<Flex>::new(2, 2, [0, 2].into());
        let (o, x) = (true, false);
        assert_eq!(visible(&mask), Some(vec![o, x, o, o, x, x, x, x]));
        let bias = mask.bias(&Default::default()).unwrap();
        let lowest = bias.to_data().iter::<f32>().fold(0.0, f32::min);
        assert!(lowest >= -65504.0, "{lowest} does not fit into f16");
        assert_eq!((mask.first_key(0), mask.first_key(1)), (0, 2));
    }
}
