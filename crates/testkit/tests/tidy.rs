//! Rules of the workspace that no compiler checks: what may depend on what, and how sources are kept.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All crates, so that a new one is placed under the rules below on purpose.
const CRATES: [&str; 8] = ["cli", "core", "models", "objectives", "reward", "rollout", "testkit", "trainer"];

/// Bricks that stand side by side: none may need another.
const SIDE_BY_SIDE: [&str; 4] = ["models", "objectives", "reward", "rollout"];

/// Crates that a project without Burn can take.
const WITHOUT_BURN: [&str; 4] = ["core", "objectives", "reward", "testkit"];

/// Crates that are generic over the backend. Models may name one, behind a feature that is off by default.
const WITHOUT_BACKEND: [&str; 7] =
    ["core", "models", "objectives", "reward", "rollout", "testkit", "trainer"];

const BACKENDS: [&str; 10] = [
    "burn-candle",
    "burn-cpu",
    "burn-cubecl",
    "burn-cuda",
    "burn-flex",
    "burn-ndarray",
    "burn-remote",
    "burn-rocm",
    "burn-tch",
    "burn-wgpu",
];

/// Names that say nothing of what a module holds.
const EMPTY_NAMES: [&str; 4] = ["base", "common", "types", "utils"];

const MOST_LINES: usize = 600;

#[test]
fn every_crate_is_placed_under_the_rules() {
    let folders: BTreeSet<String> = entries(&root().join("crates"))
        .iter()
        .filter(|path| path.join("Cargo.toml").is_file())
        .map(|path| name(path))
        .collect();
    assert_eq!(folders, CRATES.map(str::to_owned).into(), "list a new crate in CRATES and in the rules");
}

#[test]
fn bricks_do_not_depend_on_one_another() {
    for brick in SIDE_BY_SIDE {
        let others = SIDE_BY_SIDE.map(|other| format!("firebrick-{other}"));
        let found = tree(brick);
        for other in others.iter().filter(|other| **other != format!("firebrick-{brick}")) {
            assert!(!found.contains(other), "firebrick-{brick} depends on {other}");
        }
    }
}

#[test]
fn crates_for_everyone_hold_no_burn() {
    for member in WITHOUT_BURN {
        let burn: Vec<String> =
            tree(member).into_iter().filter(|package| package.starts_with("burn")).collect();
        assert!(burn.is_empty(), "firebrick-{member} depends on {burn:?}");
    }
}

#[test]
fn no_library_brings_a_backend_unasked() {
    for member in WITHOUT_BACKEND {
        let found = tree(member);
        for backend in BACKENDS {
            assert!(
                !found.contains(backend),
                "firebrick-{member} depends on {backend} with default features"
            );
        }
    }
}

/// Guards the rules above against a change in what `cargo tree` prints.
#[test]
fn the_dependency_tree_shows_what_is_known_to_be_there() {
    assert!(tree("trainer").contains("firebrick-rollout"));
    assert!(tree("trainer").contains("burn"));
    assert!(tree("cli").contains("burn-flex"));
    assert!(tree("reward").contains("firebrick-core"));
}

#[test]
fn sources_name_no_path_outside_the_repository() {
    let forbidden = [concat!("..", "/shared"), concat!("/work", "/")];
    let mut files = 0;
    for path in text_files() {
        let text = read(&path);
        for (number, line) in text.lines().enumerate() {
            for path_outside in forbidden {
                assert!(!line.contains(path_outside), "{}:{}: {path_outside}", path.display(), number + 1);
            }
        }
        files += 1;
    }
    assert!(files > 40, "only {files} files were found");
}

#[test]
fn source_files_stay_short_and_are_named_for_what_they_hold() {
    let mut files = 0;
    for path in text_files().into_iter().filter(|path| is_source(path)) {
        let lines = read(&path).lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines; split it by idea", path.display());
        for part in inside(&path).with_extension("").iter() {
            let part = part.to_string_lossy();
            assert!(!EMPTY_NAMES.contains(&part.as_ref()), "{}: `{part}` says nothing", path.display());
        }
        files += 1;
    }
    assert!(files > 30, "only {files} source files were found");
}

/// Names of the packages that `firebrick-{member}` needs with default features, itself included.
fn tree(member: &str) -> BTreeSet<String> {
    let package = format!("firebrick-{member}");
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            &package,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--frozen",
        ])
        .current_dir(root())
        .output()
        .expect("cargo can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree --package {package} failed:\n{errors}");
    let found: BTreeSet<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    assert!(found.contains(&package), "cargo tree does not list {package} itself");
    found
}

/// The workspace root.
fn root() -> PathBuf {
    let members =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in a folder of crates");
    members.parent().expect("that folder lies in the workspace").to_owned()
}

/// Rust sources, manifests, configs and pages of the repository.
fn text_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            let is_text = path
                .extension()
                .is_some_and(|ending| ["md", "rs", "toml"].iter().any(|text| ending == *text));
            if path.is_dir() && !path.is_symlink() && is_kept(&path) {
                folders.push(path);
            } else if path.is_file() && is_text {
                found.push(path);
            }
        }
    }
    found
}

/// Whether a folder belongs to the repository: not build output, runs or what tools keep in hidden folders.
fn is_kept(folder: &Path) -> bool {
    let name = name(folder);
    let at_root = folder.parent() == Some(root().as_path());
    let is_known = ["configs", "consumers", "crates", "docs", "examples"].contains(&name.as_str());
    if at_root { is_known } else { name != "target" && !name.starts_with('.') }
}

fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "rs") && inside(path).iter().any(|part| part == "src")
}

/// The part of a path below the workspace root.
fn inside(path: &Path) -> PathBuf {
    path.strip_prefix(root()).expect("files are found under the root").to_owned()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listing = fs::read_dir(folder).expect("the folder can be listed");
    listing.map(|entry| entry.expect("the entry can be read").path()).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("the file is UTF-8 text")
}

fn name(path: &Path) -> String {
    path.file_name().expect("the path ends in a name").to_string_lossy().into_owned()
}
