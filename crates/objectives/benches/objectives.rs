//! Host time of objectives, advantages and diagnostics per policy token.
//!
//! ```text
//! cargo bench -p firebrick-objectives                   everything, then a table in ns per token with a check of growth
//! cargo bench -p firebrick-objectives -- evaluate tapo  the benches whose names hold these words
//! ```
#![expect(clippy::print_stdout, reason = "a bench reports to the terminal")]

use std::{hint::black_box, sync::LazyLock, time::Instant};

use divan::{Bencher, counter::ItemsCount};
use firebrick_core::{
    AdvantageEstimator, Current, LogProbs, Objective, OptimizerBatch, ResponseTerms, RewardBatch, RewardRow,
    TopK,
};
use firebrick_objectives::{AdvantageConfig, Denominator, ObjectiveConfig, PositionDiagnostics, Preset};
use firebrick_testkit::TestResponse;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};

const ROWS: usize = 64;
const LEN: usize = 2048;
const LONG_ROWS: usize = 1024;
const LONG_LEN: usize = 20_000;
/// Rows per prompt.
const GROUP: usize = 8;
/// Policy tokens of an optimizer batch whose time is printed in milliseconds, in [`ROWS`] responses of about the same length.
const BATCH_TOKENS: usize = 80_456;
/// Advantages whose time grows with tokens or rows, as the config names them. One that scans tokens belongs here too.
const ADVANTAGES: [&str; 4] = [
    "type = 'group_normalized'",
    "type = 'group_centered'",
    "type = 'reinforce_plus_plus'",
    "type = 'gae', lambda = 0.95, whiten = {}",
];

/// What presets leave open.
fn open_key(preset: &str, key: &str) -> &'static str {
    match (preset, key) {
        (_, "aggregation.norm") => "2048.0",
        ("pnpo", "schedule.eps_minus" | "schedule.eps_plus") => "0.05",
        ("min_pro", "schedule.high") => "0.2",
        ("trm", "gate.threshold") => "0.05",
        ("pass_at_k", "advantage.k") => "4",
        ("gmc_grpo", "estimator.eps") => "0.2",
        other => panic!("choose a value for {other:?}"),
    }
}

static ONE_THREAD: LazyLock<ThreadPool> = LazyLock::new(|| threads(1));
static TWO_THREADS: LazyLock<ThreadPool> = LazyLock::new(|| threads(2));

fn threads(number: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(number).build().expect("threads can be started")
}

fn main() {
    divan::main();
    // A choice of benches, a listing or a test run wants no table.
    if std::env::args().skip(1).all(|argument| argument == "--bench") {
        print_table();
    }
}

fn presets() -> impl Iterator<Item = &'static str> {
    Preset::all().iter().map(|preset| preset.name)
}

#[divan::bench(args = presets())]
fn evaluate_one_thread(bencher: Bencher<'_, '_>, preset: &str) {
    let batch = Batch::new(preset, ROWS, LEN);
    bencher.counter(ItemsCount::new(ROWS * LEN)).bench_local(|| batch.evaluate());
}

#[divan::bench(args = presets())]
fn evaluate_two_threads(bencher: Bencher<'_, '_>, preset: &str) {
    let batch = Batch::new(preset, ROWS, LEN);
    bencher.counter(ItemsCount::new(ROWS * LEN)).bench_local(|| batch.evaluate_in_parallel());
}

#[divan::bench(args = presets())]
fn prepare(bencher: Bencher<'_, '_>, preset: &str) {
    let mut batch = Batch::new(preset, ROWS, LEN);
    bencher.counter(ItemsCount::new(ROWS * LEN)).bench_local(|| batch.prepare());
}

#[divan::bench(args = ADVANTAGES)]
fn advantages(bencher: Bencher<'_, '_>, config: &str) {
    let (mut estimator, batch) = (estimator(config), rewards(&[LEN; ROWS]));
    bencher.counter(ItemsCount::new(ROWS * LEN)).bench_local(|| estimator.advantages(black_box(&batch)));
}

