//! Causal attention, a block of queries at a time, and the cache that grows in place.
//!
//! Shapes: B rows, S queries, K keys, C columns of a cache, H query heads, G key and value heads, R = H/G, E width of a head.

use burn::tensor::{Tensor, TensorPrimitive};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::{
    contiguous,
    matrix::{Matrix, Target, Threads, multiply},
    numbers,
    simd::{Kernel, exp_and_sum, highest, mul_add, run, sum_pairs},
    tensor,
};
use crate::CausalMask;

/// Queries whose scores exist at once, in each thread.
const BLOCK: usize = 64;

/// Multiplications below which threads cost more than they bring.
const WORTH_THREADS: usize = 1 << 17;

/// The sizes of an attention and where its parts lie.
#[derive(Debug, Clone, Copy)]
struct Layout<'a> {
    mask: &'a CausalMask<Flex>,
    rows: usize,
    /// C
    capacity: usize,
    heads: usize,
    kv_heads: usize,
    head: usize,
}

impl<'a> Layout<'a> {
    fn new(queries: &Tensor<Flex, 4>, keys: &Tensor<Flex, 4>, mask: &'a CausalMask<Flex>) -> Self {
        let [rows, _, heads, head] = queries.dims();
        let [_, capacity, kv_heads, _] = keys.dims();
        Self { mask, rows, capacity, heads, kv_heads, head }
    }

    /// S
    fn queries(&self) -> usize {
        self.mask.queries()
    }

    /// R
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Numbers of all query heads of a token.
    fn query_width(&self) -> usize {
        self.heads * self.head
    }

    /// Numbers of all key heads of a token.
    fn key_width(&self) -> usize {
        self.kv_heads * self.head
    }

    fn is_worth_threads(&self) -> bool {
        self.rows * self.heads * self.queries() * self.mask.keys() * self.head >= WORTH_THREADS
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head as f32).sqrt()
    }

    /// Keys that query `query` of a row sees, from the first on; not above 0 when it sees none.
    fn visible(&self, row: usize, query: usize) -> isize {
        let end = self.mask.keys() - self.queries() + query + 1;
        end as isize - self.mask.first_key(row) as isize
    }

    /// `count` keys or values of a head, from the first that the row may see: `[count, E]`.
    fn seen<'v>(&self, values: &'v [f32], row: usize, kv_head: usize, count: usize) -> Matrix<'v> {
        let column = row * self.capacity + self.mask.first_key(row);
        let start = column * self.key_width() + kv_head * self.head;
        Matrix::new(&values[start..], [count, self.head], [self.key_width(), 1])
    }

    /// Queries `start..start + count` of a head: `[count, E]`.
    fn of_queries<'v>(
        &self,
        values: &'v [f32],
        row: usize,
        head: usize,
        [start, count]: [usize; 2],
    ) -> Matrix<'v> {
        let start = (row * self.queries() + start) * self.query_width() + head * self.head;
        Matrix::new(&values[start..], [count, self.head], [self.query_width(), 1])
    }

    /// Probabilities of `queries` over the keys that the last of them sees: `[rows, K']` in `scores`. Returns K'.
    ///
    /// `first..=last` are the queries that the rows are; where it is one, they may be several heads of it.
    fn probabilities(
        &self,
        scores: &mut Vec<f32>,
        queries: Matrix<'_>,
        keys: &[f32],
        [row, kv_head]: [usize; 2],
        [first, last]: [usize; 2],
    ) -> usize {
        let seen = self.visible(row, last).max(0).unsigned_abs();
        scores.resize(queries.height() * seen, 0.0);
        if seen > 0 {
            let keys = self.seen(keys, row, kv_head, seen).transposed();
            multiply(Target::new(scores, seen), false, self.scale(), queries, keys, Threads::One);
            run(Softmax { scores, width: seen, visible: self.visible(row, first) });
        }
        seen
    }
}

/// Turns rows of scores into probabilities.
struct Softmax<'a> {
    scores: &'a mut [f32],
    width: usize,
    /// Keys that the first row sees; each further row sees one more, up to all. None where that is not above 0.
    visible: isize,
}

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (index, row) in self.scores.chunks_exact_mut(self.width).enumerate() {
            let visible = self.visible + index as isize;
            softmax::<FMA>(row, visible.clamp(0, self.width as isize).unsigned_abs());
        }
    }
}

/// Softmax over the first `visible` numbers; the others become 0.
#[inline(always)]
fn softmax<const FMA: bool>(row: &mut [f32], visible: usize) {
    let (seen, hidden) = row.split_at_mut(visible);
    hidden.fill(0.0);
    if !seen.is_empty() {
        let shift = highest(seen);
        let factor = 1.0 / exp_and_sum::<FMA>(seen, shift);
        seen.iter_mut().for_each(|x| *x *= factor);
    }
}

