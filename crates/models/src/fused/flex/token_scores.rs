//! Scores of chosen tokens: a chunk of logits at a time, never kept.

use burn::tensor::{Int, Tensor};
use burn_flex::{Flex, FlexTensor};
use firebrick_core::{EntropyMode, ScoreOptions, TokenScores};
use rayon::prelude::*;

use super::{
    contiguous,
    matrix::{Matrix, Target, Threads, multiply},
    numbers,
    simd::{Kernel, LANES, exp, exp_and_sum, highest, mul_add, run},
    tensor,
};

/// Logits that exist at once, if that is at least [`FEWEST_TOKENS`] tokens.
const LOGITS: usize = 1 << 22;

/// Tokens below which a product reads the head more often than is worth saving memory for.
const FEWEST_TOKENS: usize = 16;

/// Logits that one thread works on at a time.
const PIECE: usize = 1 << 14;

/// The operands in memory.
struct Operands {
    hidden: FlexTensor,
    head: FlexTensor,
    targets: Vec<usize>,
    width: usize,
    vocab: usize,
    inverse_temperature: f32,
    chunk: usize,
}

impl Operands {
    fn new(
        hidden: Tensor<Flex, 2>,
        head: Tensor<Flex, 2>,
        targets: Tensor<Flex, 1, Int>,
        options: ScoreOptions,
    ) -> Self {
        assert!(options.chunk_tokens > 0, "chunk_tokens = 0: allowed is at least 1");
        let [width, vocab] = head.dims();
        let head: FlexTensor = head.into_primitive().tensor();
        let is_plain = head.layout().strides().iter().all(|stride| *stride >= 0);
        Self {
            hidden: contiguous(hidden),
            head: if is_plain { head } else { head.to_contiguous() },
            targets: targets.into_data().iter::<i64>().map(|target| target as usize).collect(),
            width,
            vocab,
            inverse_temperature: (1.0 / options.temperature) as f32,
            chunk: options.chunk_tokens.min((LOGITS / vocab).max(FEWEST_TOKENS)),
        }
    }

    /// `[D, V]`, in the strides that it has: the head of tied weights is a transposed embedding.
    fn head(&self) -> Matrix<'_> {
        let layout = self.head.layout();
        let strides = [0, 1].map(|dim| layout.strides()[dim].unsigned_abs());
        let values: &[f32] = self.head.storage();
        Matrix::new(&values[layout.start_offset()..], [self.width, self.vocab], strides)
    }

    /// Whether the head lies in memory as `[V, D]`.
    fn is_transposed(&self) -> bool {
        let strides = self.head.layout().strides();
        strides[0] < strides[1]
    }

    /// Hidden states and targets, chunk by chunk.
    fn chunks(&self) -> impl Iterator<Item = (Matrix<'_>, &[usize])> {
        let hidden = numbers(&self.hidden).chunks(self.chunk * self.width);
        hidden.map(|hidden| Matrix::rows(hidden, self.width)).zip(self.targets.chunks(self.chunk))
    }

    /// Logits over the temperature of a chunk, into `logits`.
    fn logits(&self, hidden: Matrix<'_>, tokens: usize, logits: &mut Vec<f32>) {
        logits.resize(tokens * self.vocab, 0.0);
        let target = Target::new(logits, self.vocab);
        multiply(target, false, self.inverse_temperature, hidden, self.head(), Threads::All);
    }

    /// Tokens that one thread works on at a time.
    fn piece(&self) -> usize {
        (PIECE / self.vocab).max(1)
    }
}

pub(super) fn forward(
    hidden: Tensor<Flex, 2>,
    head: Tensor<Flex, 2>,
    targets: Tensor<Flex, 1, Int>,
    options: ScoreOptions,
) -> TokenScores<Flex> {
    let operands = Operands::new(hidden, head, targets, options);
    let with_entropy = options.entropy != EntropyMode::Skip;
    let tokens = operands.targets.len();
    let (mut log_probs, mut entropies) = (Vec::with_capacity(tokens), Vec::new());
    let mut logits = Vec::new();
    for (hidden, targets) in operands.chunks() {
        operands.logits(hidden, targets.len(), &mut logits);
        let (piece, vocab) = (operands.piece(), operands.vocab);
        let pieces = logits.par_chunks(piece * vocab).zip(targets.par_chunks(piece));
        let scores: Vec<Vec<[f32; 2]>> =
            pieces.map(|(logits, targets)| run(Score { logits, targets, with_entropy })).collect();
        log_probs.extend(scores.iter().flatten().map(|[log_prob, _]| log_prob));
        if with_entropy {
            entropies.extend(scores.iter().flatten().map(|[_, entropy]| entropy));
        }
    }
    TokenScores {
        log_probs: tensor(log_probs, [tokens]),
        entropies: with_entropy.then(|| tensor(entropies, [tokens])),
    }
}

/// Log-prob and entropy of each row of logits.
struct Score<'a> {
    logits: &'a [f32],
    targets: &'a [usize],
    with_entropy: bool,
}

