//! Writes that are whole or not there, also after a crash of the machine.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Replaces a file: written aside, synced, renamed.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".partial");
    let aside = Path::new(&aside);
    let written = File::create(aside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(aside, path)) {
        let _ = fs::remove_file(aside); // the first error is the one to report
        return Err(error);
    }
    sync_folder_of(path)
}

/// Makes renames and new files in the folder of `path` durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if cfg!(unix) => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}
