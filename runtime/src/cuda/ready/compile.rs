//! Machine code of sources: compiled by NVRTC when it is first needed, and kept on disk.
#![expect(unsafe_code, reason = "NVRTC is called here")]

use super::{
    super::{
        CudaError,
        driver::{DeviceFacts, nvrtc},
    },
    cache::{cache_folder, read, write},
};
use crate::digest::Digest;
use cudarc::nvrtc::sys::{nvrtcProgram, nvrtcResult};
use roundelay_kernels::cuda::{OPTIONS, Source};
use std::{
    ffi::CString,
    fmt,
    path::{Path, PathBuf},
    ptr,
};

/// The devices that have the instructions of `sm_90a`.
pub(super) const SM90: (u32, u32) = (9, 0);

/// What a source is compiled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Machine code of exactly one architecture, such as `sm_90a`, whose instructions all are there.
    Machine { capability: (u32, u32), suffix: &'static str },
    /// Code of a virtual architecture, which the driver turns into that of a newer device.
    Virtual { capability: (u32, u32) },
}

impl Target {
    /// For a device: its machine code where the compiler knows it, else the newest code that the
    /// compiler knows and that the device takes. `known` has numbers such as 90.
    fn of(capability: (u32, u32), known: &[u32]) -> Self {
        let number = |(major, minor): (u32, u32)| 10 * major + minor;
        if known.is_empty() || known.contains(&number(capability)) {
            let suffix = if capability == SM90 { "a" } else { "" };
            return Target::Machine { capability, suffix };
        }
        let older = known.iter().filter(|other| **other < number(capability)).max();
        match older {
            Some(older) => Target::Virtual { capability: (older / 10, older % 10) },
            None => Target::Machine { capability, suffix: "" },
        }
    }

    /// How the file of a cache ends.
    fn extension(self) -> &'static str {
        match self {
            Target::Machine { .. } => "cubin",
            Target::Virtual { .. } => "ptx",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Machine { capability: (major, minor), suffix } => {
                write!(f, "sm_{major}{minor}{suffix}")
            }
            Target::Virtual { capability: (major, minor) } => {
                write!(f, "compute_{major}{minor}")
            }
        }
    }
}

/// Compiles for one device.
pub(super) struct Compiler {
    target: Target,
    version: (u32, u32),
    cache: Option<PathBuf>,
}

impl Compiler {
    /// For a device, with a cache in the user's folder for such things if there is one.
    pub(super) fn new(facts: &DeviceFacts) -> Self {
        Self {
            target: Target::of(facts.capability, &known_architectures()),
            version: facts.compiler,
            cache: cache_folder(),
        }
    }

    /// Machine code of a source, which `accept` must take: where it refuses what is on disk, that
    /// is made again.
    ///
    /// # Errors
    /// When the source is not compiled, or what `accept` says of what was just compiled.
    pub(super) fn load<T>(
        &self,
        source: Source,
        accept: impl Fn(&[u8]) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        let known = self.file(source).as_deref().and_then(read);
        if let Some(Ok(accepted)) = known.map(|code| accept(&code)) {
            return Ok(accepted);
        }
        accept(&self.make(source)?)
    }

    /// Machine code of a source of which the cache has none.
    ///
    /// # Errors
    /// When the source is not compiled.
    pub(super) fn compile_new(
        &self,
        source: Source,
    ) -> Result<Option<Vec<u8>>, CudaError> {
        match self.file(source).as_deref().and_then(read) {
            Some(_) => Ok(None),
            None => self.make(source).map(Some),
        }
    }

    /// The cache.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    /// What code is for, as NVRTC calls it.
    pub(super) fn architecture(&self) -> String {
        self.target.to_string()
    }

    /// Compiles a source, and keeps the machine code.
    fn make(&self, source: Source) -> Result<Vec<u8>, CudaError> {
        let code = self.compile(source)?;
        if let Some(file) = self.file(source) {
            // A cache that cannot be written only costs time.
            let _ = write(&file, &code);
        }
        Ok(code)
    }

    /// Where the cache has a source's machine code.
    fn file(&self, source: Source) -> Option<PathBuf> {
        self.cache.as_ref().map(|folder| folder.join(self.name(source)))
    }

    fn name(&self, source: Source) -> String {
        let mut digest = Digest::new();
        let (major, minor) = self.version;
        let version = format!("{major}.{minor} {OPTIONS:?}");
        let Self { target, .. } = self;
        for part in [source.text, &target.to_string(), &version] {
            digest.add(part.as_bytes());
        }
        let stem = source.name.trim_end_matches(".cu");
        format!("{stem}-{target}-{:016x}.{}", digest.value(), target.extension())
    }

