//! Policy objectives as parts, on the host in `f64`.
//!
//! An objective is three choices over the policy tokens of one response, composed by [`Composed`]:
//!
//! | part | chooses | here |
//! |---|---|---|
//! | importance estimator | log w_t of each token | [`TokenRatio`], [`SequenceMean`], [`PrefixMean`], [`SequenceProduct`], [`PrefixProduct`], [`BoundedPrefixProduct`], [`MinPrefix`], [`GroupCapped`], [`StateGeo`], [`ConstantScaling`], [`Unweighted`]; all in [`EstimatorConfig`] |
//! | clip schedule | the window of each w_t | [`ConstantClip`], [`InverseSqrtClip`], [`SqrtRatioClip`], [`PowerLawClip`], [`AbsolutePositionClip`], [`ProbabilityClip`], [`SqrtProbabilityClip`], [`EntropySplitClip`], [`SecondMomentClip`], [`StaleClip`], [`OpenWindow`]; all in [`ScheduleConfig`] |
//! | gate | what happens outside the window | [`PpoMin`], [`HardMask`], [`Saturating`], [`Sigmoid`], [`GradientPreserving`], [`Reciprocal`], [`GeometricMean`], [`DivergenceMask`], [`SequenceDivergenceMask`], [`OffPolicySequenceMask`], [`CovarianceClip`], [`CovarianceKl`], [`MaskFrom`]; all in [`GateConfig`] |
//!
//! Beside these stand, each of its own:
//!
//! | part | does | here |
//! |---|---|---|
//! | advantage estimator | rewards to advantages | [`GroupNormalized`], [`LeaveOneOut`], [`ReinforcePlusPlus`], [`ReinforcePlusPlusBaseline`], [`GroupThenBatch`], [`BatchScaled`], [`LengthWeighted`], [`GreedyBaseline`], [`MixedGroupScaled`], [`PassAtK`], [`TopMargin`], [`BetaNormalized`], [`SmoothStandardized`], [`OptimalTokenBaseline`], [`Gae`]; all in [`AdvantageConfig`] |
//! | rollout correction | weighs or rejects tokens where the sampler is not the trainer | [`RatioCorrection`], whose [`RatioWeight`] and [`Rejection`] are read from [`CorrectionConfig`]; [`off_policy_metrics`] |
//! | KL penalty | holds the policy near a reference | [`KlTerm`], [`KlEstimator`], [`AdaptiveKl`] |
//! | aggregation | token contributions to one loss | [`Aggregation`], [`Denominator`] |
//! | value loss | trains a critic | [`ValueLoss`] |
//!
//! With an [`Aggregation`] and an advantage estimator they are a [`Recipe`]. The named
//! recipes of the field are presets with the papers' numbers ([`Preset`]), chosen and changed through
//! [`ObjectiveConfig`]; parts from other crates join through [`Composed`] itself.
//!
//! ```
//! use firebrick_core::{LogProbs, Objective, ResponseContext, ResponseTokens};
//! use firebrick_objectives::{Composed, ConstantClip, Denominator, Aggregation, PpoMin, TokenRatio};
//!
//! // One response of two tokens: the current policy likes the first 1.5 times, the second 1.1 times as much.
//! let context = ResponseContext::new(LogProbs::new(vec![-1.0, -1.0]), vec![1.0, 1.0])?;
//! let current = LogProbs::new(vec![-1.0 + 1.5_f64.ln(), -1.0 + 1.1_f64.ln()]);
//! let response = ResponseTokens::new(&context, &current)?;
//!
//! let objective = Composed::new(TokenRatio, ConstantClip { low: 0.2, high: 0.2 }, PpoMin::default());
//! let denominator = Denominator::of([response.len()])?;
//! let weight = Aggregation::SeqMeanTokenMean.weight(&denominator, response.len());
//! let terms = objective.evaluate(&response, weight);
//!
//! assert!((terms.loss + (1.2 + 1.1) / 2.0).abs() < 1e-12);
//! assert_eq!(terms.coefficients[0], 0.0); // clipped
//! assert!((terms.coefficients[1] - 1.1 / 2.0).abs() < 1e-12);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`PositionDiagnostics`] reports drift, clipping and effective sample size along responses. The page `docs/alone.md` of this
//! crate shows a whole optimizer batch with tensors of any framework.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod advantage;
mod aggregation;
mod composed;
mod config_error;
mod correction;
mod diagnostics;
mod drift;
mod estimator;
mod gate;
mod kl;
mod objective_config;
mod preset;
mod recipe;
mod schedule;
mod value_loss;

pub use advantage::{
    AdvantageConfig, AdvantageWeighting, AlphaMode, BatchScaled, BetaNormalized, EpsPlacement, Gae,
    GreedyBaseline, GroupNormalized, GroupThenBatch, LeaveOneOut, LengthWeighted, MixedGroupScaled,
    OptimalTokenBaseline, PassAtK, ReinforcePlusPlus, ReinforcePlusPlusBaseline, SmoothStandardized, StdSpec,
    TopMargin,
};
pub use aggregation::{Aggregation, Denominator, EmptyBatch};
pub use composed::Composed;
pub use config_error::ConfigError;
pub use correction::{
    CorrectionConfig, RatioCorrection, RatioLevel, RatioReduction, RatioStatistic, RatioWeight,
    RejectedDenominator, Rejection, off_policy_metrics,
};
pub use diagnostics::{ClipFractions, PositionDiagnostics, PositionReport};
pub use drift::DriftKl;
pub use estimator::{
    BoundedPrefixProduct, ConstantScaling, EstimatorConfig, GroupCapped, MinPrefix, PrefixMean,
    PrefixProduct, PrefixRoute, ScalingArm, SequenceMean, SequenceProduct, SequenceRoute, StateGeo,
    TokenRatio, Unweighted,
};
pub use gate::{
    CovarianceClip, CovarianceKl, Divergence, DivergenceMask, DualClipGrowth, GateConfig, GeometricMean,
    GradientPreserving, HardMask, MaskFrom, MaskedValue, MeanScope, OffPolicySequenceMask, OuterBounds,
    PpoMin, Reciprocal, Saturating, SequenceDivergenceMask, SequenceStatistic, Sigmoid, TokenSelection,
};
pub use kl::{AdaptiveKl, KlEstimator, KlPlacement, KlTerm};
pub use objective_config::{ObjectiveConfig, Parts};
pub use preset::Preset;
pub use recipe::Recipe;
pub use schedule::{
    AbsolutePositionClip, ConstantClip, EntropySplitClip, Horizon, IntervalForm, InverseSqrtClip, OpenWindow,
    PowerLawClip, ProbabilityClip, ScheduleConfig, SecondMomentClip, SigmaSource, SqrtProbabilityClip,
    SqrtRatioClip, StaleClip, StaleConfig, StalenessMode, WindowCentre, WindowSpace,
};
pub use value_loss::{ValueLoss, ValueTerms};

/// The page on using this crate alone, whose example is a test.
#[cfg(doctest)]
#[doc = include_str!("../docs/alone.md")]
struct ObjectivesAlone;
