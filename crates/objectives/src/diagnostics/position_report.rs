//! The numbers of a report by position.

use firebrick_core::Binding;
use serde::{Deserialize, Serialize};

use super::{
    PositionDiagnostics,
    bucket::{Bindings, Prefixes, Weights, next_end},
};

/// Drift, clipping and effective sample size by position. Lists have one entry per bucket of positions; what is not
/// defined is `None`, null in JSON.
///
/// Deviations are those of a population (ddof 0), over all tokens of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PositionReport {
    /// Responses with at least one policy token.
    pub responses: u64,
    /// Their policy tokens.
    pub tokens: u64,
    /// Responses that were left out because a log-ratio or a weight was NaN.
    pub not_finite: u64,
    /// Mean of the token log-ratios d (nats).
    pub log_ratio_mean: Option<f64>,
    /// Deviation σ of the token log-ratios (nats), over all tokens.
    pub sigma: Option<f64>,
    /// −2 · mean(d) / σ²: 1 when d is Gaussian and the ratios have mean 1. `None` for σ = 0.
    pub kl_consistency: Option<f64>,
    /// m* = −σ²/2, what the mean of log R_t should be at every position (nats).
    pub predicted_mean: Option<f64>,
    /// Slope of ln std on ln position: −0.5 for independent tokens, 0 when all tokens of a response drift alike. By least
    /// squares over the buckets that at least two responses reach and whose std is positive, each weighted by the number
    /// of responses that reach it (the sampling variance of ln std falls as one over that number); when all responses
    /// reach every bucket these are ordinary least squares.
    pub slope: Option<f64>,
    /// Responses that reach the last bucket which a tenth of the responses, and at least two, reach. Short responses
    /// drop out along t, so the spread over all of them mixes drift with who is left.
    pub survivors: u64,
    /// First position of that bucket.
    pub survivor_position: Option<u64>,
    /// The slope over the survivors alone, up to that bucket.
    pub survivor_slope: Option<f64>,
    /// Effective sample size of the importance weights as a share of the tokens, (Σw)² / (n Σw²), in (0, 1]; to about six
    /// digits.
    pub ess: Option<f64>,

    /// First position of each bucket.
    pub first_position: Vec<u64>,
    /// Last position of each bucket, whether or not a response reaches it.
    pub last_position: Vec<u64>,
    /// The position that stands for the bucket: harmonic mean of its tokens' positions, for which σ/√t is the
    /// prediction over the bucket.
    pub position: Vec<f64>,
    /// Responses that reach the bucket.
    pub reaching: Vec<u64>,
    /// Tokens in the bucket.
    pub count: Vec<u64>,
    /// Mean of log R_t (nats).
    pub mean: Vec<f64>,
    /// Deviation of log R_t (nats); `None` where only one response is left, which says nothing of the spread.
    pub std: Vec<Option<f64>>,
    /// Prediction σ · √(mean of 1/t) of that deviation (nats).
    pub predicted_std: Vec<f64>,
    /// mean − m* (nats).
    pub mean_gap: Vec<f64>,
    /// std / predicted std: 1 for independent tokens, √t when all tokens of a response drift alike.
    pub std_ratio: Vec<Option<f64>>,
    /// Deviation of log R_t over the survivors (nats); `None` beyond their last bucket.
    pub survivor_std: Vec<Option<f64>>,
    /// Share of the tokens with a positive advantage that each bound acts on.
    pub clip_positive: ClipFractions,
    /// Share of the tokens with a negative advantage that each bound acts on.
    pub clip_negative: ClipFractions,
    /// Share of the tokens whose weight lies below its window, whatever the advantage.
    pub below_window: Vec<Option<f64>>,
    /// Share of the tokens whose weight lies above its window, whatever the advantage.
    pub above_window: Vec<Option<f64>>,
    /// Effective sample size of the weights as a share of the bucket's tokens.
    pub ess_by_position: Vec<Option<f64>>,
}

/// Shares of tokens that a bound acts on, one entry per bucket; `None` where no token has the advantage's sign.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClipFractions {
    /// The window's lower end.
    pub low: Vec<Option<f64>>,
    /// The window's upper end.
    pub high: Vec<Option<f64>>,
    /// An outer bound (dual clip, ratio clamp).
    pub outer: Vec<Option<f64>>,
    /// Another reason than the weight.
    pub dropped: Vec<Option<f64>>,
}

impl ClipFractions {
    fn push(&mut self, tokens: &Bindings) {
        let all = tokens.iter().sum();
        let of = |binding: Binding| tokens[binding as usize];
        self.low.push(share(of(Binding::Low), all));
        self.high.push(share(of(Binding::High), all));
        self.outer.push(share(of(Binding::OuterLow) + of(Binding::OuterHigh), all));
        self.dropped.push(share(of(Binding::Dropped), all));
    }
}

