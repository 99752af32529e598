//! Advantage estimators, and the choice among them.

mod batch_scaled;
mod beta_normalized;
mod gae;
mod greedy_baseline;
mod group_normalized;
mod group_then_batch;
mod leave_one_out;
mod length_weighted;
mod mixed_group_scaled;
mod optimal_token_baseline;
mod pass_at_k;
mod reinforce_plus_plus;
mod reinforce_plus_plus_baseline;
mod scored_rows;
mod smooth_standardized;
mod std_spec;
mod top_margin;
mod whitening;

pub use batch_scaled::BatchScaled;
pub use beta_normalized::BetaNormalized;
pub use gae::Gae;
pub use greedy_baseline::GreedyBaseline;
pub use group_normalized::GroupNormalized;
pub use group_then_batch::GroupThenBatch;
pub use leave_one_out::LeaveOneOut;
pub use length_weighted::LengthWeighted;
pub use mixed_group_scaled::{AlphaMode, MixedGroupScaled};
pub use optimal_token_baseline::OptimalTokenBaseline;
pub use pass_at_k::PassAtK;
pub use reinforce_plus_plus::ReinforcePlusPlus;
pub use reinforce_plus_plus_baseline::ReinforcePlusPlusBaseline;
pub use smooth_standardized::SmoothStandardized;
pub use std_spec::{EpsPlacement, StdSpec};
pub use top_margin::TopMargin;
pub use whitening::AdvantageWeighting;

use firebrick_core::AdvantageEstimator;
use serde::{Deserialize, Serialize};

use crate::{ConfigError, config_error::require};

/// An advantage estimator of this crate, chosen by `type`. (The braces of those without keys make a stray key in a config
/// an error.)
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum AdvantageConfig {
    /// [`GroupNormalized`] with a deviation: reward minus group mean, divided by the group's deviation
    /// (GRPO).
    GroupNormalized(StdSpec),
    /// [`GroupNormalized`] without a deviation: reward minus group mean (Dr. GRPO).
    GroupCentered {},
    /// [`LeaveOneOut`]: reward minus the mean of the group's others (RLOO).
    LeaveOneOut {},
    /// [`ReinforcePlusPlus`]: returns, whitened over the batch.
    ReinforcePlusPlus(ReinforcePlusPlus),
    /// [`ReinforcePlusPlusBaseline`]: reward minus group mean, whitened over the batch.
    ReinforcePlusPlusBaseline(ReinforcePlusPlusBaseline),
    /// [`GroupThenBatch`]: normalised within the group, then over the batch.
    GroupThenBatch(GroupThenBatch),
    /// [`BatchScaled`]: reward minus group mean, divided by the deviation of the batch's rewards (LitePPO).
    BatchScaled(StdSpec),
    /// [`LengthWeighted`]: reward minus the length-weighted group mean (OPO).
    LengthWeighted {},
    /// [`GreedyBaseline`]: return minus the reward of the greedy completion (ReMax).
    GreedyBaseline {},
    /// [`MixedGroupScaled`]: reward minus group mean, scaled up for groups without a gradient (GPG).
    MixedGroupScaled(MixedGroupScaled),
    /// [`PassAtK`]: the chance that one of k attempts is right.
    PassAtK(PassAtK),
    /// [`TopMargin`]: only the best of a group, by its margin.
    TopMargin(TopMargin),
    /// [`BetaNormalized`]: reward minus group mean, divided by the density of that mean (BNPO).
    BetaNormalized(BetaNormalized),
    /// [`SmoothStandardized`]: standardised by the visit and by the prompt's history (DCPO).
    SmoothStandardized {
        /// Degrees of freedom subtracted from the number of rewards of a visit, 0 or 1; default 1.
        #[serde(default = "one")]
        ddof: u8,
    },
    /// [`OptimalTokenBaseline`]: return minus the baseline of least variance at each token.
    OptimalTokenBaseline(OptimalTokenBaseline),
    /// [`Gae`]: generalized advantage estimation, with a critic (PPO).
    Gae(Gae),
}

fn one() -> u8 {
    1
}

impl Default for AdvantageConfig {
    /// GRPO's.
    fn default() -> Self {
        Self::GroupNormalized(StdSpec::default())
    }
}

