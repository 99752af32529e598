//! Disks that are full or cannot be written.

use std::{path::Path, process::Command};

use crate::fixture::{config, error_of, fail, firebrick, succeed};

/// Runs a shell script in a mount namespace of its own, where it may mount what it likes; `None` where that is not allowed.
fn in_namespace(script: &str) -> Option<std::process::Output> {
    let can = Command::new("unshare").args(["-rm", "true"]).output().is_ok_and(|o| o.status.success());
    can.then(|| {
        Command::new("unshare")
            .args(["-rm", "sh", "-c", script])
            .env("RUST_LOG", "warn")
            .output()
            .expect("unshare can be started")
    })
}

fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_firebrick")
}

/// The run is on a small file system that its second checkpoint does not fit on. Where none can be mounted, a limit on the
/// size of files stands in: the same writes fail, with another reason.
#[test]
fn a_full_disk_ends_the_run_with_an_earlier_checkpoint_to_go_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "run", 9);
    let run = folder.path().join("run");
    let saved = folder.path().join("saved");
    std::fs::create_dir(&run).unwrap();
    let (path, run_text, saved_text) = (path.display(), run.display(), saved.display());
    let keep = "--set checkpoints.keep_last=9 --set model.hidden_size=64";
    let script = format!(
        "mount -t tmpfs -o size=450k tmpfs {run_text} || exit 77
         {} train {path} {keep}; code=$?; cp -r {run_text} {saved_text}; exit $code",
        binary()
    );
    match in_namespace(&script) {
        Some(output) if output.status.code() != Some(77) => {
            let error = error_of(&output);
            assert_eq!(output.status.code(), Some(1), "{error}");
            for part in ["checkpoints/", "cannot be written", "No space left on device", "--resume"] {
                assert!(error.contains(part), "{error}");
            }
            let checkpoints = saved.join("checkpoints");
            let latest = std::fs::read_to_string(checkpoints.join("latest")).unwrap();
            assert!(!left_overs(&checkpoints), "what could not be written was removed");
            assert_ne!(latest, "step_9");
            // With room again it goes on from there.
            succeed(&["train", "--resume", saved.to_str().unwrap()]);
            assert!(saved.join("summary.json").exists());
        }
        _ => {
            let limited = format!("ulimit -f 8; exec {} train {path} {keep}", binary());
            let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
            assert!(!output.status.success());
            assert!(!run.join("checkpoints/latest").exists());
        }
    }
}

fn left_overs(checkpoints: &Path) -> bool {
    std::fs::read_dir(checkpoints)
        .unwrap()
        .any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with(".partial"))
}

#[test]
fn a_directory_that_cannot_be_written_is_named_before_anything_is_computed() {
    let folder = tempfile::tempdir().unwrap();
    let path = config(folder.path(), "run", 2);
    let locked = folder.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    let target = locked.join("run");
    let (path_text, locked_text, run_text) = (path.display(), locked.display(), target.display());
    let script = format!(
        "mount -t tmpfs -o ro tmpfs {locked_text} || exit 77
         exec {} train {path_text} --run-dir {run_text}",
        binary()
    );
    let error = match in_namespace(&script) {
        Some(output) if output.status.code() != Some(77) => {
            assert_eq!(output.status.code(), Some(1));
            error_of(&output)
        }
        // A file in the place of a folder cannot be written into by anyone, root included.
        _ => {
            std::fs::remove_dir(&locked).unwrap();
            std::fs::write(&locked, "").unwrap();
            fail(&["train", path.to_str().unwrap(), "--run-dir", target.to_str().unwrap()])
        }
    };
    assert!(error.contains("cannot be written") && error.contains(&run_text.to_string()), "{error}");
    let output = firebrick(&["train", path.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", error_of(&output));
}