impl PositionReport {
    pub(super) fn new(found: &PositionDiagnostics) -> Self {
        let variance = found.log_ratios.variance();
        let log_ratio_mean = found.log_ratios.mean();
        let positive = variance.filter(|variance| *variance > 0.0);
        let mut report = Self {
            tokens: found.log_ratios.count(),
            not_finite: found.not_finite,
            log_ratio_mean,
            sigma: variance.map(f64::sqrt),
            kl_consistency: log_ratio_mean.zip(positive).map(|(mean, variance)| -2.0 * mean / variance),
            predicted_mean: variance.map(|variance| -variance / 2.0),
            ..Self::default()
        };
        let buckets = found.acted.len();
        if buckets == 0 {
            return report;
        }
        report.responses = found.reaching(0);
        let survivors = 2.max(report.responses.div_ceil(10));
        let until = (0..buckets).rev().find(|bucket| found.reaching(*bucket) >= survivors);
        report.survivors = until.map_or(0, |bucket| found.reaching(bucket));

        let (mut all, mut left) = (Slope::default(), Slope::default());
        let mut weights = Weights::default();
        let mut end = 0;
        for bucket in 0..buckets {
            let last = next_end(end);
            report.first_position.push(end as u64 + 1);
            report.last_position.push(last as u64);
            end = last;

            let prefixes = found.prefixes(bucket, bucket);
            report.push_prefixes(&prefixes, found.reaching(bucket), &mut all);
            let reached = until.filter(|until| bucket <= *until);
            report.survivor_std.push(reached.and_then(|until| {
                let prefixes = found.prefixes(bucket, until);
                left.add(&prefixes, report.survivors)
            }));

            let acted = &found.acted[bucket];
            let [negative, _, positive] = &acted.bindings;
            report.clip_negative.push(negative);
            report.clip_positive.push(positive);
            report.below_window.push(share(acted.below, acted.windowed));
            report.above_window.push(share(acted.above, acted.windowed));
            report.ess_by_position.push(acted.weights.effective_share());
            weights.merge(&acted.weights);
        }
        report.survivor_position = until.map(|bucket| report.first_position[bucket]);
        report.slope = all.value();
        report.survivor_slope = left.value();
        report.ess = weights.effective_share();
        report
    }

    fn push_prefixes(&mut self, prefixes: &Prefixes, reaching: u64, slope: &mut Slope) {
        let inverse = prefixes.inverse_position();
        let std = slope.add(prefixes, reaching);
        // Every bucket up to the last holds a token.
        let mean = prefixes.moments.mean().unwrap_or_default();
        let predicted_std = self.sigma.unwrap_or_default() * inverse.sqrt();
        self.position.push(1.0 / inverse);
        self.reaching.push(reaching);
        self.count.push(prefixes.moments.count());
        self.mean.push(mean);
        self.std.push(std);
        self.predicted_std.push(predicted_std);
        self.mean_gap.push(mean - self.predicted_mean.unwrap_or_default());
        self.std_ratio.push(std.filter(|_| predicted_std > 0.0).map(|std| std / predicted_std));
    }

    /// Names and values for a metrics file; what is not defined is left out. `position/std_ratio_last` is that of the last
    /// bucket which a tenth of the responses, and at least two, reach.
    pub fn scalars(&self) -> Vec<(&'static str, f64)> {
        let last = self.survivor_std.iter().rposition(Option::is_some);
        let all = [
            ("position/sigma", self.sigma),
            ("position/log_ratio_mean", self.log_ratio_mean),
            ("position/kl_consistency", self.kl_consistency),
            ("position/slope", self.slope),
            ("position/survivor_slope", self.survivor_slope),
            ("position/std_ratio_last", last.and_then(|bucket| self.std_ratio[bucket])),
            ("position/ess", self.ess),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

/// Least squares of ln std on ln position.
#[derive(Default)]
struct Slope {
    /// (ln position, ln std, weight).
    points: Vec<(f64, f64, f64)>,
}

impl Slope {
    /// Adds a bucket that `responses` responses reach, and returns its deviation when there are two of them.
    fn add(&mut self, prefixes: &Prefixes, responses: u64) -> Option<f64> {
        let std = prefixes.moments.variance().filter(|_| responses >= 2)?.sqrt();
        if std > 0.0 {
            self.points.push((-prefixes.inverse_position().ln(), std.ln(), responses as f64));
        }
        Some(std)
    }

    /// The slope; `None` with fewer than two points.
    fn value(&self) -> Option<f64> {
        if self.points.len() < 2 {
            return None;
        }
        let mean = |of: &dyn Fn(&(f64, f64, f64)) -> f64| {
            let weighted: f64 = self.points.iter().map(|point| point.2 * of(point)).sum();
            weighted / self.points.iter().map(|point| point.2).sum::<f64>()
        };
        let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
        Some(mean(&|point| (point.0 - x) * (point.1 - y)) / mean(&|point| (point.0 - x).powi(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x = 0, 1, 2 and y = 1, 0, 1 with weights 1, 1, 2: means 5/4 and 3/4, covariance
    /// ((−5/4)(1/4) + (−1/4)(−3/4) + 2 (3/4)(1/4))/4 = 1/16, variance (25/16 + 1/16 + 18/16)/4 = 11/16.
    #[test]
    fn the_slope_weighs_points_as_worked_by_hand() {
        let slope = Slope { points: vec![(0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (2.0, 1.0, 2.0)] };
        assert!((slope.value().unwrap() - 1.0 / 11.0).abs() < 1e-15);
        assert_eq!(Slope { points: vec![(0.0, 1.0, 1.0)] }.value(), None);
    }
}
