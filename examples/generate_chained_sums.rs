//! Writes the data set of chained sums: problems to train and evaluate on, and worked solutions to imitate first.
//!
//! ```text
//! cargo run -p firebrick-examples --example generate_chained_sums [DIRECTORY]
//! ```
//!
//! Takes well under a second and rewrites the files of `examples/data/chained_sums` byte for byte; with a directory,
//! writes the folder there.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use firebrick_examples::{ChainedSums, ChainedSumsSpec};

fn main() -> anyhow::Result<()> {
    let directory = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/data")), PathBuf::from);
    let spec = ChainedSumsSpec::CHAINED;
    let folder = directory.join(spec.name);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, content) in ChainedSums::generate(spec).files()? {
        let path = folder.join(name);
        std::fs::write(&path, &content).with_context(|| format!("cannot write {}", path.display()))?;
        writeln!(std::io::stdout(), "{}: {} rows", path.display(), content.lines().count())?;
    }
    Ok(())
}
