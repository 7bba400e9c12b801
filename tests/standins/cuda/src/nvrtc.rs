//! `libnvrtc`: CUDA C++ compiled by the system's C++ compiler, with the emulation before it.

use crate::{kernels::MAGIC, objects::Compiler, world::world};
use std::{
    env,
    ffi::{CStr, c_char, c_int},
    fs,
    path::PathBuf,
    process, ptr, thread,
    time::{Duration, Instant},
};

/// Results that are used.
const SUCCESS: c_int = 0;
const INVALID_OPTION: c_int = 5;
const COMPILATION: c_int = 6;

/// The emulation, which every source is compiled with.
const HOST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../kernels/cuda/host");

/// A program.
struct Program {
    text: String,
    log: Vec<u8>,
    code: Vec<u8>,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    // SAFETY: the caller gives room for two numbers.
    unsafe { (*major, *minor) = (13, 0) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut *mut Program,
    text: *const c_char,
    _: *const c_char,
    _: c_int,
    _: *const *const c_char,
    _: *const *const c_char,
) -> c_int {
    // SAFETY: the caller gives a text that ends with zero, and room for a handle.
    unsafe {
        let text = CStr::from_ptr(text).to_string_lossy().into_owned();
        let own = Program { text, log: vec![0], code: Vec::new() };
        *program = Box::into_raw(Box::new(own));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut Program) -> c_int {
    // SAFETY: the handle is one of `nvrtcCreateProgram`, and is not used again.
    drop(unsafe { Box::from_raw(*program) });
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCompileProgram(
    program: *mut Program,
    count: c_int,
    options: *const *const c_char,
) -> c_int {
    // SAFETY: the handle is live, and this many texts are given.
    let (program, options) = unsafe {
        let option = |k| CStr::from_ptr(*options.add(k)).to_string_lossy().into_owned();
        (&mut *program, (0..count as usize).map(option).collect::<Vec<_>>())
    };
    let known = |option: &String| {
        [
            "--gpu-architecture=sm_90a",
            "--gpu-architecture=compute_90",
            "--std=c++17",
            "-default-device",
        ]
        .contains(&option.as_str())
    };
    if let Some(unknown) = options.iter().find(|option| !known(option)) {
        program.log = format!("unknown option {unknown}\0").into_bytes();
        return INVALID_OPTION;
    }
    begin();
    let made = compile(&program.text);
    world().counts.compiling -= 1;
    match made {
        Ok(object) => {
            let length = (object.len() as u64).to_ne_bytes();
            program.code = [MAGIC.as_slice(), &length, &object].concat();
            SUCCESS
        }
        Err(log) => {
            program.log = [log.into_bytes(), vec![0]].concat();
            COMPILATION
        }
    }
}

/// How long a source waits for others.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counts a source, and waits until as many as are told have been compiled at once.
fn begin() {
    let together = world().settings.compile_together;
    {
        let counts = &mut world().counts;
        counts.compilations += 1;
        counts.compiling += 1;
        counts.compiled_at_once = counts.compiled_at_once.max(counts.compiling);
    }
    let start = Instant::now();
    while world().counts.compiled_at_once < together && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
}

/// The shared object of a source, or what the compiler says.
fn compile(text: &str) -> Result<Vec<u8>, String> {
    let given = env::var("CXX").ok();
    let kept = env::var("STANDIN_CUDA_OBJECTS").ok();
    // A compiler that somebody names may change behind its name.
    let kept = kept.filter(|_| given.is_none()).map(PathBuf::from);
    let compiler = Compiler {
        command: given.unwrap_or_else(|| "c++".to_owned()),
        flags: Vec::new(),
        host: HOST.into(),
    };
    let own = env::temp_dir().join(format!("standin-{}", process::id()));
    let object = compiler.object(text, kept.as_ref().unwrap_or(&own))?;
    let read = fs::read(&object).map_err(|error| error.to_string());
    if kept.is_none() {
        let _ = fs::remove_file(&object);
        // Another thread may still compile there; whoever is last takes the folder away.
        let _ = fs::remove_dir(&own);
    }
    read
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLogSize(
    program: *const Program,
    size: *mut usize,
) -> c_int {
    // SAFETY: the handle is live; the caller gives room for a number.
    unsafe { *size = (*program).log.len() };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLog(
    program: *const Program,
    log: *mut c_char,
) -> c_int {
    // SAFETY: the handle is live; the caller gives room for as many bytes as it was told.
    unsafe {
        let own = &(*program).log;
        ptr::copy_nonoverlapping(own.as_ptr(), log.cast(), own.len());
    }
    SUCCESS
}

/// The architectures that this one knows.
const KNOWN: [c_int; 2] = [80, 90];

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> c_int {
    // SAFETY: the caller gives room for a number.
    unsafe { *count = KNOWN.len() as c_int };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetSupportedArchs(known: *mut c_int) -> c_int {
    // SAFETY: the caller gives room for as many numbers as it was told.
    unsafe { ptr::copy_nonoverlapping(KNOWN.as_ptr(), known, KNOWN.len()) };
    SUCCESS
}

/// The same as machine code, which ends with zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetPTXSize(program: *const Program, size: *mut usize) -> c_int {
    // SAFETY: as for the log.
    unsafe { *size = (*program).code.len() + 1 };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetPTX(program: *const Program, code: *mut c_char) -> c_int {
    // SAFETY: as for the log, and one byte more.
    unsafe {
        let own = &(*program).code;
        ptr::copy_nonoverlapping(own.as_ptr(), code.cast(), own.len());
        *code.add(own.len()) = 0;
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetCUBINSize(
    program: *const Program,
    size: *mut usize,
) -> c_int {
    // SAFETY: as for the log.
    unsafe { *size = (*program).code.len() };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetCUBIN(program: *const Program, code: *mut c_char) -> c_int {
    // SAFETY: as for the log.
    unsafe {
        let own = &(*program).code;
        ptr::copy_nonoverlapping(own.as_ptr(), code.cast(), own.len());
    }
    SUCCESS
}
