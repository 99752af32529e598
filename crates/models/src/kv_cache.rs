//! Keys and values of the tokens that a model has seen.
//!
//! Shapes: B rows, S new tokens, K cached tokens, G key and value heads, E width of a head.

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

use crate::{CausalMask, mask::hide_left};

/// The cache of a [`crate::Decoder`]: one pair of keys and values for each layer, which grows by
/// concatenation.
#[derive(Debug)]
pub struct KvCache<B: Backend> {
    /// Keys and values of each layer, `[B, K, G, E]`; `None` before the first token.
    layers: Vec<Option<(Tensor<B, 4>, Tensor<B, 4>)>>,
    /// Hides the left padding, `[B, columns of the longest padding]`; `None` when no row has any.
    padding: Option<Tensor<B, 2>>,
    rows: usize,
    columns: usize,
}

impl<B: Backend> KvCache<B> {
    pub(crate) fn new(layers: usize, left_padding: &[usize], device: &B::Device) -> Self {
        Self {
            layers: vec![None; layers],
            padding: hide_left(left_padding, device),
            rows: left_padding.len(),
            columns: 0,
        }
    }

    /// Number of rows, B.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of cached columns, K, left padding included.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Makes room for `queries` more columns and returns what the tokens in them may attend to.
    pub(crate) fn grow(&mut self, queries: usize, device: &B::Device) -> CausalMask<B> {
        self.columns += queries;
        let mask = CausalMask::new(queries, self.columns, device);
        let Some(padding) = &self.padding else { return mask };
        let [rows, padded] = padding.dims();
        mask.with_padding(if padded < self.columns {
            let rest = Tensor::zeros([rows, self.columns - padded], device);
            Tensor::cat(vec![padding.clone(), rest], 1)
        } else {
            padding.clone().slice([0..rows, 0..self.columns])
        })
    }

    /// Appends the new keys and values of a layer and returns all of them.
    ///
    /// # Shapes
    /// - `keys`, `values`: `[B, S, G, E]`
    /// - returns `[B, K, G, E]` twice
    pub(crate) fn append(
        &mut self,
        layer: usize,
        keys: Tensor<B, 4>,
        values: Tensor<B, 4>,
    ) -> (Tensor<B, 4>, Tensor<B, 4>) {
        let joined = match self.layers[layer].take() {
            None => (keys, values),
            Some((seen_keys, seen_values)) => {
                (Tensor::cat(vec![seen_keys, keys], 1), Tensor::cat(vec![seen_values, values], 1))
            }
        };
        self.layers[layer] = Some(joined.clone());
        joined
    }

    /// Keeps only the given rows, in this order.
    pub(crate) fn retain_rows(&mut self, rows: &[usize]) {
        if rows.iter().copied().eq(0..self.rows) {
            return;
        }
        let indices: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
        let pick = |device: &B::Device| {
            Tensor::<B, 1, Int>::from_data(TensorData::new(indices.clone(), [rows.len()]), device)
        };
        if let Some(padding) = &mut self.padding {
            *padding = padding.clone().select(0, pick(&padding.device()));
        }
        for (keys, values) in self.layers.iter_mut().flatten() {
            let indices = pick(&keys.device());
            *keys = keys.clone().select(0, indices.clone());
            *values = values.clone().select(0, indices);
        }
        self.rows = rows.len();
    }
}
