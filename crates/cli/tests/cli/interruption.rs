//! Processes that are ended from outside.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::fixture::{assert_same, config, error_of, firebrick, succeed};

const STEPS: usize = 80;

fn rows(run: &Path) -> usize {
    std::fs::read(run.join("metrics.jsonl"))
        .map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command can be started")
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Waits until `ready`, as long as the child lives; whether it does.
fn wait_until(child: &mut Child, mut ready: impl FnMut() -> bool) -> bool {
    loop {
        if child.try_wait().expect("the child can be asked").is_some() {
            return false;
        }
        if ready() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Twenty times: at any moment of a step, a checkpoint, an evaluation or the start.
#[test]
fn a_run_that_is_killed_twenty_times_is_the_undisturbed_run_to_the_last_byte() {
    let folder = tempfile::tempdir().unwrap();
    let whole = config(folder.path(), "whole", STEPS);
    succeed(&["train", whole.to_str().unwrap()]);
    let path = config(folder.path(), "parts", STEPS);
    let run = folder.path().join("parts");
    let mut random = ChaCha8Rng::seed_from_u64(20);
    let mut kills = 0;
    while kills < 20 {
        let mut child = if run.join("config.toml").exists() {
            spawn(firebrick(&["train", "--resume", run.to_str().unwrap()]))
        } else {
            spawn(firebrick(&["train", path.to_str().unwrap(), "--overwrite"]))
        };
        // Some rows more than are there after it has cut those beyond its checkpoint (every third step), and then a moment.
        let aim = rows(&run).saturating_sub(3) + random.random_range(0..7);
        let delay = Duration::from_micros(random.random_range(0..30_000));
        assert!(
            wait_until(&mut child, || rows(&run) >= aim.min(STEPS - 4)),
            "the run ended before it was killed: {}",
            error_of(&child.wait_with_output().unwrap())
        );
        std::thread::sleep(delay);
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(!status.success(), "the run ended before it was killed for the {kills}th time");
        kills += 1;
    }
    succeed(&["train", "--resume", run.to_str().unwrap()]);
    assert_same(&folder.path().join("whole"), &run, STEPS);
}

#[test]
fn an_interrupted_run_finishes_its_step_saves_and_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let whole = config(folder.path(), "whole", 12);
    succeed(&["train", whole.to_str().unwrap()]);
    let path = config(folder.path(), "parts", 12);
    let run = folder.path().join("parts");
    // A checkpoint is written for the interruption alone: none is due before the end.
    let mut child = spawn(firebrick(&["train", path.to_str().unwrap(), "--set", "checkpoints.every=100"]));
    assert!(wait_until(&mut child, || rows(&run) >= 2));
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    let error = error_of(&output);
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(error.contains(&format!("firebrick train --resume {}", run.display())), "{error}");
    let done = rows(&run);
    assert!((2..12).contains(&done), "{done}");
    assert!(run.join(format!("checkpoints/step_{done}/manifest.json")).exists());
    succeed(&["train", "--resume", run.to_str().unwrap()]);
    assert_same(&folder.path().join("whole"), &run, 12);
}

#[test]
fn a_second_interruption_stops_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "run", 100_000);
    let run = folder.path().join("run");
    // A step that takes minutes, so that only a stop at once ends it soon; the warm start takes as long.
    let mut child = spawn(firebrick(&[
        "train",
        path.to_str().unwrap(),
        "--set",
        "train.prompts_per_step=200000",
        "--set",
        "warm_start.steps=1",
    ]));
    assert!(wait_until(&mut child, || run.join("checkpoints/latest").exists()));
    // Signals that come before the first one is handled count as one, so more than two may be needed; a step takes far longer.
    for _ in 0..500 {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        signal(&child, "-INT");
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    assert_eq!(ended.expect("it stopped").code(), Some(130));
    assert_eq!(rows(&run), 0, "no step was finished");
}
