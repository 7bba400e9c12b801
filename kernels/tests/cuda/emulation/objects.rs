//! Shared objects of CUDA sources: made by the system's C++ compiler with the emulation before them,
//! and kept under names that change with all that they depend on.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// How every source is compiled.
const FLAGS: [&str; 7] =
    ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread", "-w"];

/// Numbers files that are being made, for their names.
static MAKING: AtomicU64 = AtomicU64::new(0);

/// How objects are made.
pub(crate) struct Compiler {
    /// The command.
    pub(crate) command: String,
    /// Flags besides the usual ones.
    pub(crate) flags: Vec<String>,
    /// The folder of the emulation.
    pub(crate) host: PathBuf,
}

impl Compiler {
    /// The shared object of a text, compiled unless the folder has it.
    ///
    /// # Errors
    /// What the compiler says, or why there is none.
    pub(crate) fn object(&self, text: &str, folder: &Path) -> Result<PathBuf, String> {
        let named = self.fingerprint(text).map_err(|error| error.to_string())?;
        let object = folder.join(format!("{named:016x}.so"));
        if object.exists() {
            return Ok(object);
        }
        let (own, number) = (process::id(), MAKING.fetch_add(1, Relaxed));
        let stem = folder.join(format!("{named:016x}-{own}-{number}"));
        let (source, fresh) = (stem.with_extension("cc"), stem.with_extension("so"));
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&source, text));
        let made = written
            .map_err(|error| error.to_string())
            .and_then(|()| self.call(&source, &fresh));
        let _ = fs::remove_file(&source);
        // Others may do the same; each finds a whole file.
        made.and_then(|()| {
            fs::rename(&fresh, &object).map_err(|error| error.to_string())
        })?;
        Ok(object)
    }

    /// A number that changes with all that a compiled text depends on.
    fn fingerprint(&self, text: &str) -> io::Result<u64> {
        let mut hasher = DefaultHasher::new();
        let headers = fs::read_dir(&self.host)?.map(|entry| Ok(entry?.path()));
        let mut headers = headers.collect::<io::Result<Vec<_>>>()?;
        headers.sort();
        for header in headers {
            fs::read(header)?.hash(&mut hasher);
        }
        (&self.command, FLAGS, &self.flags, text).hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn call(&self, source: &Path, object: &Path) -> Result<(), String> {
        // A sanitizer that is loaded before this process is not for the compiler.
        let called = Command::new(&self.command)
            .env_remove("LD_PRELOAD")
            .args(FLAGS)
            .args(&self.flags)
            .arg("-include")
            .arg(self.host.join("emulation.h"))
            .arg(source)
            .arg("-o")
            .arg(object)
            .output();
        let output = called.map_err(|error| format!("{}: {error}", self.command))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}
