//! The directory of one program.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

/// Files and directories that a program may have at once.
const MAX_ENTRIES: usize = 1024;
/// Directories inside each other: looking into a deep one takes time that grows with the square.
const MAX_DEPTH: usize = 64;

/// A new directory with the program's text, which it can read, and a directory inside that is the only place where it can
/// write. Gone when dropped.
#[derive(Debug)]
pub(crate) struct WorkDir {
    root: PathBuf,
}

impl WorkDir {
    /// Makes it in `parent`; what is writable belongs to `owner`.
    pub(crate) fn create(parent: &Path, program: &str, owner: Option<u32>) -> io::Result<Self> {
        let root = tempfile::Builder::new()
            .prefix("firebrick-program-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)?
            .keep();
        let dir = Self { root };
        fs::write(dir.program(), program)?;
        fs::create_dir(dir.writable())?;
        fs::set_permissions(dir.writable(), Permissions::from_mode(0o700))?;
        if let Some(id) = owner {
            // Another user has to pass through, and to read the one file; the names of the others stay unknown to it.
            fs::set_permissions(dir.program(), Permissions::from_mode(0o444))?;
            fs::set_permissions(&dir.root, Permissions::from_mode(0o711))?;
            chown(dir.writable(), Some(id), Some(id))?;
        }
        Ok(dir)
    }

    /// The file with the program's text.
    pub(crate) fn program(&self) -> PathBuf {
        self.root.join("program.py")
    }

    /// The directory that the program may change.
    pub(crate) fn writable(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Whether its files take more than `max_bytes`, are too many or too deep, or are hidden from us.
    pub(crate) fn is_over(&self, max_bytes: u64) -> bool {
        let (mut bytes, mut entries) = (0, 0);
        let mut pending = vec![(self.writable(), 0)];
        while let Some((dir, depth)) = pending.pop() {
            let list = match fs::read_dir(&dir) {
                Ok(list) => list,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // A directory that cannot be listed holds what cannot be counted.
                Err(_) => return true,
            };
            for entry in list.flatten() {
                // What vanished in the meantime takes no room.
                let Ok(found) = entry.metadata() else { continue };
                bytes += found.blocks() * 512;
                entries += 1;
                if bytes > max_bytes || entries > MAX_ENTRIES || depth > MAX_DEPTH {
                    return true;
                }
                if found.is_dir() {
                    pending.push((entry.path(), depth + 1));
                }
            }
        }
        false
    }

    /// Removes it with all that is inside. No process of the program may be left.
    fn remove(&self) -> io::Result<()> {
        // A tree can be deeper than a path can be long, and a directory can forbid its owner to look inside. So every directory
        // that is found moves up to the top before it is emptied, and nothing is ever more than two levels down.
        let mut pending = vec![self.writable()];
        let mut moved = 0_u64;
        while let Some(dir) = pending.pop() {
            if !dir.try_exists()? {
                continue;
            }
            fs::set_permissions(&dir, Permissions::from_mode(0o700))?;
            for entry in fs::read_dir(&dir)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    fs::set_permissions(entry.path(), Permissions::from_mode(0o700))?;
                    let to = self.root.join(format!("moved-{moved}"));
                    moved += 1;
                    fs::rename(entry.path(), &to)?;
                    pending.push(to);
                } else {
                    fs::remove_file(entry.path())?;
                }
            }
            fs::remove_dir(&dir)?;
        }
        fs::remove_dir_all(&self.root)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(directory = %self.root.display(), %error, "a program's directory could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(dir: &tempfile::TempDir) -> WorkDir {
        WorkDir::create(dir.path(), "pass", None).unwrap()
    }

    #[test]
    fn a_tree_deeper_than_a_path_and_closed_to_its_owner_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let dir = within(&parent);
        // Built from below, as one path cannot name the whole: 30 levels of 200 bytes, the limit being 4096 bytes.
        let name = "d".repeat(200);
        let (top, above) = (parent.path().join(&name), parent.path().join("above"));
        fs::create_dir(&top).unwrap();
        for _ in 0..30 {
            fs::create_dir(&above).unwrap();
            fs::rename(&top, above.join(&name)).unwrap();
            fs::rename(&above, &top).unwrap();
        }
        fs::rename(&top, dir.writable().join(&name)).unwrap();
        assert!(dir.is_over(u64::MAX), "what cannot be named cannot be counted");
        let closed = dir.writable().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("file"), "x").unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
        drop(dir);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_is_removed_and_what_it_points_to_stays() {
        let parent = tempfile::tempdir().unwrap();
        let outside = parent.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        let dir = within(&parent);
        std::os::unix::fs::symlink(&outside, dir.writable().join("link")).unwrap();
        drop(dir);
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn bytes_entries_and_depth_are_counted() {
        let parent = tempfile::tempdir().unwrap();
        let dir = within(&parent);
        fs::create_dir(dir.writable().join("a")).unwrap();
        fs::write(dir.writable().join("a/b"), vec![1; 1 << 20]).unwrap();
        assert!(dir.is_over((1 << 20) - 1));
        assert!(!dir.is_over(2 << 20));
        fs::create_dir_all(dir.writable().join("d/".repeat(MAX_DEPTH + 2))).unwrap();
        assert!(dir.is_over(u64::MAX), "too deep");
        fs::remove_dir_all(dir.writable().join("d")).unwrap();
        for number in 0..MAX_ENTRIES {
            fs::write(dir.writable().join(number.to_string()), "").unwrap();
        }
        assert!(dir.is_over(u64::MAX));
    }
}
