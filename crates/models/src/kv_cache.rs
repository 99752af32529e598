//! Keys and values of the tokens that a model has seen.
//!
//! Shapes: B rows, S new tokens, K cached tokens, C columns of memory (C ≥ K), G key and value heads, E width of a head.

use std::sync::Arc;

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

use crate::{CausalMask, FusedOps};

/// The cache of a [`crate::Decoder`]: one pair of keys and values for each layer.
#[derive(Debug)]
pub struct KvCache<B: Backend> {
    /// Keys and values of each layer, `[B, C, G, E]`; `None` before the first token.
    layers: Vec<Option<(Tensor<B, 4>, Tensor<B, 4>)>>,
    left_padding: Arc<[usize]>,
    columns: usize,
}

impl<B: Backend> KvCache<B> {
    pub(crate) fn new(layers: usize, left_padding: &[usize]) -> Self {
        Self { layers: vec![None; layers], left_padding: left_padding.into(), columns: 0 }
    }

    /// Number of rows, B.
    pub fn rows(&self) -> usize {
        self.left_padding.len()
    }

    /// Number of cached columns, K, left padding included.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Counts `queries` more columns and returns what the tokens in them may attend to.
    pub(crate) fn grow(&mut self, queries: usize) -> CausalMask<B> {
        self.columns += queries;
        CausalMask::new(queries, self.columns, Arc::clone(&self.left_padding))
    }

    /// Appends the new keys and values of a layer, for which room was counted, and returns all of them.
    ///
    /// # Shapes
    /// - `keys`, `values`: `[B, S, G, E]`
    /// - returns `[B, C, G, E]` twice, of which the first K columns mean something
    pub(crate) fn append(
        &mut self,
        layer: usize,
        keys: Tensor<B, 4>,
        values: Tensor<B, 4>,
    ) -> (Tensor<B, 4>, Tensor<B, 4>)
    where
        B: FusedOps,
    {
        let joined = match self.layers[layer].take() {
            None => (keys, values),
            Some((seen_keys, seen_values)) => {
                let seen = self.columns - keys.dims()[1];
                (B::extend_cache(seen_keys, seen, keys), B::extend_cache(seen_values, seen, values))
            }
        };
        self.layers[layer] = Some(joined.clone());
        joined
    }

    /// Keeps only the given rows, in this order; a row may be named several times.
    pub(crate) fn retain_rows(&mut self, rows: &[usize]) {
        if rows.iter().copied().eq(0..self.rows()) {
            return;
        }
        let indices: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
        self.left_padding = rows.iter().map(|row| self.left_padding[*row]).collect();
        for (keys, values) in self.layers.iter_mut().flatten() {
            let data = TensorData::new(indices.clone(), [rows.len()]);
            let indices = Tensor::<B, 1, Int>::from_data(data, &keys.device());
            *keys = keys.clone().select(0, indices.clone());
            *values = values.clone().select(0, indices);
        }
    }
}
