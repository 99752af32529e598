//! Processes that the kernel shuts in: one interpreter, slots, and how a program is started in them.

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io::Write,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use nix::{fcntl::OFlag, libc, unistd::pipe2};

use super::{
    Executor, ExecutorError, Job, Limits, Outcome, ProgramExit, Session,
    sandbox_config::Settings,
    slots::{Slot, Slots},
};

pub(crate) mod interpreter;
pub(crate) mod landlock;
pub(crate) mod launch;
pub(crate) mod limits;
pub(crate) mod offers;
pub(crate) mod process;
pub(crate) mod running;
pub(crate) mod seccomp;
pub(crate) mod users;
pub(crate) mod work_dir;

use self::{
    interpreter::Interpreter,
    landlock::Readable,
    launch::{Launch, LaunchError, Namespace, Spawner},
    offers::{Offers, own_namespace, unavailable},
    process::Ended,
    running::Running,
    seccomp::Filter,
    users::Users,
    work_dir::WorkDir,
};

/// Runs each program in a fresh Python process of its own, which gives up its rights before it begins: the executor `local`
/// ([`Self::local`]), or `bubblewrap` ([`Self::bubblewrap`]).
///
/// What holds a program back, and what does not, is said in [`crate::program`]. It takes any number of threads; a program that
/// finds all slots taken waits. A [`Session`] holds its slot until it is finished or dropped; who needs two at a time takes them by
/// [`Executor::open_pair`], since threads that each hold one and wait for another would wait for each other.
///
/// A slot is a place, not a process: nothing of one program is left for the next.
///
/// Of [`Limits`]: the kernel stops a program at a whole second of processor time, the next one up, and what took longer than
/// `cpu_seconds` counts as over its limit. With more than one process, `processes` counts threads too, and the limits of memory,
/// time and files hold for each process. The wall time of a session goes on while nobody calls it, and ends the program at the
/// next call.
///
/// Python runs with its standard library and the packages of its installation, a fixed seed of hashes, and no `/proc`.
#[derive(Debug, Clone)]
pub struct Sandbox {
    core: Arc<Core>,
}

impl Sandbox {
    /// With walls that are made for the interpreter that is found, tested by a program that tries to break out.
    pub(super) fn new(
        name: &'static str,
        settings: &Settings<'_>,
        offers: Offers,
        with_seccomp: bool,
        walls: impl FnOnce(&Interpreter) -> Result<Walls, ExecutorError>,
    ) -> Result<Self, ExecutorError> {
        let core = Arc::new(Core::new(name, settings, offers, with_seccomp, walls)?);
        core.test_itself()?;
        Ok(Self { core })
    }
}

impl Executor for Sandbox {
    fn run(&self, job: &Job) -> Result<Outcome, ExecutorError> {
        self.core.start(job, &[])?.finish()
    }

    fn open(&self, job: &Job) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(self.core.start(job, &[])?))
    }

    fn open_pair(&self, first: &Job, second: &Job) -> Result<[Box<dyn Session>; 2], ExecutorError> {
        let [first, second] = self.core.start_pair([first, second])?;
        Ok([Box::new(first), Box::new(second)])
    }

    fn name(&self) -> &'static str {
        self.core.name
    }
}

/// What keeps a program from the files of the machine.
#[derive(Debug)]
pub(crate) enum Walls {
    /// Landlock, or nothing where the config says so.
    Landlock(Option<Readable>),
    /// A file system of its own, made by this program.
    Bubblewrap(PathBuf),
}

/// What a sandbox has found and needs, shared with the programs that run.
#[derive(Debug)]
pub(crate) struct Core {
    name: &'static str,
    walls: Walls,
    offers: Offers,
    with_seccomp: bool,
    interpreter: Interpreter,
    users: Option<Users>,
    slots: Arc<Slots>,
    directory: PathBuf,
    disk_bytes: u64,
    spawner: Spawner,
}

