//! Programs: run apart from this process, judged from outside.
//!
//! # What a program can do
//!
//! A program is text that a policy wrote: it may do anything that earns a reward, and is taken to be hostile. A [`Sandbox`]
//! starts it as a Python process that gives up its rights before the first line runs; with bubblewrap, in a file system of its
//! own. The table names what stops it.
//!
//! | A program cannot | Local sandbox | Bubblewrap |
//! |---|---|---|
//! | read files but Python's, the C library's and its own | Landlock | they are not there |
//! | write but in its directory, which is gone afterwards | Landlock | mounted read-only |
//! | see `/proc`, other processes or their environment | Landlock | not mounted |
//! | open a connection, or reach a Unix socket | seccomp; Landlock from version 4 | seccomp; a network of its own |
//! | start a process, unless `processes` allows it | seccomp | seccomp |
//! | leave a process behind | the above, or a namespace that ends with it | a namespace |
//! | send a signal to others, trace them, change their limits | seccomp; Landlock from version 6; its user | seccomp; a namespace |
//! | use more time, memory, files or output than [`Limits`] say | resource limits, watching | the same |
//! | change modes, owners, times or attributes of files | seccomp | seccomp |
//! | leave shared memory, queues or locks behind | seccomp | seccomp |
//! | gain rights by running another program | `no_new_privs`; Landlock | `no_new_privs`; it is not there |
//!
//! When we are root, each slot has a user and a group of its own that own nothing, so that the kernel's ordinary checks stand
//! behind every row. When we are not, a program runs as our own user, and the rows stand on what they name alone.
//!
//! # What is not prevented
//!
//! - Faults of the kernel. Programs that are expected to attack it belong in a virtual machine.
//! - Measuring: time, caches, load, and how full the disk is.
//! - Asking whether a path exists, and its size, in the local sandbox: Landlock refuses to open a file, not to ask about it.
//! - Memory beyond the limit with several processes: it counts for each of them, as processor time does.
//! - A file that was deleted while open counts only for `file_mib`, of which 64 can be open.
//! - The directory of a program stays behind when this process is killed; the program does not.
//! - Using a place up to its limits, at the cost of other programs on the same core.
//!
//! # What is needed
//!
//! Linux 5.13 with Landlock and seccomp, and a Python 3 that the user whom programs run as can read. Programs that start
//! processes, and bubblewrap, need a namespace of process numbers: root can make one, others where user namespaces are
//! allowed. What is missing is refused with its name, never passed over; [`Offers`] says what a machine has. Starting a
//! program copies the page tables of this process, as every fork does, which takes the longer the more memory it has. A host
//! must not ignore SIGCHLD or reap children that are not its own.

mod assertion_tests;
#[cfg(target_os = "linux")]
mod bubblewrap;
mod call_tests;
mod case_result;
mod code_block;
mod compare;
mod compare_values;
mod decimal;
mod executor;
mod executor_config;
mod json_text;
#[cfg(target_os = "linux")]
mod local;
mod nonce;
mod runner;
#[cfg(target_os = "linux")]
mod sandbox;
mod sandbox_config;
#[cfg(feature = "remote")]
mod sandbox_fusion;
#[cfg(any(target_os = "linux", feature = "wasm"))]
mod slots;
mod stdin_tests;
mod test_suite;
mod value;
mod verifier;
#[cfg(feature = "wasm")]
mod wasm;

pub use code_block::{CodeBlock, extract_code};
pub use compare::OutputComparison;
pub use executor::{Executor, ExecutorError, Job, Limits, Outcome, ProgramExit, Session};
pub use executor_config::{ExecutorConfig, SandboxFusionConfig, WasmConfig};
#[cfg(target_os = "linux")]
pub use sandbox::{Sandbox, offers::Offers};
pub use sandbox_config::{BubblewrapConfig, LocalSandboxConfig};
#[cfg(feature = "remote")]
pub use sandbox_fusion::SandboxFusion;
pub use verifier::{CodeConfig, CodeVerifier, ProgramScore};
#[cfg(feature = "wasm")]
pub use wasm::WasmPython;
