//! Printing to the user.

use std::io::{ErrorKind, Write};

/// Prints a text to standard output. A reader that has gone, as `head` does, is no error.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => Ok(outcome?),
    }
}