impl AdvantageConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::GroupNormalized(std) | Self::BatchScaled(std) => std.validate(),
            Self::GroupCentered {}
            | Self::LeaveOneOut {}
            | Self::LengthWeighted {}
            | Self::GreedyBaseline {}
            | Self::OptimalTokenBaseline(_) => Ok(()),
            Self::ReinforcePlusPlus(config) => config.validate(),
            Self::ReinforcePlusPlusBaseline(config) => config.validate(),
            Self::GroupThenBatch(config) => config.validate(),
            Self::MixedGroupScaled(config) => config.validate(),
            Self::PassAtK(config) => config.validate(),
            Self::TopMargin(config) => config.validate(),
            Self::BetaNormalized(config) => config.validate(),
            Self::SmoothStandardized { ddof } => require(*ddof <= 1, "ddof", f64::from(*ddof), "0 or 1"),
            Self::Gae(config) => config.validate(),
        }
    }

    /// Whether the advantage may differ from token to token of a response.
    pub fn is_per_token(&self) -> bool {
        matches!(
            self,
            Self::ReinforcePlusPlus(_)
                | Self::GreedyBaseline {}
                | Self::OptimalTokenBaseline(_)
                | Self::Gae(_)
        )
    }

    /// The estimator.
    pub fn build(&self) -> Box<dyn AdvantageEstimator> {
        match *self {
            Self::GroupNormalized(std) => Box::new(GroupNormalized { std: Some(std) }),
            Self::GroupCentered {} => Box::new(GroupNormalized { std: None }),
            Self::LeaveOneOut {} => Box::new(LeaveOneOut),
            Self::ReinforcePlusPlus(config) => Box::new(config),
            Self::ReinforcePlusPlusBaseline(config) => Box::new(config),
            Self::GroupThenBatch(config) => Box::new(config),
            Self::BatchScaled(std) => Box::new(BatchScaled { std }),
            Self::LengthWeighted {} => Box::new(LengthWeighted),
            Self::GreedyBaseline {} => Box::new(GreedyBaseline),
            Self::MixedGroupScaled(config) => Box::new(config),
            Self::PassAtK(config) => Box::new(config),
            Self::TopMargin(config) => Box::new(config),
            Self::BetaNormalized(config) => Box::new(config),
            Self::SmoothStandardized { ddof } => Box::new(SmoothStandardized::new(ddof)),
            Self::OptimalTokenBaseline(config) => Box::new(config),
            Self::Gae(config) => Box::new(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [&str; 16] = [
        "group_normalized",
        "group_centered",
        "leave_one_out",
        "reinforce_plus_plus",
        "reinforce_plus_plus_baseline",
        "group_then_batch",
        "batch_scaled",
        "length_weighted",
        "greedy_baseline",
        "mixed_group_scaled",
        "pass_at_k",
        "top_margin",
        "beta_normalized",
        "smooth_standardized",
        "optimal_token_baseline",
        "gae",
    ];

    fn text(name: &str) -> String {
        format!("type = {name:?}\n{}", if name == "pass_at_k" { "k = 2\n" } else { "" })
    }

    #[test]
    fn every_type_is_read_checked_written_and_refuses_a_stray_key() {
        for name in TYPES {
            let config: AdvantageConfig = toml::from_str(&text(name)).unwrap();
            config.validate().unwrap();
            let written = toml::to_string(&config).unwrap();
            assert!(written.contains(name), "{written}");
            assert_eq!(toml::from_str::<AdvantageConfig>(&written).unwrap(), config);
            let stray = toml::from_str::<AdvantageConfig>(&(text(name) + "stray = 1"));
            assert!(stray.unwrap_err().to_string().contains("unknown field `stray`"), "{name}");
        }
    }

    #[test]
    fn what_an_estimator_needs_is_said_before_it_runs() {
        let of = |name: &str| toml::from_str::<AdvantageConfig>(&text(name)).unwrap().build().requirements();
        for name in TYPES {
            assert_eq!(of(name).values, name == "gae", "{name}");
            assert_eq!(of(name).greedy_baseline, name == "greedy_baseline", "{name}");
            let is_otb = name == "optimal_token_baseline";
            assert_eq!(of(name).collision_probabilities, is_otb, "{name}");
            let alone = ["reinforce_plus_plus", "greedy_baseline", "gae"].contains(&name);
            assert_eq!(of(name).min_group_size, if alone { 0 } else { 2 }, "{name}");
        }
        let four: AdvantageConfig = toml::from_str("type = 'pass_at_k'\nk = 4").unwrap();
        assert_eq!(four.build().requirements().min_group_size, 4);
    }

    #[test]
    fn a_number_out_of_range_is_named_with_its_table() {
        for (text, error) in [
            ("type = 'smooth_standardized'\nddof = 3", "ddof = 3: allowed is 0 or 1"),
            ("type = 'gae'\nwhiten.ddof = 2", "whiten.ddof = 2: allowed is 0 or 1"),
            ("type = 'mixed_group_scaled'\nstd.eps = -1.0", "std.eps = -1: allowed is a finite number >= 0"),
            ("type = 'group_then_batch'\nbatch_std.ddof = 2", "batch_std.ddof = 2: allowed is 0 or 1"),
        ] {
            let config: AdvantageConfig = toml::from_str(text).unwrap();
            assert_eq!(config.validate().unwrap_err().to_string(), error);
        }
    }
}
