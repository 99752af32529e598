//! Memory does not grow with the number of steps.

use burn::{backend::Autodiff, module::AutodiffModule};
use firebrick_core::{PolicyRef, RolloutEngine};
use firebrick_rollout::EmbeddedEngine;
use firebrick_trainer::TrainSettings;

use crate::fixture::{Flex, PRESETS, plan, prompts, requests, sampling, settings, trainer};

/// Resident memory of this process in bytes.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Set in the process that measures.
#[cfg(target_os = "linux")]
const CHILD: &str = "FIREBRICK_MEMORY_CHILD";

/// A forward pass on an autodiff backend that is never followed by `backward` keeps its graph: thousands of them would hold
/// over a hundred megabytes here. Measured in a process of its own, since the other tests of this one allocate too.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_flat_over_two_thousand_generations_and_training_steps() {
    if std::env::var_os(CHILD).is_some() {
        return measure();
    }
    let name = "memory::memory_is_flat_over_two_thousand_generations_and_training_steps";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[cfg(target_os = "linux")]
fn measure() {
    let small = TrainSettings { prompts_per_step: 1, group_size: 2, ..settings() };
    let mut trainer = trainer(plan::<Autodiff<Flex>>(small, PRESETS[3]));
    let mut engine = EmbeddedEngine::<Flex>::new(Default::default());
    let requests = &requests(1)[..2];
    let mut both = |count: usize| {
        for _ in 0..count {
            trainer.step(&prompts()).unwrap();
            let model = trainer.model().valid();
            engine.generate(PolicyRef { model: &model, version: 0 }, requests, &sampling()).unwrap();
        }
    };
    both(300); // pools of the allocator fill up
    let before = resident();
    both(2000);
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 << 20, "4,000 generations and 2,000 training steps added {grown} bytes");
}
