//! The same in a file system of its own.

use std::{ffi::OsString, path::Path};

use super::{
    BubblewrapConfig, ExecutorError, Offers, Sandbox,
    sandbox::{Walls, interpreter::Interpreter, work_dir::WorkDir},
};

impl Sandbox {
    /// The executor `bubblewrap`, which runs each program inside [bubblewrap](https://github.com/containers/bubblewrap): in a
    /// file system that holds nothing but the interpreter and the program's directory, and in namespaces of processes, users,
    /// network and the rest of its own.
    ///
    /// Users, limits, the filter of system calls and the way it ends are those of [`Self::local`]. Landlock is not used, as it
    /// forbids the mounts that bubblewrap makes. An exit code from 129 to 192 is read as the signal of that number less 128,
    /// which is how bubblewrap reports one.
    ///
    /// It finds `bwrap` and a Python, and runs a test that tries to break out.
    ///
    /// # Errors
    /// - [`ExecutorError::Unavailable`], naming what is missing and what to do.
    /// - [`ExecutorError::OutOfRange`], naming the key.
    pub fn bubblewrap(config: &BubblewrapConfig) -> Result<Self, ExecutorError> {
        let offers = Offers::of_this_machine();
        let bwrap = offers.check_bubblewrap()?.to_owned();
        Self::new("bubblewrap", &config.into(), offers, true, |_| Ok(Walls::Bubblewrap(bwrap)))
    }
}

/// What bubblewrap is told, up to the program. The filter comes in descriptor 3.
pub(crate) fn arguments(interpreter: &Interpreter, dir: &WorkDir) -> Vec<OsString> {
    // Not `--unshare-pid`: bubblewrap is already the first process of a namespace, so that its end is the end of all.
    let mut words: Vec<OsString> = [
        "--unshare-user",
        "--unshare-ipc",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--seccomp",
        "3",
    ]
    .map(OsString::from)
    .into();
    let mut bind = |how: &str, path: &Path| words.extend([how.into(), path.into(), path.into()]);
    let mut bound: Vec<&Path> = Vec::new();
    for path in interpreter.read.iter().chain(&interpreter.execute).chain([&interpreter.path]) {
        // What lies in a directory that is there already cannot be put there once more.
        if !bound.iter().any(|dir| path.starts_with(dir)) {
            bind("--ro-bind", path);
            bound.push(path);
        }
    }
    // Without `/proc` the loader of shared libraries cannot find out where the interpreter lies, and whose are beside it.
    let origin = interpreter.execute.first().and_then(|file| file.parent());
    for device in ["/dev/null", "/dev/zero", "/dev/urandom"] {
        bind("--dev-bind", Path::new(device));
    }
    bind("--ro-bind", &dir.program());
    bind("--bind", &dir.writable());
    // The root is in memory that no limit counts, so it becomes read-only when all is in place.
    words.extend(["--remount-ro", "/", "--chdir"].map(OsString::from));
    words.push(dir.writable().into());
    words.extend(origin.into_iter().flat_map(|dir| ["--setenv".into(), "LD_ORIGIN_PATH".into(), dir.into()]));
    words
}
