//! Another look at a batch that was written down.

use std::path::Path;

use burn::{module::AutodiffModule, tensor::backend::AutodiffBackend};
use firebrick_core::CausalLm;

use super::Trainer;
use crate::{
    Timings, TrainerError, dump,
    optimizer_batch::{Measured, TrainRow, accumulate},
};

/// What a replay found.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayReport {
    /// The fault that was written down.
    pub recorded: String,
    /// The fault that the whole batch meets now; `None` when all numbers are finite.
    pub fault: Option<String>,
    /// Each row alone.
    pub rows: Vec<ReplayRow>,
}

/// A row of a replayed batch, as a batch of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayRow {
    /// Index of the completion and id of its prompt.
    pub name: String,
    /// Tokens that are trained on.
    pub tokens: usize,
    /// Advantage of the first of them.
    pub advantage: f64,
    /// Loss of the row alone, or what is not finite.
    pub loss: Result<f64, String>,
}

impl<B: AutodiffBackend, M> Trainer<B, M>
where
    M: CausalLm<B> + AutodiffModule<B>,
    M::InnerModule: CausalLm<B::InnerBackend>,
{
    /// Runs the batch of a dump through forward, objective and backward again, with the weights of the dump; no optimizer
    /// step is taken. The trainer keeps the weights of the dump.
    ///
    /// # Errors
    /// When the dump cannot be read or does not fit.
    pub fn replay(&mut self, folder: &Path) -> Result<ReplayReport, TrainerError> {
        let dump = dump::read(folder)?;
        self.learner.load_weights(&folder.join(dump::MODEL)).map_err(crate::DumpError::from)?;
        let rows: Vec<&TrainRow> = dump.rows.iter().collect();
        let fault = self.fault_of(&rows, &dump.parts)?.err();
        let rows = rows
            .into_iter()
            .map(|row| {
                Ok(ReplayRow {
                    name: row.name.clone(),
                    tokens: row.context.len(),
                    advantage: row.context.advantages().first().copied().unwrap_or(0.0),
                    loss: self.fault_of(&[row], &dump.parts)?,
                })
            })
            .collect::<Result<_, TrainerError>>()?;
        Ok(ReplayReport { recorded: dump.fault, fault, rows })
    }

    /// The loss of a batch, or what is not finite in it.
    fn fault_of(
        &mut self,
        rows: &[&TrainRow],
        parts: &dump::Parts,
    ) -> Result<Result<f64, String>, TrainerError> {
        self.plan.load_parts(parts)?;
        let (model, entropy) = (self.learner.model(), self.plan.entropy_mode(false));
        let mut measured = Measured::default();
        let mut timings = Timings::default();
        let outcome =
            accumulate(&mut self.plan, model, rows, entropy, &mut measured, &mut timings, &self.device)
                .and_then(|found| found.map(|(gradients, _)| gradients.finish::<B>(model, None)).transpose());
        match outcome {
            Ok(_) => Ok(Ok(measured.metrics.get("loss").unwrap_or(0.0))),
            Err(fault @ TrainerError::NonFinite { .. }) => Ok(Err(fault.to_string())),
            Err(error) => Err(error),
        }
    }
}
