//! Whether a run fits into the memory of its device, and what would.

use firebrick_models::ModelError;

use crate::{MemoryEstimate, RunConfig};

/// The settings that make a config need no more than `available` bytes, as `key = value`; `None` when those that are tried do not.
///
/// What dominates the peak is made smaller step by step: completions that are generated at once are halved; in an optimizer
/// step activations are computed again, then micro-batches are halved, then parts are taken one after the other. None of
/// these changes what is computed.
///
/// # Errors
/// When the folder of a pretrained model cannot be read.
pub(crate) fn fitting_settings(
    config: &RunConfig,
    longest_prompt: usize,
    available: u64,
) -> Result<Option<Vec<String>>, ModelError> {
    let mut changed = config.clone();
    loop {
        let estimate = MemoryEstimate::of(&changed, longest_prompt)?;
        if estimate.total() <= available {
            return Ok(Some(differences(config, &changed)));
        }
        let train = &mut changed.train;
        let row = longest_prompt + train.sampling.max_new_tokens;
        let rows_of_batch = train.prompts_per_step.div_ceil(train.mini_batches.max(1)) * train.group_size;
        if estimate.generation() > estimate.optimizer_step() {
            if train.engine_rows == 1 {
                return Ok(None);
            }
            train.engine_rows = train.engine_rows.min(rows_of_batch.next_power_of_two() * 2) / 2;
        } else if !train.recompute_activations {
            train.recompute_activations = true;
        } else if train.micro_batch_tokens == 0
            || train.micro_batch_tokens > row * train.parallel_parts.max(1)
        {
            let tokens = match train.micro_batch_tokens {
                0 => rows_of_batch * row,
                tokens => tokens.min(rows_of_batch * row),
            };
            train.micro_batch_tokens = (tokens / 2).max(row * train.parallel_parts.max(1));
        } else if train.parallel_parts > 1 {
            train.parallel_parts = 1;
        } else {
            return Ok(None);
        }
    }
}

fn differences(before: &RunConfig, after: &RunConfig) -> Vec<String> {
    let (before, after) = (&before.train, &after.train);
    let mut changes = Vec::new();
    if after.recompute_activations != before.recompute_activations {
        changes.push("train.recompute_activations = true".to_owned());
    }
    for (key, before, after) in [
        ("micro_batch_tokens", before.micro_batch_tokens, after.micro_batch_tokens),
        ("parallel_parts", before.parallel_parts, after.parallel_parts),
        ("engine_rows", before.engine_rows, after.engine_rows),
    ] {
        if before != after {
            changes.push(format!("train.{key} = {after}"));
        }
    }
    changes
}

/// What a run that does not fit can do, in words.
pub(crate) fn advice(config: &RunConfig, settings: Option<Vec<String>>) -> String {
    match settings {
        Some(settings) => format!("it would fit with {}", settings.join(", ")),
        None if config.lora.is_none() => {
            "no split of the batch makes it fit; train an adapter with [lora], or take a smaller model or a larger device"
                .to_owned()
        }
        None => "no split of the batch makes it fit; take a smaller model or a larger device".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> RunConfig {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/math-cpu.toml");
        RunConfig::read(&path).unwrap()
    }

    fn total(config: &RunConfig) -> u64 {
        MemoryEstimate::of(config, 20).unwrap().total()
    }

    #[test]
    fn a_run_that_fits_needs_no_other_settings() {
        let config = config();
        assert_eq!(fitting_settings(&config, 20, total(&config)).unwrap(), Some(Vec::new()));
    }

    /// Half of the memory is enough with other settings, and those that are named make it so.
    #[test]
    fn the_settings_that_are_named_make_it_fit() {
        let config = config();
        let available = total(&config) * 3 / 5;
        let settings = fitting_settings(&config, 20, available).unwrap().unwrap();
        assert!(!settings.is_empty());
        let mut changed = toml::to_string(&config).unwrap().parse::<toml::Table>().unwrap();
        for setting in &settings {
            let (key, value) = setting.strip_prefix("train.").unwrap().split_once(" = ").unwrap();
            changed["train"].as_table_mut().unwrap().insert(key.into(), value.parse().unwrap());
        }
        let changed: RunConfig = toml::to_string(&changed).unwrap().parse().unwrap();
        assert!(total(&changed) <= available, "{settings:?}");
    }

    #[test]
    fn weights_that_do_not_fit_leave_an_adapter_as_the_way_out() {
        let config = config();
        let settings = fitting_settings(&config, 20, 1000).unwrap();
        assert_eq!(settings, None);
        assert!(advice(&config, settings).contains("[lora]"));
    }
}