    fn compile(&self, source: Source) -> Result<Vec<u8>, CudaError> {
        let failed = |log: String| CudaError::Compile {
            file: source.name,
            architecture: self.architecture(),
            log: log.trim_end().to_owned(),
        };
        let program = Program::new(source).map_err(|result| failed(result.to_owned()))?;
        let architecture = format!("--gpu-architecture={}", self.target);
        let options =
            OPTIONS.iter().map(|option| (*option).to_owned()).chain([architecture]);
        let options: Vec<CString> =
            options.map(|option| CString::new(option).unwrap_or_default()).collect();
        program.compile(&options, self.target).map_err(failed)
    }
}

/// A program of NVRTC.
struct Program(nvrtcProgram);

impl Program {
    fn new(source: Source) -> Result<Self, &'static str> {
        let text = CString::new(source.text).map_err(|_| "the source has a zero byte")?;
        let name = CString::new(source.name).map_err(|_| "its name has a zero byte")?;
        let mut raw = ptr::null_mut();
        // SAFETY: both texts end with zero; a program is written; there are no headers.
        let result = unsafe {
            nvrtc::nvrtcCreateProgram(
                &raw mut raw,
                text.as_ptr(),
                name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        match result {
            nvrtcResult::NVRTC_SUCCESS => Ok(Self(raw)),
            _ => Err("NVRTC makes no program of it"),
        }
    }

    /// Machine code, or what the compiler says.
    fn compile(&self, options: &[CString], target: Target) -> Result<Vec<u8>, String> {
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is live, and every option ends with zero.
        let result = unsafe {
            nvrtc::nvrtcCompileProgram(self.0, options.len() as i32, options.as_ptr())
        };
        if result != nvrtcResult::NVRTC_SUCCESS {
            let log =
                self.bytes(nvrtc::nvrtcGetProgramLogSize, nvrtc::nvrtcGetProgramLog);
            let log = log.unwrap_or_else(|result| format!("no log: {result:?}").into());
            let log = String::from_utf8_lossy(&log).replace('\0', "");
            return Err(format!("{log}\n({result:?})"));
        }
        let code = match target {
            Target::Machine { .. } => {
                self.bytes(nvrtc::nvrtcGetCUBINSize, nvrtc::nvrtcGetCUBIN)
            }
            Target::Virtual { .. } => {
                self.bytes(nvrtc::nvrtcGetPTXSize, nvrtc::nvrtcGetPTX)
            }
        };
        code.map_err(|result| format!("it does not give the code: {result:?}"))
    }

    /// What a pair of calls gives: how many bytes, and the bytes.
    ///
    /// # Errors
    /// What one of them answers, if that is not success.
    fn bytes(
        &self,
        size: unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult,
        get: unsafe fn(nvrtcProgram, *mut std::ffi::c_char) -> nvrtcResult,
    ) -> Result<Vec<u8>, nvrtcResult> {
        let done = |result| match result {
            nvrtcResult::NVRTC_SUCCESS => Ok(()),
            other => Err(other),
        };
        let mut count = 0;
        // SAFETY: the program is live; a number is written.
        done(unsafe { size(self.0, &raw mut count) })?;
        let mut bytes = vec![0u8; count];
        // SAFETY: as before; this many bytes are written.
        done(unsafe { get(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is live.
        let _ = unsafe { nvrtc::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

/// The architectures that NVRTC knows; none where it does not say.
fn known_architectures() -> Vec<u32> {
    let mut count = 0;
    // SAFETY: a number is written.
    let asked = unsafe { nvrtc::nvrtcGetNumSupportedArchs(&raw mut count) };
    let mut known = vec![0i32; usize::try_from(count).unwrap_or(0)];
    if asked != nvrtcResult::NVRTC_SUCCESS || known.is_empty() {
        return Vec::new();
    }
    // SAFETY: this many numbers are written.
    let asked = unsafe { nvrtc::nvrtcGetSupportedArchs(known.as_mut_ptr()) };
    match asked {
        nvrtcResult::NVRTC_SUCCESS => {
            known.into_iter().filter_map(|number| u32::try_from(number).ok()).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_newer_than_the_compiler_get_code_for_the_driver() {
        let of = |capability| Target::of(capability, &[75, 80, 86, 90, 100]).to_string();
        assert_eq!(of((8, 0)), "sm_80");
        assert_eq!(of((9, 0)), "sm_90a");
        assert_eq!(of((8, 9)), "compute_86");
        assert_eq!(of((12, 1)), "compute_100");
        assert_eq!(Target::of((9, 0), &[]).to_string(), "sm_90a");
    }
}
