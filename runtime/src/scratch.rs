//! A folder of one test, removed when the test is over.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
};

/// A fresh folder below the system's folder for temporary files.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// An empty folder; `name` must be unique among the tests of this crate.
    pub(crate) fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("roundelay-{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and the folders that lead to it.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