pub(super) fn forward(
    queries: Tensor<Flex, 4>,
    keys: Tensor<Flex, 4>,
    values: Tensor<Flex, 4>,
    mask: &CausalMask<Flex>,
) -> Tensor<Flex, 4> {
    let layout = Layout::new(&queries, &keys, mask);
    let shape = queries.dims();
    let [queries, keys, values] = [queries, keys, values].map(contiguous);
    let [queries, keys, values] = [&queries, &keys, &values].map(numbers);
    let mut attended = vec![0.0; queries.len()];
    let width = layout.query_width();
    let blocks = attended.chunks_mut(layout.queries() * width).enumerate().flat_map(|(row, attended)| {
        let blocks = attended.chunks_mut(BLOCK * width).enumerate();
        blocks.map(move |(block, attended)| (row, block * BLOCK, attended))
    });
    let attend = |scores: &mut Vec<f32>, (row, start, attended): (usize, usize, &mut [f32])| {
        attend(layout, scores, [queries, keys, values], [row, start], attended);
    };
    if layout.is_worth_threads() {
        blocks.collect::<Vec<_>>().into_par_iter().for_each_init(Vec::new, attend);
    } else {
        let mut scores = Vec::new();
        blocks.for_each(|block| attend(&mut scores, block));
    }
    tensor(attended, shape)
}

/// What the queries from `start` on get, as many as `attended` has room for.
fn attend(
    layout: Layout<'_>,
    scores: &mut Vec<f32>,
    [queries, keys, values]: [&[f32]; 3],
    [row, start]: [usize; 2],
    attended: &mut [f32],
) {
    let (count, width, head_size) =
        (attended.len() / layout.query_width(), layout.query_width(), layout.head);
    // The rows of one product: of a single query the heads that share keys, of several those of one head.
    let (heads, rows, stride) = match layout.queries() {
        1 => (layout.group(), layout.group(), head_size),
        _ => (1, count, width),
    };
    for head in (0..layout.heads).step_by(heads) {
        let at = (row * layout.queries() + start) * width + head * head_size;
        let queries = Matrix::new(&queries[at..], [rows, head_size], [stride, 1]);
        let key_head = [row, head / layout.group()];
        let seen = layout.probabilities(scores, queries, keys, key_head, [start, start + count - 1]);
        if seen > 0 {
            let target = Target::new(&mut attended[head * head_size..], stride);
            let values = layout.seen(values, row, head / layout.group(), seen);
            multiply(target, false, 1.0, Matrix::rows(scores, seen), values, Threads::One);
        }
    }
}