#[divan::bench(args = ADVANTAGES)]
fn advantages_of_a_batch(bencher: Bencher<'_, '_>, config: &str) {
    let (mut estimator, batch) = (estimator(config), rewards(&batch_lengths()));
    bencher.counter(ItemsCount::new(BATCH_TOKENS)).bench_local(|| estimator.advantages(black_box(&batch)));
}

/// Rows × tokens of each row: the first positions of a row, each a bucket of its own, cost more than later ones.
#[divan::bench(args = [(ROWS, LEN), (ROWS, 64)])]
fn diagnostics_add(bencher: Bencher<'_, '_>, (rows, len): (usize, usize)) {
    let batch = Batch::new("tapo", rows, len);
    let terms = batch.terms();
    let responses: Vec<_> = batch.responses.iter().map(TestResponse::tokens).collect();
    bencher.counter(ItemsCount::new(rows * len)).bench_local(|| {
        let mut diagnostics = PositionDiagnostics::default();
        for (response, terms) in responses.iter().zip(&terms) {
            diagnostics.add(black_box(response), terms);
        }
        diagnostics
    });
}

#[divan::bench]
fn diagnostics_report(bencher: Bencher<'_, '_>) {
    let batch = Batch::new("tapo", ROWS, LEN);
    let mut diagnostics = PositionDiagnostics::default();
    for (response, terms) in batch.responses.iter().zip(batch.terms()) {
        diagnostics.add(&response.tokens(), &terms);
    }
    bencher.bench_local(|| black_box(&diagnostics).report());
}

/// Best times in ns per token, and whether they stay when rows and tokens grow.
fn print_table() {
    println!(
        "\nbest of several: ns per token (each response for itself, but for two threads), and ms of a batch of"
    );
    println!(
        "{BATCH_TOKENS} policy tokens in {ROWS} responses, of its evaluation and, where parts look at all of it, preparation:"
    );
    println!(
        "{:<30}{:>12}{:>13}{:>15}{:>8}{:>12}{:>13}{:>12}",
        "preset",
        format!("{ROWS} x {LEN}"),
        "two threads",
        format!("{LONG_ROWS} x {LONG_LEN}"),
        "growth",
        "ms",
        "two threads",
        "prepare ms"
    );
    for preset in presets() {
        let short = Batch::new(preset, ROWS, LEN);
        let one = short.best_by_row(LONG_ROWS / ROWS);
        let two = best(50, || short.evaluate_in_parallel()) * 1e9 / (ROWS * LEN) as f64;
        // The long batch is 64 rows gone over 16 times: all of it at once would fill the memory and show nothing else.
        let long = Batch::new(preset, ROWS, LONG_LEN).best_by_row(LONG_ROWS / ROWS);
        let mut batch = Batch::of(preset, &batch_lengths());
        let [ms, ms_two] = [batch.best_ms(&ONE_THREAD), batch.best_ms(&TWO_THREADS)];
        let is_prepared = !batch.objective.stateful_parts().is_empty();
        let prepared = if is_prepared {
            let seconds = best(30, || {
                batch.prepare();
                0.0
            });
            format!("{:.2}", seconds * 1e3)
        } else {
            "-".to_owned()
        };
        println!(
            "{preset:<30}{one:>12.1}{two:>13.1}{long:>15.1}{:>8.2}{ms:>12.2}{ms_two:>13.2}{prepared:>12}",
            long / one
        );
    }
    println!("\n{:<50}{:>12}", "advantages", "ms");
    for config in ADVANTAGES {
        let (mut estimator, batch) = (estimator(config), rewards(&batch_lengths()));
        let seconds = best(30, || {
            let found = estimator.advantages(black_box(&batch)).expect("the rewards can be used");
            found.rows.len() as f64
        });
        println!("{config:<50}{:>12.3}", seconds * 1e3);
    }
}

/// [`BATCH_TOKENS`] in [`ROWS`] responses.
fn batch_lengths() -> [usize; ROWS] {
    std::array::from_fn(|row| BATCH_TOKENS / ROWS + usize::from(row < BATCH_TOKENS % ROWS))
}