/// The environment of every program. The seed makes the order of sets the same in every run, so that a verdict is; it is the
/// reason why Python is not started with `-I`, which ignores it and whose other effects are had by name.
const ENVIRONMENT: [(&str, &str); 12] = [
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    ("PYTHONHASHSEED", "0"),
    ("PYTHONSAFEPATH", "1"),
    ("PYTHONNOUSERSITE", "1"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("PYTHONUTF8", "1"),
    // One heap and one thread each: more would take up the limit of memory with what is only reserved.
    ("MALLOC_ARENA_MAX", "1"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("MKL_NUM_THREADS", "1"),
    ("PATH", ""),
];

const SELF_TEST: &str = include_str!("sandbox/self_test.py");

impl Core {
    fn new(
        name: &'static str,
        settings: &Settings<'_>,
        offers: Offers,
        with_seccomp: bool,
        walls: impl FnOnce(&Interpreter) -> Result<Walls, ExecutorError>,
    ) -> Result<Self, ExecutorError> {
        settings.validate()?;
        let root = nix::unistd::geteuid().is_root();
        let users = root.then(Users::of_this_process).flatten();
        if root && users.is_none() {
            return Err(unavailable(
                name,
                "root has no other user here that a program could run as",
                "map more users into the container, or run as an ordinary user",
            ));
        }
        let interpreter = Interpreter::find(name, settings.python, root)?;
        let directory = settings.directory.map_or_else(std::env::temp_dir, Path::to_owned);
        let directory = directory.canonicalize().map_err(|error| {
            let missing = format!("the directory {} cannot be used ({error})", directory.display());
            unavailable(name, missing, "make it, or set `directory` to another")
        })?;
        let walls = walls(&interpreter)?;
        let spawner =
            Spawner::new().map_err(|error| failed(name, "starting a thread", Some(error.into())))?;
        Ok(Self {
            name,
            walls,
            offers,
            with_seccomp,
            interpreter,
            users,
            slots: Slots::of_settings(settings.slots, settings.slot_wait_seconds),
            directory,
            disk_bytes: settings.disk_mib.saturating_mul(1 << 20),
            spawner,
        })
    }

    /// Runs a program that tries what must not work.
    fn test_itself(self: &Arc<Self>) -> Result<(), ExecutorError> {
        let mut asked = Vec::new();
        if !matches!(self.walls, Walls::Landlock(None)) {
            asked.push("files");
        }
        if self.with_seccomp {
            asked.extend(["calls", "fork"]);
            // In bubblewrap the parent is bubblewrap, which its namespace keeps alive.
            asked.extend(matches!(self.walls, Walls::Landlock(_)).then_some("signals"));
        }
        let job = Job::new(SELF_TEST);
        let broken = |why: String| {
            unavailable(
                self.name,
                format!("its own test failed: {why}"),
                "see what the error names; `firebrick_reward::program` lists what is needed",
            )
        };
        let outcome =
            self.start(&job, &asked).and_then(Running::finish).map_err(|error| broken(describe(&error)))?;
        if outcome.exit == ProgramExit::Code(0) && outcome.stdout == b"isolated\n" {
            return Ok(());
        }
        let (stdout, stderr) =
            (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
        Err(broken(format!("{:?}, {}{}", outcome.exit, stdout.trim(), stderr.trim())))
    }

    /// Starts a program once there is a slot for it.
    fn start(self: &Arc<Self>, job: &Job, arguments: &[&str]) -> Result<Running, ExecutorError> {
        job.limits.validate()?;
        let [slot] = self.slots.take(self.name)?;
        self.start_in(slot, job, arguments)
    }

    /// Starts two programs once there are slots for both.
    fn start_pair(self: &Arc<Self>, jobs: [&Job; 2]) -> Result<[Running; 2], ExecutorError> {
        jobs.iter().try_for_each(|job| job.limits.validate())?;
        let [first, second] = self.slots.take(self.name)?;
        Ok([self.start_in(first, jobs[0], &[])?, self.start_in(second, jobs[1], &[])?])
    }

    fn start_in(
        self: &Arc<Self>,
        slot: Slot,
        job: &Job,
        arguments: &[&str],
    ) -> Result<Running, ExecutorError> {
        let io =
            |what: &'static str| move |error: std::io::Error| failed(self.name, what, Some(error.into()));
        let os = |error: nix::Error| self.failed("making a pipe", Some(error.into()));
        let user = self.users.map(|users| users.of_slot(slot.number()));
        let dir = WorkDir::create(&self.directory, &job.program, user).map_err(io("making a directory"))?;
        let (child_in, stdin) = pipe2(OFlag::O_CLOEXEC).map_err(os)?;
        let (stdout, child_out) = pipe2(OFlag::O_CLOEXEC).map_err(os)?;
        let (stderr, child_err) = pipe2(OFlag::O_CLOEXEC).map_err(os)?;
        let launch =
            self.prepare(&dir, user, &job.limits, arguments, vec![child_in, child_out, child_err])?;
        let begun = Instant::now();
        let process = self.spawner.spawn(launch).map_err(|error| match error {
            LaunchError::Child { .. } => unavailable(
                self.name,
                format!("a process could not be shut in: {}", describe(&error)),
                "give it the right to do this, or use another executor",
            ),
            error => self.failed("starting a program", Some(error.into())),
        })?;
        let pipes = [stdin, stdout, stderr];
        Running::new(Arc::clone(self), slot, dir, process, pipes, begun, &job.limits, job.stdin.clone())
            .map_err(io("watching a program"))
    }

    fn prepare(
        &self,
        dir: &WorkDir,
        user: Option<u32>,
        limits: &Limits,
        arguments: &[&str],
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<Launch, ExecutorError> {
        let processes = limits.processes > 1;
        let inside = matches!(self.walls, Walls::Bubblewrap(_));
        let namespace = if processes || inside {
            self.offers.check_namespace(self.name)?;
            own_namespace()
        } else {
            Namespace::Shared
        };
        // An ordinary user's processes are counted all together, except in a namespace.
        let counted = user.is_some() || namespace != Namespace::Shared;
        // bubblewrap itself is two processes until the program begins.
        let tasks = counted.then(|| limits::tasks(limits) + if inside { 2 } else { 0 });
        let open = |path: &Path| {
            let mut options = File::options();
            options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
            options.open(path).map(OwnedFd::from)
        };
        let directory =
            open(&dir.writable()).map_err(|error| self.failed("opening a directory", Some(error.into())))?;
        let filter = if self.with_seccomp {
            let signals = namespace != Namespace::Shared;
            Some(
                Filter::new(processes, signals)
                    .map_err(|error| self.failed("a filter", Some(error.into())))?,
            )
        } else {
            None
        };

        let program = dir.program();
        let mut command: Vec<&OsStr> =
            vec![self.interpreter.path.as_os_str(), OsStr::new("-s"), OsStr::new("-B"), program.as_os_str()];
        command.extend(arguments.iter().map(OsStr::new));
        let writable = dir.writable();
        let environment = ENVIRONMENT
            .map(|(name, value)| (name, OsStr::new(value)))
            .into_iter()
            .chain(["HOME", "TMPDIR"].map(|name| (name, writable.as_os_str())));
        let environment = environment.map(|(name, value)| {
            let mut entry = name.as_bytes().to_vec();
            entry.push(b'=');
            entry.extend(value.as_bytes());
            self.text(&entry)
        });
        let environment = environment.collect::<Result<Vec<_>, _>>()?;

        let (mut landlock, mut seccomp) = (None, None);
        let (executable, words) = match &self.walls {
            Walls::Landlock(readable) => {
                seccomp = filter;
                if let Some(readable) = readable {
                    landlock = readable
                        .ruleset(&program, &writable)
                        .map_err(|error| self.failed("a Landlock ruleset", Some(error)))?;
                    if landlock.is_none() {
                        return Err(self.failed("Landlock was there and is no longer", None));
                    }
                }
                (self.interpreter.path.as_os_str(), command.iter().map(|word| (*word).to_owned()).collect())
            }
            Walls::Bubblewrap(bwrap) => {
                let mut words = vec![bwrap.clone().into_os_string()];
                words.extend(super::bubblewrap::arguments(&self.interpreter, dir));
                if let Some(filter) = filter {
                    let (read, write) =
                        pipe2(OFlag::O_CLOEXEC).map_err(|error| self.failed("a pipe", Some(error.into())))?;
                    // Less than a pipe holds, so that this does not wait for a reader.
                    File::from(write)
                        .write_all(&filter.bytes())
                        .map_err(|error| self.failed("a filter", Some(error.into())))?;
                    descriptors.push(read);
                }
                words.push("--".into());
                words.extend(command.iter().map(|word| (*word).to_owned()));
                (bwrap.as_os_str(), words)
            }
        };
        Ok(Launch {
            executable: self.text(executable.as_bytes())?,
            arguments: words.iter().map(|word| self.text(word.as_bytes())).collect::<Result<_, _>>()?,
            environment,
            descriptors,
            directory,
            namespace,
            user,
            rlimits: limits::rlimits(limits, tasks),
            landlock,
            seccomp,
        })
    }

    fn text(&self, bytes: &[u8]) -> Result<CString, ExecutorError> {
        CString::new(bytes).map_err(|error| self.failed("a path with a zero in it", Some(error.into())))
    }

    /// How the program ended, from how our child did.
    fn exit(&self, ended: Ended) -> ProgramExit {
        match ended.code {
            // bubblewrap stays outside and reports the program's signal as a shell does.
            Some(code @ 129..=192) if matches!(self.walls, Walls::Bubblewrap(_)) => {
                ProgramExit::Signal(code - 128)
            }
            Some(code) => ProgramExit::Code(code),
            None => ProgramExit::Signal(ended.signal),
        }
    }

    fn failed(&self, what: &str, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> ExecutorError {
        failed(self.name, what, source)
    }
}

fn failed(
    executor: &'static str,
    what: &str,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
) -> ExecutorError {
    ExecutorError::Failed { executor, what: what.to_owned(), source }
}

/// An error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
