//! Which libraries of CUDA are here, found before anything is called that would need them. The driver is
//! the system's and opened by cudarc, all others are opened here (`tables.rs`, `nccl/library.rs`).

use super::{
    DriverError,
    tables::{Missing, cublaslt, cudnn, nvrtc},
};
use cudarc::driver;
use libloading::{
    Library,
    os::unix::{Library as Native, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW},
};
use std::{
    env,
    ffi::c_int,
    fs, mem,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Folders that are searched before all others, separated by colons.
const FOLDERS: &str = "ROUNDELAY_CUDA_LIBRARIES";

/// The oldest driver that has all that is called, as CUDA numbers versions.
const OLDEST_DRIVER: i32 = 12_000;

/// The oldest NVRTC and cuBLASLt.
const OLDEST_MAJOR: i32 = 12;

/// The oldest cuDNN, as it numbers versions before 9: 8.9.
const OLDEST_CUDNN: usize = 8_900;

/// What of CUDA is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCuda {
    /// No driver.
    #[error("there is no NVIDIA driver here (libcuda.so was not found): {}", self.hint())]
    Driver,
    /// A driver that is too old.
    #[error("the NVIDIA driver is for CUDA {found}; {}", self.hint())]
    OldDriver {
        /// Its version.
        found: String,
    },
    /// No compiler.
    #[error(
        "there is no NVRTC here (libnvrtc.so was not found), which compiles the kernels: {}",
        self.hint()
    )]
    Compiler,
    /// A compiler that is too old.
    #[error("NVRTC is of CUDA {found}; {}", self.hint())]
    OldCompiler {
        /// Its version.
        found: String,
    },
    /// A library without a function that is called.
    #[error("{library} has no `{symbol}`; {}", self.hint())]
    Symbol {
        /// Which library.
        library: &'static str,
        /// What it lacks.
        symbol: &'static str,
    },
    /// A device whose instructions are too few for the kernels.
    #[error("{device} is too old; the kernels are for compute capability 8.0 or newer")]
    OldDevice {
        /// Its name and capability.
        device: String,
    },
    /// The driver does not start.
    #[error("the NVIDIA driver does not start: {0}")]
    Start(DriverError),
    /// No device.
    #[error("the NVIDIA driver sees no GPU; {}", self.hint())]
    Device,
}

impl NoCuda {
    /// What would help, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Driver => "install one for CUDA 12 or newer",
            Self::OldDriver { .. } => "install one for CUDA 12.0 or newer",
            Self::Compiler => {
                "install it, as `pip install nvidia-cuda-nvrtc` does, or name its folder in \
                 ROUNDELAY_CUDA_LIBRARIES"
            }
            Self::Symbol { .. } => "install one of CUDA 12.0 or newer",
            Self::OldCompiler { .. } => "install that of CUDA 12.0 or newer",
            Self::Device => "look at CUDA_VISIBLE_DEVICES and `nvidia-smi`",
            Self::OldDevice { .. } | Self::Start(_) => "",
        }
    }
}

/// The libraries, all loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Libraries {
    /// The driver's version, as CUDA numbers them.
    pub(crate) driver: i32,
    /// NVRTC's version.
    pub(crate) compiler: (i32, i32),
    /// The version of cuBLASLt, where there is one that is new enough; else own kernels make all
    /// products.
    pub(crate) products: Option<usize>,
    /// That of cuDNN; else own kernels make all convolutions.
    pub(crate) convolutions: Option<usize>,
}

impl Libraries {
    /// Looks for all of them, once.
    ///
    /// # Errors
    /// What is missing or too old.
    pub(crate) fn load() -> Result<Self, NoCuda> {
        static FOUND: OnceLock<Result<Libraries, NoCuda>> = OnceLock::new();
        FOUND.get_or_init(find).clone()
    }
}

fn find() -> Result<Libraries, NoCuda> {
    if !has_driver() {
        return Err(NoCuda::Driver);
    }
    let driver = driver_version()?;
    let compiler = compiler_version()?;
    // In this order: later ones look for earlier ones by name.
    let (products, convolutions) = (products_version(), convolutions_version());
    Ok(Libraries { driver, compiler, products, convolutions })
}

fn driver_version() -> Result<i32, NoCuda> {
    // SAFETY: the library is present.
    let library = unsafe { driver::sys::culib() };
    has_all(library)?;
    let mut version = 0;
    // SAFETY: the driver writes one number; its symbol is there.
    let asked = unsafe {
        super::driver!(cuInit(0))
            .and(super::driver!(cuDriverGetVersion(&raw mut version)))
    };
    let no_device = driver::sys::CUresult::CUDA_ERROR_NO_DEVICE as u32;
    match asked {
        Err(error) if error.code == no_device => Err(NoCuda::Device),
        Err(error) => Err(NoCuda::Start(error)),
        Ok(()) if version < OLDEST_DRIVER => {
            Err(NoCuda::OldDriver { found: dotted(version) })
        }
        Ok(()) => Ok(version),
    }
}

/// A version as CUDA numbers them: 12040 is 12.4.
fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn compiler_version() -> Result<(i32, i32), NoCuda> {
    nvrtc::load().map_err(|missing| match missing {
        Missing::Library => NoCuda::Compiler,
        Missing::Symbol(symbol) => NoCuda::Symbol { library: "NVRTC", symbol },
    })?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two numbers are written.
    let _ = unsafe { nvrtc::nvrtcVersion(&raw mut major, &raw mut minor) };
    match major >= OLDEST_MAJOR {
        true => Ok((major, minor)),
        false => Err(NoCuda::OldCompiler { found: format!("{major}.{minor}") }),
    }
}