impl Kernel for Score<'_> {
    type Output = Vec<[f32; 2]>;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Self::Output {
        let rows = self.logits.chunks_exact(self.logits.len() / self.targets.len()).zip(self.targets);
        let mut scores = Vec::with_capacity(self.targets.len());
        for (row, target) in rows {
            let shift = highest(row);
            let [sum, mean] = moments::<FMA>(row, shift, self.with_entropy);
            scores.push([row[*target] - shift - sum.ln(), sum.ln() - mean]);
        }
        scores
    }
}

/// Σ e^z of shifted logits z, and their mean Σ z·e^z / Σ e^z where it is wanted.
#[inline(always)]
fn moments<const FMA: bool>(row: &[f32], shift: f32, with_mean: bool) -> [f32; 2] {
    let (mut sums, mut products) = ([0.0f32; LANES], [0.0f32; LANES]);
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            let shifted = chunk[lane] - shift;
            let weight = exp::<FMA>(shifted);
            sums[lane] += weight;
            if with_mean {
                products[lane] = mul_add::<FMA>(weight, shifted, products[lane]);
            }
        }
    }
    let (mut sum, mut product) = (sums.iter().sum::<f32>(), products.iter().sum::<f32>());
    for x in rest {
        let weight = exp::<FMA>(x - shift);
        sum += weight;
        product += weight * (x - shift);
    }
    [sum, product / sum]
}

pub(super) fn backward(
    hidden: Tensor<Flex, 2>,
    head: Tensor<Flex, 2>,
    targets: Tensor<Flex, 1, Int>,
    options: ScoreOptions,
    (log_prob_grad, entropy_grad): (Tensor<Flex, 1>, Option<Tensor<Flex, 1>>),
    head_wanted: bool,
) -> (Tensor<Flex, 2>, Option<Tensor<Flex, 2>>) {
    let operands = Operands::new(hidden, head, targets, options);
    let (width, vocab, tokens) = (operands.width, operands.vocab, operands.targets.len());
    let log_prob_grad = contiguous(log_prob_grad);
    let entropy_grad = entropy_grad.map(contiguous);
    let mut log_prob_grads = numbers(&log_prob_grad).chunks(operands.chunk);
    let mut entropy_grads = entropy_grad.as_ref().map(|grad| numbers(grad).chunks(operands.chunk));

    let mut hidden_grad = vec![0.0; tokens * width];
    let mut head_grad = head_wanted.then(|| vec![0.0; width * vocab]);
    let scale = operands.inverse_temperature;
    let mut logits = Vec::new();
    for ((hidden, targets), hidden_grad) in
        operands.chunks().zip(hidden_grad.chunks_mut(operands.chunk * width))
    {
        operands.logits(hidden, targets.len(), &mut logits);
        let log_prob_grads = log_prob_grads.next().unwrap_or_default();
        let entropy_grads = entropy_grads.as_mut().and_then(Iterator::next);
        let piece = operands.piece();
        logits.par_chunks_mut(piece * vocab).enumerate().for_each(|(index, logits)| {
            let part = index * piece..(index * piece + logits.len() / vocab);
            run(ScoreBackward {
                logits,
                targets: &targets[part.clone()],
                log_prob_grads: &log_prob_grads[part.clone()],
                entropy_grads: entropy_grads.map(|grads| &grads[part]),
            });
        });
        let grad = Matrix::rows(&logits, vocab);
        let target = Target::new(hidden_grad, width);
        multiply(target, false, scale, grad, operands.head().transposed(), Threads::All);
        let Some(head_grad) = &mut head_grad else { continue };
        let (a, b, row) = match operands.is_transposed() {
            true => (grad.transposed(), hidden, width),
            false => (hidden.transposed(), grad, vocab),
        };
        multiply(Target::new(head_grad, row), true, scale, a, b, Threads::All);
    }
    let head_grad = head_grad.map(|head_grad| match operands.is_transposed() {
        true => tensor(head_grad, [vocab, width]).transpose(),
        false => tensor(head_grad, [width, vocab]),
    });
    (tensor(hidden_grad, [tokens, width]), head_grad)
}

/// Turns logits into the gradients of the logits.
struct ScoreBackward<'a> {
    logits: &'a mut [f32],
    targets: &'a [usize],
    log_prob_grads: &'a [f32],
    entropy_grads: Option<&'a [f32]>,
}

impl Kernel for ScoreBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let vocab = self.logits.len() / self.targets.len();
        for (index, row) in self.logits.chunks_exact_mut(vocab).enumerate() {
            let given = self.log_prob_grads[index];
            let shift = highest(row);
            match self.entropy_grads {
                None => {
                    let factor = -given / exp_and_sum::<FMA>(row, shift);
                    row.iter_mut().for_each(|x| *x *= factor);
                }
                Some(entropy_grads) => {
                    let [sum, mean] = moments::<FMA>(row, shift, true);
                    // log p + entropy = z − log Σ e^z + log Σ e^z − mean
                    for x in row.iter_mut() {
                        let shifted = *x - shift;
                        let prob = exp::<FMA>(shifted) / sum;
                        *x = -prob * mul_add::<FMA>(entropy_grads[index], shifted - mean, given);
                    }
                }
            }
            row[self.targets[index]] += given;
        }
    }
}
