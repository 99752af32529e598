//! The Python that runs programs.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::unistd::{AccessFlags, access};
use serde::Deserialize;

use super::offers::{on_path, unavailable};
use crate::program::ExecutorError;

/// A Python with the files that it needs.
#[derive(Debug, Clone)]
pub(crate) struct Interpreter {
    /// What is run: in a virtual environment its link, by which it finds its packages.
    pub(crate) path: PathBuf,
    /// The file itself, first, and the loader of shared libraries, which are all that may be executed.
    pub(crate) execute: Vec<PathBuf>,
    /// Libraries and packages.
    pub(crate) read: Vec<PathBuf>,
}

/// What a Python says of itself.
#[derive(Debug, Deserialize)]
struct Answer {
    executable: PathBuf,
    prefix: PathBuf,
    base_prefix: PathBuf,
    path: Vec<PathBuf>,
    multiarch: Option<String>,
    major: u32,
}

const QUESTION: &str = "import json, sys, sysconfig
paths = sysconfig.get_paths()
print(json.dumps(dict(executable=sys.executable, prefix=sys.prefix, base_prefix=sys.base_prefix, major=sys.version_info[0],
    path=[*sys.path, paths['stdlib'], paths['platstdlib']], multiarch=sysconfig.get_config_var('MULTIARCH'))))";

impl Interpreter {
    /// The given one, or the first `python3` of `PATH` that can be used. With `other_user`, another user than ours has to be
    /// able to run it.
    ///
    /// # Errors
    /// [`ExecutorError::Unavailable`], saying of each why not.
    pub(crate) fn find(
        executor: &'static str,
        given: Option<&Path>,
        other_user: bool,
    ) -> Result<Self, ExecutorError> {
        let candidates: Vec<PathBuf> = match given {
            Some(path) => vec![path.to_owned()],
            None => on_path("python3").collect(),
        };
        let mut refused = Vec::new();
        for candidate in candidates {
            match Self::ask(&candidate, other_user) {
                Ok(found) => return Ok(found),
                Err(why) => refused.push(format!("{} {why}", candidate.display())),
            }
        }
        let missing = if refused.is_empty() {
            "there is no `python3` in PATH".to_owned()
        } else {
            format!("there is no usable Python: {}", refused.join("; "))
        };
        Err(unavailable(
            executor,
            missing,
            "install Python 3 where every user can read it, or set `python` to its path",
        ))
    }

    fn ask(candidate: &Path, other_user: bool) -> Result<Self, Refusal> {
        // Before it is run: a version manager in a private home takes its time, and leads to a private interpreter.
        if other_user && candidate.exists() && !can_use(candidate, true) {
            return Err(Refusal::Private(candidate.to_owned()));
        }
        let output = Command::new(candidate)
            .args(["-I", "-B", "-c", QUESTION])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .map_err(Refusal::Start)?;
        let answer: Answer =
            serde_json::from_slice(&output.stdout).map_err(|_| Refusal::Answer(output.status))?;
        if answer.major != 3 {
            return Err(Refusal::Version(answer.major));
        }
        // A script that chooses an interpreter has named the real one.
        let file = fs::canonicalize(&answer.executable).map_err(Refusal::Start)?;
        let loader = loader_of(&fs::read(&file).map_err(Refusal::Start)?);
        let mut read: BTreeSet<PathBuf> = answer.path.into_iter().collect();
        // Shared libraries of an installation of its own; the system's have directories of their own below.
        read.extend(Some(answer.base_prefix.join("lib")).filter(|lib| lib != Path::new("/usr/lib")));
        read.insert(answer.prefix.join("pyvenv.cfg"));
        if let Some(dir) = loader.as_ref().and_then(|loader| fs::canonicalize(loader).ok()) {
            read.extend(dir.parent().map(Path::to_owned));
        }
        match answer.multiarch.filter(|name| Path::new("/usr/lib").join(name).is_dir()) {
            Some(name) => {
                read.extend(["/lib", "/usr/lib", "/usr/local/lib"].map(|dir| Path::new(dir).join(&name)));
            }
            None => read.extend(["/lib", "/usr/lib", "/usr/local/lib"].map(PathBuf::from)),
        }
        let more = ["/lib64", "/usr/lib64", "/usr/share/zoneinfo", "/etc/localtime", "/etc/ld.so.cache"];
        read.extend(more.map(PathBuf::from));
        read.retain(|path| path.is_absolute() && path.exists());
        let mut execute = vec![file.clone()];
        execute.extend(loader.filter(|loader| loader.exists()));

        for path in execute.iter().chain(&read) {
            // Directories of packages may be private; the interpreter and its library may not.
            let needed = *path == file || path.join("encodings").is_dir();
            if needed && !can_use(path, other_user) {
                return Err(Refusal::Private(path.clone()));
            }
        }
        Ok(Self { path: answer.executable, execute, read: read.into_iter().collect() })
    }
}

#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("cannot be run: {0}")]
    Start(std::io::Error),
    #[error("is no Python 3 ({0})")]
    Answer(std::process::ExitStatus),
    #[error("is Python {0}")]
    Version(u32),
    #[error("needs {}, which the user that programs run as cannot read", .0.display())]
    Private(PathBuf),
}

/// Whether the user that programs run as can read and run or enter it.
fn can_use(path: &Path, other_user: bool) -> bool {
    if !other_user {
        return access(path, AccessFlags::R_OK | AccessFlags::X_OK).is_ok();
    }
    let open = |path: &Path, bits: u32| {
        fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bits == bits)
    };
    open(path, 0o005) && path.ancestors().skip(1).all(|dir| open(dir, 0o001))
}

/// The loader that a 64-bit ELF file names (its program header of type 3), if it has one.
fn loader_of(file: &[u8]) -> Option<PathBuf> {
    let number = |at: usize, width: usize| -> Option<usize> {
        let bytes = file.get(at..at + width)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
    };
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
    let header = (0..count).map(|index| table + index * size).find(|at| number(*at, 4) == Some(3))?;
    let (start, length) = (number(header + 8, 8)?, number(header + 32, 8)?);
    let name = file.get(start..start.checked_add(length)?)?.split(|byte| *byte == 0).next()?;
    Some(PathBuf::from(std::str::from_utf8(name).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_python_is_named() {
        let given = Path::new("/nowhere/python3");
        let text = Interpreter::find("local", Some(given), false).unwrap_err().to_string();
        assert!(text.contains("/nowhere/python3 cannot be run") && text.contains("set `python`"), "{text}");
    }

    #[test]
    fn what_is_no_python_is_refused() {
        let text = Interpreter::find("local", Some(Path::new("/bin/false")), false).unwrap_err().to_string();
        assert!(text.contains("/bin/false is no Python 3"), "{text}");
    }

    #[test]
    fn a_file_below_a_private_directory_is_of_no_use_to_another_user() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let file = dir.path().join("python3");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(can_use(&file, false));
        assert!(!can_use(&file, true));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        assert!(can_use(&file, true));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(!can_use(&file, true));
    }

    #[test]
    fn the_loader_is_read_from_the_file_and_rubbish_has_none() {
        let own = fs::read("/proc/self/exe").unwrap();
        assert!(loader_of(&own).unwrap().exists());
        assert_eq!(loader_of(own.get(..0x40).unwrap()), None, "cut off before its table");
        assert_eq!(loader_of(b"#!/bin/sh\n"), None);
    }
}