/// Best time of `work` in seconds.
fn best(times: usize, mut work: impl FnMut() -> f64) -> f64 {
    let mut time = || {
        let start = Instant::now();
        black_box(work());
        start.elapsed().as_secs_f64()
    };
    (0..times).map(|_| time()).fold(f64::INFINITY, f64::min)
}

/// Responses with everything that the objective of a preset may ask for.
struct Batch {
    objective: Box<dyn Objective>,
    responses: Vec<TestResponse>,
    current: Vec<LogProbs<Current>>,
    weights: Vec<f64>,
}

impl Batch {
    fn new(preset: &str, rows: usize, len: usize) -> Self {
        Self::of(preset, &vec![len; rows])
    }

    fn of(preset: &str, lengths: &[usize]) -> Self {
        let recipe = config(preset).build();
        let top_k = recipe.requirements().top_k;
        let responses: Vec<_> =
            lengths.iter().enumerate().map(|(row, len)| response(row, *len, top_k)).collect();
        let denominator = Denominator::of(lengths.iter().copied()).expect("there are tokens");
        let weight = |len: &usize| recipe.aggregation.weight(&denominator, *len);
        let weights = lengths.iter().map(weight).collect();
        let current = responses.iter().map(|response| response.current().clone()).collect();
        let mut batch = Self { objective: recipe.objective, responses, current, weights };
        batch.prepare();
        batch
    }

