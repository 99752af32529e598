//! The page on metrics and the metrics.

use std::collections::BTreeSet;

use burn::backend::Autodiff;
use firebrick_reward::{Part, WeightedSum};
use firebrick_trainer::{DynamicSampling, Plan, TrainSettings, WhenExhausted};

use crate::fixture::{Echo, Flex, objective, prompts, settings, trainer};

/// Names in the first column of the page's table; `/x` continues the name before it.
fn documented() -> BTreeSet<String> {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = std::fs::read_to_string(page).unwrap();
    let mut names = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cell = line.split('|').nth(1).unwrap();
        let mut folder = String::new();
        for name in cell.split('`').skip(1).step_by(2) {
            let name = if name.starts_with('/') { format!("{folder}{name}") } else { name.to_owned() };
            folder = name.split('/').next().unwrap().to_owned();
            assert!(names.insert(name.clone()), "{name} is there twice");
        }
    }
    names
}

#[test]
fn the_page_on_metrics_names_exactly_what_is_recorded() {
    let config = objective("type = \"ppo\"\nanchor = \"proximal\"");
    let dynamic_sampling = Some(DynamicSampling { max_rounds: 3, when_exhausted: WhenExhausted::Repeat });
    let settings = TrainSettings { epochs: 2, dynamic_sampling, ..settings() };
    // a part of this name is recorded under the placeholder of the page
    let part = Part::new("<part>", 1.0, Echo::default());
    let verifier = WeightedSum::new(vec![part]).unwrap();
    let plan = Plan::<Autodiff<Flex>>::new(settings, config.build(), verifier).unwrap();
    let report = trainer(plan).step(&prompts()).unwrap();
    let recorded: BTreeSet<String> = report.metrics.values().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(recorded, documented());
}