/// A library of products that lacks something is as good as none.
fn products_version() -> Option<usize> {
    cublaslt::load().ok()?;
    // SAFETY: it takes nothing.
    let version = unsafe { cublaslt::cublasLtGetVersion() };
    (version / 10_000 >= OLDEST_MAJOR as usize).then_some(version)
}

/// As for products: what is missing, lacks something or is old is none.
pub(crate) fn convolutions_version() -> Option<usize> {
    cudnn::load().ok()?;
    if !cudnn::has_parts() {
        return None;
    }
    // SAFETY: it takes nothing.
    let version = unsafe { cudnn::cudnnGetVersion() };
    (version >= OLDEST_CUDNN).then_some(version)
}

/// What is called of the driver, so that a missing symbol is an error and no panic.
const DRIVER: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuMemGetInfo_v2",
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpy2DAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventElapsedTime",
    "cuEventDestroy_v2",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
];

fn has_all(driver: &Library) -> Result<(), NoCuda> {
    for symbol in DRIVER {
        // SAFETY: the address is only looked for.
        let found = unsafe { driver.get::<*const ()>(symbol.as_bytes()) };
        if found.is_err() {
            return Err(NoCuda::Symbol { library: "the NVIDIA driver", symbol });
        }
    }
    Ok(())
}

/// A library that is open, and stays so as long as this is kept.
pub(super) struct Found {
    library: Native,
    /// Where it lies; none where the system found it.
    folder: Option<PathBuf>,
}

impl Found {
    /// A function of it.
    ///
    /// # Safety
    /// The function has this type.
    pub(super) unsafe fn symbol<T: Copy>(&self, name: &str) -> Option<T> {
        // SAFETY: as the caller says.
        let found = unsafe { self.library.get::<T>(name.as_bytes()) };
        found.ok().map(|symbol| *symbol)
    }

    /// Opens libraries that it looks for by these names alone, where they lie beside it or the system
    /// finds them, and leaves them open; says whether all of them are here. They may want more of an
    /// old driver than it has, and not call it.
    pub(super) fn open_parts(&self, files: &[&str]) -> bool {
        files.iter().all(|file| {
            let beside = self.folder.as_ref().map(|folder| folder.join(file));
            let found = beside.and_then(|file| open_as(&file, RTLD_LAZY));
            let found = found.or_else(|| open_as(Path::new(file), RTLD_LAZY));
            found.map(mem::forget).is_some()
        })
    }
}

/// Opens a library: from the folders that are named, as the system finds it under one of these
/// names, or from where packages put it.
pub(super) fn find_library(name: &str, known: &[&str]) -> Option<Found> {
    let as_system = || {
        let library = known.iter().find_map(|file| open(Path::new(file)))?;
        Some(Found { library, folder: None })
    };
    let found = open_from(&named_folders(), name).or_else(as_system);
    found.or_else(|| open_from(&package_folders(), name))
}

/// Whether the driver can be opened: from the folders that are named, as the system finds it, or
/// from where packages put it. One that was opened from a folder is found again by its name, so
/// it stays open.
fn has_driver() -> bool {
    // SAFETY: this only opens the library, whose initializers are trusted.
    let present = || unsafe { driver::sys::is_culib_present() };
    let keep =
        |folders: &[PathBuf]| open_from(folders, "cuda").map(mem::forget).is_some();
    keep(&named_folders());
    present() || keep(&package_folders()) && present()
}

fn named_folders() -> Vec<PathBuf> {
    let named = env::var_os(FOLDERS).map(|list| env::split_paths(&list).collect());
    named.unwrap_or_default()
}

/// The first library of folders whose name starts like this, if there is one.
fn open_from(folders: &[PathBuf], name: &str) -> Option<Found> {
    folders.iter().find_map(|folder| {
        // NVRTC looks for this one by its name alone, so it must be there already.
        mem::forget(open_first(folder, &format!("lib{name}-builtins.so")));
        let library = open_first(folder, &format!("lib{name}.so"))?;
        Some(Found { library, folder: Some(folder.clone()) })
    })
}

fn open_first(folder: &Path, start: &str) -> Option<Native> {
    let named = files(folder).into_iter().filter(|file| is_named(file, start));
    named.into_iter().find_map(|file| open(&file))
}

fn is_named(file: &Path, start: &str) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(start))
}

fn open(file: &Path) -> Option<Native> {
    open_as(file, RTLD_NOW)
}

/// With functions of other libraries found now or when they are called.
fn open_as(file: &Path, when: c_int) -> Option<Native> {
    // Local, because all symbols are asked of a handle, and libraries of several versions must not
    // take each other's.
    // SAFETY: whoever names a folder of CUDA libraries trusts their initializers.
    unsafe { Native::open(Some(file), when | RTLD_LOCAL) }.ok()
}

/// Where toolkits and Python packages put libraries.
fn package_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        folders
            .extend(env::var_os(variable).map(|home| PathBuf::from(home).join("lib64")));
    }
    folders.push(PathBuf::from("/usr/local/cuda/lib64"));
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        let Some(home) = env::var_os(variable) else { continue };
        let pythons = files(&PathBuf::from(home).join("lib"));
        let nvidia = |python: &PathBuf| python.join("site-packages/nvidia");
        let packages = pythons.iter().flat_map(|python| files(&nvidia(python)));
        folders.extend(packages.map(|package| package.join("lib")));
    }
    folders
}

/// The entries of a folder, in order; none when it cannot be read.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
