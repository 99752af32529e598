//! Whether a checkpoint belongs to a run.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use crate::{CheckpointError, checkpoint::Manifest};

/// Keys that a continuation may change: where things lie and how much is done, not what is computed in a step.
const FREE: [&str; 6] = [
    "run",
    "checkpoints",
    "train.steps",
    "train.traces_per_step",
    "train.token_traces_per_step",
    "evaluation.every",
];

/// Checks that a run with `config` on `data` would go on as the checkpoint's run would have.
pub(crate) fn check_same_run(
    manifest: &Manifest,
    config: &Value,
    data: &BTreeMap<String, String>,
    checkpoint: &Path,
) -> Result<(), CheckpointError> {
    let mut found = Vec::new();
    differences("", &manifest.config, config, &mut found);
    for (key, digest) in data {
        if manifest.data.get(key).is_some_and(|then| then != digest) {
            found.push(format!("the contents of {key} have changed"));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(CheckpointError::Foreign { path: checkpoint.to_owned(), differences: found.join("; ") })
}

fn differences(path: &str, then: &Value, now: &Value, found: &mut Vec<String>) {
    if FREE.contains(&path) || then == now {
        return;
    }
    if let (Value::Object(then), Value::Object(now)) = (then, now) {
        let keys: std::collections::BTreeSet<&String> = then.keys().chain(now.keys()).collect();
        for key in keys {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let of = |table: &serde_json::Map<String, Value>| table.get(key).cloned().unwrap_or_default();
            differences(&path, &of(then), &of(now), found);
        }
        return;
    }
    let show = |value: &Value| if value.is_null() { "absent".to_owned() } else { value.to_string() };
    found.push(format!("{path} was {} and is {}", show(then), show(now)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(then: Value, now: &Value, data: &[(&str, &str)]) -> Result<(), String> {
        let digests = |list: &[(&str, &str)]| -> BTreeMap<String, String> {
            list.iter().map(|(key, digest)| ((*key).to_owned(), (*digest).to_owned())).collect()
        };
        let manifest = Manifest::new(3, then, digests(&[("data.train", "aa")]));
        check_same_run(&manifest, now, &digests(data), Path::new("c")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_keys_that_differ_are_named_with_both_values() {
        let then = json!({"train": {"seed": 1, "group_size": 8}, "objective": {"type": "tapo"}});
        let now = json!({"train": {"seed": 2, "group_size": 8}, "objective": {"type": "tapo", "kl": 0.1}});
        let error = check(then, &now, &[("data.train", "bb")]).unwrap_err();
        for part in [
            "train.seed was 1 and is 2",
            "objective.kl was absent and is 0.1",
            "the contents of data.train have changed",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("group_size"), "{error}");
    }

    #[test]
    fn more_steps_and_another_place_are_allowed() {
        let then = json!({"train": {"steps": 5}, "run": {"directory": "a"}, "checkpoints": {"every": 1}});
        let now = json!({"train": {"steps": 10}, "run": {"directory": "b"}, "checkpoints": {"every": 3}});
        assert_eq!(check(then, &now, &[("data.train", "aa")]), Ok(()));
    }
}
