//! Everything that a continuation needs, to and from a folder.

use std::path::Path;

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::CausalLm;
use firebrick_models::{has_frozen_weights, load_safetensors, save_safetensors, save_tensors, save_trained};
use serde::{Deserialize, Serialize};

use super::Trainer;
use crate::{CheckpointError, critic::Critic, dump::Parts};

const MODEL: &str = "model.safetensors";
const ADAPTER: &str = "adapter_model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const REFERENCE: &str = "reference.safetensors";
const CRITIC: &str = "critic.safetensors";
const CRITIC_OPTIMIZER: &str = "critic_optimizer.safetensors";
const STATE: &str = "trainer.json";

/// The small part of the state. Random streams have no state: they follow from the root seed and these counters.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counters {
    /// Steps done.
    step: usize,
    /// Optimizer steps taken.
    version: u64,
    /// Prompts drawn: epoch, permutation and position follow from it and the seed.
    drawn: u64,
    /// Optimizer steps that were skipped in a row.
    skipped_in_a_row: usize,
    /// State of the stateful parts, by name.
    parts: Parts,
}

impl<B: AutodiffBackend, M> Trainer<B, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    /// Writes everything that a continuation needs into a folder that exists: the weights that are trained, moments of the
    /// optimizer, the reference policy if it does not follow from frozen weights, counters, and the state of stateful plug-ins.
    /// The same state gives the same bytes.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save_state(&mut self, folder: &Path) -> Result<(), CheckpointError> {
        let model = self.learner.model();
        save_trained(model, folder.join(file_of(model)))?;
        save_tensors(&self.learner.moments(), folder.join(OPTIMIZER))?;
        if let Some(reference) = &self.reference
            && !has_frozen_weights(model)
        {
            save_safetensors(reference, folder.join(REFERENCE))?;
        }
        if let Some(critic) = &self.critic {
            save_trained(critic.learner.model(), folder.join(CRITIC))?;
            save_tensors(&critic.learner.moments(), folder.join(CRITIC_OPTIMIZER))?;
        }
        let counters = Counters {
            step: self.step,
            version: self.version,
            drawn: self.cursor.drawn(),
            skipped_in_a_row: self.skipped_in_a_row,
            parts: self.plan.save_parts(),
        };
        let path = folder.join(STATE);
        serde_json::to_string_pretty(&counters)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&path, text + "\n"))
            .map_err(|source| CheckpointError::Write { path, source })
    }

    /// Takes over the state that [`Self::save_state`] wrote. The plan, the tokenizer and the data must be the same for the
    /// run to go on as it would have.
    ///
    /// # Errors
    /// Names what does not fit; the trainer may then hold part of the state and must not be used.
    pub fn load_state(&mut self, folder: &Path) -> Result<(), CheckpointError> {
        let path = folder.join(STATE);
        let text = std::fs::read_to_string(&path)
            .map_err(|source| CheckpointError::Read { path: path.clone(), source })?;
        let failed = |reason: String| CheckpointError::State { path: path.clone(), reason };
        let counters: Counters = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        self.plan.load_parts(&counters.parts).map_err(|error| failed(error.to_string()))?;
        self.learner.load_weights(&folder.join(file_of(self.learner.model())))?;
        self.learner.load_moments_from(&folder.join(OPTIMIZER))?;
        if folder.join(CRITIC).exists() {
            let settings = self.plan.settings.critic_optimizer();
            let mut critic = Critic::new(self.learner.model(), &settings, &self.device);
            critic.learner.load_weights(&folder.join(CRITIC))?;
            critic.learner.load_moments_from(&folder.join(CRITIC_OPTIMIZER))?;
            self.critic = Some(critic);
        }
        let reference = folder.join(REFERENCE);
        if reference.exists() {
            self.reference = Some(load_safetensors(self.learner.model().valid(), reference)?);
        }
        self.step = counters.step;
        self.version = counters.version;
        self.cursor.seek(counters.drawn);
        self.skipped_in_a_row = counters.skipped_in_a_row;
        Ok(())
    }
}

/// Where the weights of a model are kept: an adapter alone is no model that could be opened.
fn file_of<B: AutodiffBackend, M: AutodiffModule<B>>(model: &M) -> &'static str {
    if has_frozen_weights(model) { ADAPTER } else { MODEL }
}
