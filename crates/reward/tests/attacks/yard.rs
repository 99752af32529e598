//! Where attacks run: executors with a directory of their own, and what is compared before and after.
#![expect(clippy::unwrap_used, reason = "a helper of tests")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use firebrick_reward::program::{
    BubblewrapConfig, Executor, Job, LocalSandboxConfig, Offers, Outcome, Sandbox,
};
use tempfile::TempDir;

/// One at a time: descriptors are counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Children that belong to no attack.
pub(crate) static HELPERS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Keeps other tests from counting while this one has descriptors and children of its own.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Executors, something to hit, and the state before.
pub(crate) struct Yard {
    executors: Vec<Sandbox>,
    canary: Mutex<Child>,
    descriptors: usize,
    programs: TempDir,
    outside: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Yard {
    pub(crate) fn new() -> Self {
        Self::with_slots(1)
    }

    pub(crate) fn with_slots(slots: usize) -> Self {
        let alone = alone();
        let (programs, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o711)).unwrap();
        // One closed file, and one that the machine's own checks leave open to everybody.
        fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(outside.path().join("open")).unwrap();
        fs::set_permissions(outside.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
        for (name, mode) in [("secret", 0o600), ("open/secret", 0o666)] {
            fs::write(outside.path().join(name), "secret").unwrap();
            fs::set_permissions(outside.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let directory = Some(programs.path().to_owned());
        let config = LocalSandboxConfig {
            slots: Some(slots),
            directory: directory.clone(),
            disk_mib: 8,
            ..LocalSandboxConfig::default()
        };
        let mut executors = vec![Sandbox::local(&config).unwrap()];
        if Offers::of_this_machine().check_bubblewrap().is_ok() {
            let config = BubblewrapConfig {
                slots: Some(slots),
                directory,
                disk_mib: 8,
                ..BubblewrapConfig::default()
            };
            executors.push(Sandbox::bubblewrap(&config).unwrap());
        }
        // Of the same user as the programs when that is an ordinary one.
        let canary = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let descriptors = descriptors();
        Self { executors, canary: Mutex::new(canary), descriptors, programs, outside, _alone: alone }
    }

    pub(crate) fn executors(&self) -> &[Sandbox] {
        &self.executors
    }

    pub(crate) fn local(&self) -> &Sandbox {
        &self.executors[0]
    }

    pub(crate) fn canary(&self) -> u32 {
        self.canary.lock().unwrap().id()
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.outside.path().to_owned()
    }

    pub(crate) fn run_each(&self, job: &Job, look: impl Fn(&str, &Outcome)) {
        if job.limits.processes > 1 && !Offers::of_this_machine().pid_namespace {
            return; // refused, as another test shows
        }
        for executor in self.executors() {
            look(
                &format!("{}, {} processes", executor.name(), job.limits.processes),
                &executor.run(job).unwrap(),
            );
            assert_eq!(processes(self.programs.path()), Vec::<String>::new(), "{}", executor.name());
        }
    }

    /// Nothing is left of what ran: no process, child, descriptor or file; and nothing outside was touched.
    pub(crate) fn is_as_before(&self) {
        assert_eq!(processes(self.programs.path()), Vec::<String>::new());
        assert_eq!(descriptors(), self.descriptors);
        assert_eq!(children(), [self.canary()], "the canary alone");
        assert!(self.canary.lock().unwrap().try_wait().unwrap().is_none(), "the canary lives");
        assert_eq!(fs::read_dir(self.programs.path()).unwrap().count(), 0);
        let secret = self.outside.path().join("open/secret");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
        assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o666);
        assert_eq!(fs::read_dir(self.outside.path()).unwrap().count(), 2);
        assert_eq!(fs::read_dir(self.outside.path().join("open")).unwrap().count(), 1);
        for dir in ["/tmp", "/dev/shm", "/var/tmp"] {
            assert!(!PathBuf::from(dir).join("firebrick-new").exists());
        }
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        let canary = self.canary.get_mut().unwrap_or_else(PoisonError::into_inner);
        canary.kill().unwrap();
        canary.wait().unwrap();
    }
}

/// Command lines that name a directory of programs: children have them from the program that forked.
pub(crate) fn processes(directory: &Path) -> Vec<String> {
    let mark = format!("{}/firebrick-program-", directory.display());
    let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = fs::read(entry.unwrap().path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(&mark)).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Numbers of the processes, zombies included, whose parent is this one.
fn children() -> Vec<u32> {
    let own = std::process::id().to_string();
    let helpers = HELPERS.lock().unwrap();
    let found = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let number = entry.unwrap().file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // The name in brackets can hold spaces.
        let parent = stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?;
        (parent == own && !helpers.contains(&number)).then_some(number)
    });
    found.collect()
}