    fn prepare(&mut self) {
        let contexts: Vec<_> = self.responses.iter().map(TestResponse::context).collect();
        let batch = OptimizerBatch { responses: &contexts, current: Some(&self.current) };
        for (name, part) in self.objective.stateful_parts() {
            part.prepare(&batch).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    /// From log-probs to value and coefficients; the sum keeps the work from being optimised away.
    fn evaluate_row(&self, (response, weight): (&TestResponse, &f64)) -> f64 {
        let terms = self.objective.evaluate(&response.tokens(), *weight);
        terms.loss + terms.coefficients.last().copied().unwrap_or(0.0)
    }

    fn evaluate(&self) -> f64 {
        self.responses.iter().zip(&self.weights).map(|row| self.evaluate_row(row)).sum()
    }

    /// Time in ns per token, from the best of `passes` times of each response: short enough not to be interrupted. The terms
    /// of a response are kept until those of the next are there, as a caller does who reads them; dropped at once, those
    /// of a long response go back to the system, and the time is that of getting their pages again.
    fn best_by_row(&self, passes: usize) -> f64 {
        let rows: Vec<_> = self.responses.iter().zip(&self.weights).collect();
        let mut times = vec![f64::INFINITY; rows.len()];
        let mut kept = ResponseTerms::default();
        for _ in 0..passes {
            for (time, (response, weight)) in times.iter_mut().zip(&rows) {
                let start = Instant::now();
                let terms = black_box(self.objective.evaluate(&response.tokens(), **weight));
                *time = time.min(start.elapsed().as_secs_f64());
                drop(std::mem::replace(&mut kept, terms));
            }
        }
        let tokens: usize = self.responses.iter().map(|response| response.context().len()).sum();
        times.iter().sum::<f64>() * 1e9 / tokens as f64
    }

    /// As a trainer calls it: responses in parallel, their terms collected.
    fn collect_in(&self, pool: &ThreadPool) -> f64 {
        let evaluate =
            |(response, weight): (&TestResponse, &f64)| self.objective.evaluate(&response.tokens(), *weight);
        let terms: Vec<ResponseTerms> =
            pool.install(|| self.responses.par_iter().zip(&self.weights).map(evaluate).collect());
        black_box(terms).iter().map(|terms| terms.loss).sum()
    }

    fn evaluate_in_parallel(&self) -> f64 {
        self.collect_in(&TWO_THREADS)
    }

    /// Best time in milliseconds.
    fn best_ms(&self, pool: &ThreadPool) -> f64 {
        best(30, || self.collect_in(pool)) * 1e3
    }

    fn terms(&self) -> Vec<ResponseTerms> {
        let evaluate =
            |(response, weight): (&TestResponse, &f64)| self.objective.evaluate(&response.tokens(), *weight);
        self.responses.iter().zip(&self.weights).map(evaluate).collect()
    }
}

fn config(preset: &str) -> ObjectiveConfig {
    let required = &Preset::find(preset).expect("the name is a preset's").required;
    let keys: String = required.keys().map(|key| format!("{key} = {}\n", open_key(preset, key))).collect();
    let config: ObjectiveConfig =
        format!("type = {preset:?}\n{keys}").parse().unwrap_or_else(|error| panic!("{preset}: {error}"));
    config.validate().unwrap_or_else(|error| panic!("{preset}: {error}"));
    config
}

fn estimator(config: &str) -> Box<dyn AdvantageEstimator> {
    let lines = config.replace(", ", "\n");
    let config: AdvantageConfig = toml::from_str(&lines).unwrap_or_else(|error| panic!("{config}: {error}"));
    config.build()
}

/// Log-ratios of deviation 0.05 around −0.00125, so that some tokens meet a bound of every preset.
fn response(row: usize, len: usize, top_k: usize) -> TestResponse {
    let mut rng = ChaCha8Rng::seed_from_u64(row as u64);
    let mut table = |of: &mut dyn FnMut(f64) -> f64| -> Vec<f64> {
        (0..len).map(|_| of(standard_normal(&mut rng))).collect()
    };
    let behaviour = table(&mut |normal| -0.1 - normal.abs());
    let mut moved = |deviation: f64| -> Vec<f64> {
        let drift = table(&mut |normal| deviation * normal - deviation * deviation / 2.0);
        behaviour.iter().zip(drift).map(|(behaviour, drift)| behaviour + drift).collect()
    };
    let (current, proximal, reference) = (moved(0.05), moved(0.02), moved(0.1));
    let entropies = table(&mut |normal| normal.abs());
    let advantage = if row.is_multiple_of(2) { 1.0 } else { -1.0 };
    let complete = TestResponse::new(&behaviour, &current, &vec![advantage; len])
        .with_reference(&reference)
        .with_proximal(&proximal)
        .with_entropies(&entropies)
        .map_context(|context| {
            context.with_index(row).with_group(row / GROUP).with_seed(row as u64).with_max_response_len(len)
        });
    if top_k == 0 {
        return complete;
    }
    // The sampled token is among the most likely; the others share half of the rest.
    let likely = |log_probs: &[f64]| -> Vec<f64> {
        let other = |log_prob: f64| (-log_prob.exp_m1()).max(1e-12).ln() - (2.0 * top_k as f64).ln();
        let entry = |log_prob: f64| move |rank: usize| if rank == 0 { log_prob } else { other(log_prob) };
        log_probs.iter().flat_map(|log_prob| (0..top_k).map(entry(*log_prob))).collect()
    };
    let (log_probs, current) = (likely(&behaviour), likely(&current));
    let tokens = (0..top_k * len).map(|token| token as u32).collect();
    complete.with_top_k(TopK { k: top_k, tokens, log_probs, holds_sampled: vec![true; len] }, &current)
}

fn rewards(lengths: &[usize]) -> RewardBatch {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut row = |(index, len): (usize, &usize)| {
        let len = *len;
        let values = (0..len).map(|_| rng.random::<f64>()).collect();
        RewardRow::new(index / GROUP, Some(f64::from(rng.random::<bool>())), len)
            .with_prompt(format!("prompt {}", index / GROUP))
            .with_penalties(vec![1e-3; len])
            .with_values(values)
            .with_greedy_reward(Some(0.5))
    };
    RewardBatch { rows: lengths.iter().enumerate().map(&mut row).collect() }
}

/// Box-Muller.
fn standard_normal(rng: &mut ChaCha8Rng) -> f64 {
    let (radius, angle): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
