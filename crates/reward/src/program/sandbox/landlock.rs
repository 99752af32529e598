//! Which files a program can reach.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};

/// The newest rules that are asked for; older kernels enforce those that they know.
const NEWEST: ABI = ABI::V10;

/// What every program can read or execute: opened once, so that nothing can be put in its place later.
#[derive(Debug)]
pub(crate) struct Readable {
    rules: Vec<(PathFd, BitFlags<AccessFs>)>,
}

impl Readable {
    /// Opens directories and files to read and the files to execute.
    pub(crate) fn open(read: &[PathBuf], execute: &[PathBuf]) -> Result<Self, PathFdError> {
        let mut rules = Vec::new();
        for path in read {
            let access = if path.is_dir() {
                AccessFs::ReadFile | AccessFs::ReadDir
            } else {
                AccessFs::ReadFile.into()
            };
            rules.push((PathFd::new(path)?, access));
        }
        for path in execute {
            rules.push((PathFd::new(path)?, AccessFs::ReadFile | AccessFs::Execute));
        }
        for (path, access) in [
            ("/dev/null", AccessFs::ReadFile | AccessFs::WriteFile),
            ("/dev/zero", AccessFs::ReadFile.into()),
            ("/dev/urandom", AccessFs::ReadFile.into()),
        ] {
            if Path::new(path).exists() {
                rules.push((PathFd::new(path)?, access));
            }
        }
        Ok(Self { rules })
    }

    /// The ruleset of one program, made before the fork: it may also read `program` and change what is in `writable`. `None`
    /// where the kernel has no Landlock.
    pub(crate) fn ruleset(
        &self,
        program: &Path,
        writable: &Path,
    ) -> Result<Option<OwnedFd>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.build(program, writable)?)
    }

    fn build(&self, program: &Path, writable: &Path) -> Result<Option<OwnedFd>, LandlockError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?;
        for (path, access) in &self.rules {
            ruleset = ruleset.add_rule(PathBeneath::new(path, *access))?;
        }
        // No links, devices, sockets and pipes in the directory; no renaming from one directory to another (`Refer`).
        let change = AccessFs::ReadFile
            | AccessFs::ReadDir
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::RemoveFile
            | AccessFs::RemoveDir
            | AccessFs::MakeReg
            | AccessFs::MakeDir;
        let ruleset = ruleset
            .add_rule(PathBeneath::new(PathFd::new(program)?, AccessFs::ReadFile))?
            .add_rule(PathBeneath::new(PathFd::new(writable)?, change))?;
        Ok(ruleset.into())
    }
}

#[derive(Debug, thiserror::Error)]
enum LandlockError {
    #[error(transparent)]
    Path(#[from] PathFdError),
    #[error(transparent)]
    Ruleset(#[from] RulesetError),
}