/// Gradients with respect to what belongs to one head of keys: queries `[S, R·E]`, keys and values `[K, E]`.
struct HeadGradients {
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

pub(super) fn backward(
    queries: Tensor<Flex, 4>,
    keys: Tensor<Flex, 4>,
    values: Tensor<Flex, 4>,
    mask: &CausalMask<Flex>,
    grad: Tensor<Flex, 4>,
) -> [Tensor<Flex, 4>; 3] {
    let layout = Layout::new(&queries, &keys, mask);
    let shapes = [queries.dims(), keys.dims()];
    let inputs = [queries, keys, values, grad].map(contiguous);
    let inputs = inputs.each_ref().map(numbers);
    let units = layout.rows * layout.kv_heads;
    let unit = |scratch: &mut [Vec<f32>; 2], unit| {
        head_gradients(layout, scratch, inputs, [unit / layout.kv_heads, unit % layout.kv_heads])
    };
    let scratch = || [Vec::new(), Vec::new()];
    let parts: Vec<HeadGradients> = if layout.is_worth_threads() {
        (0..units).into_par_iter().map_init(scratch, unit).collect()
    } else {
        let mut scratch = scratch();
        (0..units).map(|index| unit(&mut scratch, index)).collect()
    };
    let gathered = |part: fn(&HeadGradients) -> &[f32], width: usize, shape: [usize; 4]| {
        let parts: Vec<&[f32]> = parts.iter().map(part).collect();
        tensor(interleaved(&parts, layout.kv_heads, width), shape)
    };
    [
        gathered(|part| &part.queries, layout.group() * layout.head, shapes[0]),
        gathered(|part| &part.keys, layout.head, shapes[1]),
        gathered(|part| &part.values, layout.head, shapes[1]),
    ]
}

/// Joins the parts of the heads of a row token by token: B·G lists `[T, width]` to `[B, T, G, width]`.
fn interleaved(parts: &[&[f32]], kv_heads: usize, width: usize) -> Vec<f32> {
    let mut joined = vec![0.0; parts.iter().map(|part| part.len()).sum()];
    let row = parts.first().map_or(1, |part| part.len() * kv_heads).max(1);
    joined.par_chunks_mut(row).zip(parts.par_chunks(kv_heads)).for_each(|(joined, parts)| {
        for (token, joined) in joined.chunks_exact_mut(kv_heads * width).enumerate() {
            for (joined, part) in joined.chunks_exact_mut(width).zip(parts) {
                joined.copy_from_slice(&part[token * width..][..width]);
            }
        }
    });
    joined
}

fn head_gradients(
    layout: Layout<'_>,
    [scores, score_grad]: &mut [Vec<f32>; 2],
    [queries, keys, values, grad]: [&[f32]; 4],
    [row, kv_head]: [usize; 2],
) -> HeadGradients {
    let (group, head_size, first) = (layout.group(), layout.head, layout.mask.first_key(row));
    let mut grads = HeadGradients {
        queries: vec![0.0; layout.queries() * group * head_size],
        keys: vec![0.0; layout.capacity * head_size],
        values: vec![0.0; layout.capacity * head_size],
    };
    for start in (0..layout.queries()).step_by(BLOCK) {
        let block = [start, BLOCK.min(layout.queries() - start)];
        for member in 0..group {
            let head = kv_head * group + member;
            let queries = layout.of_queries(queries, row, head, block);
            let last = start + block[1] - 1;
            let seen = layout.probabilities(scores, queries, keys, [row, kv_head], [start, last]);
            if seen == 0 {
                continue;
            }
            let given = layout.of_queries(grad, row, head, block);
            let probs = Matrix::rows(scores, seen);
            let target = Target::new(&mut grads.values[first * head_size..], head_size);
            multiply(target, true, 1.0, probs.transposed(), given, Threads::One);

            score_grad.resize(scores.len(), 0.0);
            let seen_values = layout.seen(values, row, kv_head, seen);
            let target = Target::new(score_grad, seen);
            multiply(target, false, 1.0, given, seen_values.transposed(), Threads::One);
            run(SoftmaxBackward { probs: scores, grad: score_grad, width: seen });

            let score_grad = Matrix::rows(score_grad, seen);
            let at = (start * group + member) * head_size;
            let target = Target::new(&mut grads.queries[at..], group * head_size);
            let seen_keys = layout.seen(keys, row, kv_head, seen);
            multiply(target, false, layout.scale(), score_grad, seen_keys, Threads::One);
            let target = Target::new(&mut grads.keys[first * head_size..], head_size);
            multiply(target, true, layout.scale(), score_grad.transposed(), queries, Threads::One);
        }
    }
    grads
}

/// Turns gradients of probabilities p into those of scores: p·(g − Σ p·g).
struct SoftmaxBackward<'a> {
    probs: &'a [f32],
    grad: &'a mut [f32],
    width: usize,
}

impl Kernel for SoftmaxBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let rows = self.grad.chunks_exact_mut(self.width).zip(self.probs.chunks_exact(self.width));
        for (grad, probs) in rows {
            let mean = sum_pairs(grad, probs, mul_add::<FMA>);
            for (grad, prob) in grad.iter_mut().zip(probs) {
                *grad = (*grad - mean) * prob;
            }
        }
    }
}

/// Writes behind the columns in use, where there is room; otherwise moves to memory that is half as large again, so that a cache
/// of n columns has been copied O(log n) times.
pub(super) fn extend_cache(cache: Tensor<Flex, 4>, columns: usize, new: Tensor<Flex, 4>) -> Tensor<Flex, 4> {
    let [rows, capacity, heads, head] = cache.dims();
    let [_, added, ..] = new.dims();
    let (needed, width) = (columns + added, heads * head);
    let mut cache: FlexTensor = cache.into_primitive().tensor();
    let new = contiguous(new);
    let new = numbers(&new);
    if needed <= capacity
        && cache.is_contiguous()
        && cache.layout().start_offset() == 0
        && let Some(memory) = cache.try_storage_mut::<f32>()
    {
        for (row, new) in memory.chunks_exact_mut(capacity * width).zip(new.chunks_exact(added * width)) {
            row[columns * width..needed * width].copy_from_slice(new);
        }
        return Tensor::from_primitive(TensorPrimitive::Float(cache));
    }
    let room = if needed <= capacity { capacity } else { needed + needed / 2 };
    let cache = cache.to_contiguous();
    let mut memory = Vec::with_capacity(rows * room * width);
    for (seen, new) in numbers(&cache).chunks_exact(capacity * width).zip(new.chunks_exact(added * width)) {
        memory.extend_from_slice(&seen[..columns * width]);
        memory.extend_from_slice(new);
        memory.resize(memory.len() + (room - needed) * width, 0.0);
    }
    tensor(memory, [rows, room, heads, head])
}
