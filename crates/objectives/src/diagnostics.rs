//! How the gap between the policies grows along a response.

mod bucket;
mod moments;
mod position_report;

pub use position_report::{ClipFractions, PositionReport};

use firebrick_core::{ResponseTerms, ResponseTokens};

use bucket::{Acted, LogRatios, Prefixes, bucket_of, ranges};

/// Drift, clipping and effective sample size by position, gathered response by response.
///
/// Positions t count policy tokens from 1. Each of the first 64 is a bucket of its own; later buckets grow by a quarter each
/// (65–80, 81–100, 101–125, …). For every bucket the log prefix ratio is compared with what independent Gaussian drift of
/// the tokens would give:
///
/// ```text
/// log R_t = (1/t) Σ_{k≤t} d_k              d_k = log π_θ(y_k) − log π_anchor(y_k), nats
/// d_k ~ N(−σ²/2, σ²)  ⇒  log R_t ~ N(m*, q*_t²),  m* = −σ²/2,  q*_t = σ/√t
/// ```
///
/// where σ² is the variance of d over all tokens. A spread that falls more slowly than 1/√t says that the tokens of a
/// response drift together, and that a window that narrows as 1/√t is too narrow for late tokens.
///
/// The sums are exact: neither the order of the responses nor how they are divided among diagnostics that are merged later
/// changes a bit of the report.
///
/// ```
/// use firebrick_core::{LogProbs, Objective, ResponseContext, ResponseTokens};
/// use firebrick_objectives::{ObjectiveConfig, PositionDiagnostics};
///
/// let objective = ObjectiveConfig::preset("tapo")?.objective();
/// let mut diagnostics = PositionDiagnostics::default();
/// for drift in [0.3, -0.1] {
///     let context = ResponseContext::new(LogProbs::new(vec![-1.0; 3]), vec![1.0; 3])?;
///     let current = LogProbs::new(vec![-1.0 + drift; 3]);
///     let response = ResponseTokens::new(&context, &current)?;
///     diagnostics.add(&response, &objective.evaluate(&response, 1.0 / 6.0));
/// }
/// let report = diagnostics.report();
/// assert!((report.sigma.unwrap() - 0.2).abs() < 1e-9);
/// // All tokens of a response drift alike: the spread does not fall at all.
/// assert!(report.slope.unwrap().abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Reference*: the law of the prefix ratio: TAPO, 2026, arXiv:2610.13020; the effective sample size: Kish, "Survey
/// sampling", 1965.
#[derive(Debug, Clone, Default)]
pub struct PositionDiagnostics {
    not_finite: u64,
    log_ratios: LogRatios,
    /// By bucket.
    acted: Vec<Acted>,
    /// By the bucket that a response ends in: only so can rows that reach a bucket be told from the others later.
    ended: Vec<Ended>,
}

/// Responses that end in the same bucket.
#[derive(Debug, Clone, Default)]
struct Ended {
    responses: u64,
    /// By bucket.
    prefixes: Vec<Prefixes>,
}

impl PositionDiagnostics {
    /// Adds a response and what the objective made of it. A response whose log-ratios or weights hold a NaN is counted
    /// ([`PositionReport::not_finite`]) and left out.
    ///
    /// # Panics
    /// When the terms are those of a response of another length. Log-weights, windows and bindings may be absent.
    pub fn add(&mut self, response: &ResponseTokens<'_>, terms: &ResponseTerms) {
        let log_ratios = response.log_ratios();
        let len = log_ratios.len();
        for found in [terms.log_weights.len(), terms.windows.len(), terms.bindings.len()] {
            assert!(found == len || found == 0, "terms of {found} tokens for a response of {len}");
        }
        if len == 0 {
            return;
        }
        if log_ratios.iter().chain(&terms.log_weights).any(|value| value.is_nan()) {
            self.not_finite += 1;
            return;
        }
        let last = bucket_of(len);
        self.grow(last + 1);
        let ended = &mut self.ended[last];
        ended.responses += 1;
        ended.prefixes.resize(last + 1, Prefixes::default());

        let mut sum = 0.0;
        let mut moments = self.log_ratios;
        for (prefixes, tokens) in ended.prefixes.iter_mut().zip(ranges(len)) {
            for index in tokens {
                let t = (index + 1) as f64;
                sum += log_ratios[index];
                prefixes.add(sum / t, t);
                moments.add(log_ratios[index]);
            }
        }
        self.log_ratios = moments;

        let ResponseTerms { log_weights, windows, bindings, .. } = terms;
        for (acted, tokens) in self.acted.iter_mut().zip(ranges(bindings.len())) {
            acted.add_bindings(&response.advantages()[tokens.clone()], &bindings[tokens]);
        }
        for (acted, tokens) in self.acted.iter_mut().zip(ranges(log_weights.len())) {
            if windows.is_empty() {
                acted.add_weights(&log_weights[tokens]);
            } else {
                acted.add_windows(&log_weights[tokens.clone()], &windows[tokens]);
            }
        }
    }

    /// Adds what `other` has gathered.
    pub fn merge(&mut self, other: &Self) {
        self.not_finite += other.not_finite;
        self.log_ratios.merge(&other.log_ratios);
        self.grow(other.acted.len());
        for (own, other) in self.acted.iter_mut().zip(&other.acted) {
            own.merge(other);
        }
        for (own, other) in self.ended.iter_mut().zip(&other.ended) {
            own.responses += other.responses;
            own.prefixes.resize(own.prefixes.len().max(other.prefixes.len()), Prefixes::default());
            for (own, other) in own.prefixes.iter_mut().zip(&other.prefixes) {
                own.merge(other);
            }
        }
    }

    /// What has been gathered so far.
    pub fn report(&self) -> PositionReport {
        PositionReport::new(self)
    }

    /// Makes room for this many buckets.
    fn grow(&mut self, buckets: usize) {
        if buckets > self.acted.len() {
            self.acted.resize(buckets, Acted::default());
            self.ended.resize(buckets, Ended::default());
        }
    }

    /// How many responses reach bucket `bucket`.
    fn reaching(&self, bucket: usize) -> u64 {
        self.ended[bucket..].iter().map(|ended| ended.responses).sum()
    }

    /// Prefix ratios in `bucket` of the responses that reach bucket `until`.
    fn prefixes(&self, bucket: usize, until: usize) -> Prefixes {
        let mut all = Prefixes::default();
        for prefixes in self.ended[until.max(bucket)..].iter().filter_map(|ended| ended.prefixes.get(bucket))
        {
            all.merge(prefixes);
        }
        all
    }
}
