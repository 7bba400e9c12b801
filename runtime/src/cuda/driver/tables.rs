//! NVRTC, cuBLASLt and cuDNN as tables of functions.
//!
//! The types are cudarc's, but for cuDNN, whose enumerations differ from version to version in what
//! is not used here; cudarc's functions are not used, because they belong to whatever the system
//! finds under a name, also where a folder with another version is named. A function keeps the
//! name that its library gives it.

use super::library::{Found, find_library};
use std::{
    ffi::{c_char, c_int, c_void},
    sync::OnceLock,
};

/// What of a library is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// All of it.
    Library,
    /// A function that is called.
    Symbol(&'static str),
}

/// Declares the functions of a library: its name, the names under which the system may find it,
/// and what is called.
macro_rules! library {
    (
        $name:literal as $files:expr;
        $($symbol:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;)*
    ) => {
        struct Table {
            $($symbol: unsafe extern "C" fn($($kind),*) -> $result,)*
            /// Its functions are in it.
            _library: Found,
        }

        static TABLE: OnceLock<Result<Table, Missing>> = OnceLock::new();

        fn find() -> Result<Table, Missing> {
            let library = find_library($name, &$files).ok_or(Missing::Library)?;
            Ok(Table {
                // SAFETY: the type is that of the library's header.
                $($symbol: unsafe { library.symbol(stringify!($symbol)) }
                    .ok_or(Missing::Symbol(stringify!($symbol)))?,)*
                _library: library,
            })
        }

        /// Looks for it, once; before that nothing of it is called.
        pub(in super::super) fn load() -> Result<(), Missing> {
            TABLE.get_or_init(find).as_ref().map(|_| ()).map_err(|missing| *missing)
        }

        fn table() -> &'static Table {
            let table = TABLE.get().and_then(|table| table.as_ref().ok());
            table.expect("a library is loaded before it is called")
        }

        $(
            /// As the library's documentation says.
            pub(crate) unsafe fn $symbol($($argument: $kind),*) -> $result {
                // SAFETY: the caller keeps the library's promises.
                unsafe { (table().$symbol)($($argument),*) }
            }
        )*
    };
}

/// `libnvrtc`.
#[expect(non_snake_case, reason = "functions have the library's names")]
pub(crate) mod nvrtc {
    use super::{Found, Missing, OnceLock, c_char, c_int, find_library};
    use cudarc::nvrtc::sys::{nvrtcProgram as Program, nvrtcResult as Answer};

    library! {
        "nvrtc" as ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"];
        nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> Answer;
        nvrtcCreateProgram(
            program: *mut Program,
            text: *const c_char,
            name: *const c_char,
            headers: c_int,
            texts: *const *const c_char,
            names: *const *const c_char,
        ) -> Answer;
        nvrtcCompileProgram(
            program: Program,
            count: c_int,
            options: *const *const c_char,
        ) -> Answer;
        nvrtcDestroyProgram(program: *mut Program) -> Answer;
        nvrtcGetProgramLogSize(program: Program, size: *mut usize) -> Answer;
        nvrtcGetProgramLog(program: Program, log: *mut c_char) -> Answer;
        nvrtcGetCUBINSize(program: Program, size: *mut usize) -> Answer;
        nvrtcGetCUBIN(program: Program, code: *mut c_char) -> Answer;
        nvrtcGetPTXSize(program: Program, size: *mut usize) -> Answer;
        nvrtcGetPTX(program: Program, code: *mut c_char) -> Answer;
        nvrtcGetNumSupportedArchs(count: *mut c_int) -> Answer;
        nvrtcGetSupportedArchs(known: *mut c_int) -> Answer;
    }
}

/// `libcublasLt`.
#[expect(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "functions have the library's names and parameters"
)]
pub(crate) mod cublaslt {
    use super::{Found, Missing, OnceLock, c_int, c_void, find_library};
    use cudarc::cublaslt::sys::{
        cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t,
        cublasLtMatmulAlgoConfigAttributes_t, cublasLtMatmulDesc_t,
        cublasLtMatmulDescAttributes_t, cublasLtMatmulHeuristicResult_t,
        cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
        cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
        cublasStatus_t as Answer, cudaDataType, cudaStream_t,
    };

    library! {
        "cublasLt" as ["libcublasLt.so", "libcublasLt.so.13", "libcublasLt.so.12"];
        cublasLtGetVersion() -> usize;
        cublasLtCreate(handle: *mut cublasLtHandle_t) -> Answer;
        cublasLtDestroy(handle: cublasLtHandle_t) -> Answer;
        cublasLtMatmulDescCreate(
            own: *mut cublasLtMatmulDesc_t,
            compute: cublasComputeType_t,
            scale: cudaDataType,
        ) -> Answer;
        cublasLtMatmulDescDestroy(own: cublasLtMatmulDesc_t) -> Answer;
        cublasLtMatmulDescSetAttribute(
            own: cublasLtMatmulDesc_t,
            attribute: cublasLtMatmulDescAttributes_t,
            to: *const c_void,
            size: usize,
        ) -> Answer;
        cublasLtMatrixLayoutCreate(
            own: *mut cublasLtMatrixLayout_t,
            number: cudaDataType,
            rows: u64,
            columns: u64,
            column: i64,
        ) -> Answer;
        cublasLtMatrixLayoutDestroy(own: cublasLtMatrixLayout_t) -> Answer;
        cublasLtMatrixLayoutSetAttribute(
            own: cublasLtMatrixLayout_t,
            attribute: cublasLtMatrixLayoutAttribute_t,
            to: *const c_void,
            size: usize,
        ) -> Answer;
        cublasLtMatmulPreferenceCreate(own: *mut cublasLtMatmulPreference_t) -> Answer;
        cublasLtMatmulPreferenceDestroy(own: cublasLtMatmulPreference_t) -> Answer;
        cublasLtMatmulPreferenceSetAttribute(
            own: cublasLtMatmulPreference_t,
            attribute: cublasLtMatmulPreferenceAttributes_t,
            to: *const c_void,
            size: usize,
        ) -> Answer;
        cublasLtMatmulAlgoGetHeuristic(
            handle: cublasLtHandle_t,
            description: cublasLtMatmulDesc_t,
            a: cublasLtMatrixLayout_t,
            b: cublasLtMatrixLayout_t,
            before: cublasLtMatrixLayout_t,
            out: cublasLtMatrixLayout_t,
            preference: cublasLtMatmulPreference_t,
            wanted: c_int,
            found: *mut cublasLtMatmulHeuristicResult_t,
            count: *mut c_int,
        ) -> Answer;
        cublasLtMatmulAlgoConfigGetAttribute(
            algorithm: *const cublasLtMatmulAlgo_t,
            attribute: cublasLtMatmulAlgoConfigAttributes_t,
            to: *mut c_void,
            size: usize,
            written: *mut usize,
        ) -> Answer;
        cublasLtMatmul(
            handle: cublasLtHandle_t,
            description: cublasLtMatmulDesc_t,
            scale: *const c_void,
            a: *const c_void,
            a_layout: cublasLtMatrixLayout_t,
            b: *const c_void,
            b_layout: cublasLtMatrixLayout_t,
            accumulate: *const c_void,
            before: *const c_void,
            before_layout: cublasLtMatrixLayout_t,
            out: *mut c_void,
            out_layout: cublasLtMatrixLayout_t,
            algorithm: *const cublasLtMatmulAlgo_t,
            workspace: *mut c_void,
            workspace_bytes: usize,
            stream: cudaStream_t,
        ) -> Answer;
    }
}

/// `libcudnn`, of version 8.9 or newer, by the calls that make graphs of operations: they are the same in
/// all of these versions.
#[expect(non_snake_case, reason = "functions have the library's names")]
pub(crate) mod cudnn {
    use super::{Found, Missing, OnceLock, c_char, c_int, c_void, find_library};

    /// What a call answers, and all other enumerations.
    pub(crate) type Answer = c_int;
    /// The library, started.
    pub(crate) type Handle = *mut c_void;
    /// A part of a graph of operations or of its plan.
    pub(crate) type Raw = *mut c_void;

    /// What the library opens by name before any call; where that is missing it ends the process.
    const NEEDED: [&str; 3] =
        ["libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_cnn.so.9"];
    const NEEDED_OF_8: [&str; 4] = [
        "libcudnn_ops_infer.so.8",
        "libcudnn_ops_train.so.8",
        "libcudnn_cnn_infer.so.8",
        "libcudnn_cnn_train.so.8",
    ];

    /// What version 9 opens when it starts.
    const ENGINES: [&str; 3] = [
        "libcudnn_engines_precompiled.so.9",
        "libcudnn_engines_runtime_compiled.so.9",
        "libcudnn_heuristic.so.9",
    ];

    /// Whether it is of version 9 or newer, which calls would tell that need its parts.
    fn is_of_9() -> bool {
        // SAFETY: the address is only looked for.
        unsafe { table()._library.symbol::<*const ()>("cudnnGraphVersionCheck") }
            .is_some()
    }

    /// Opens the parts that calls need; without them nothing may be called.
    pub(in super::super) fn has_parts() -> bool {
        let needed = if is_of_9() { &NEEDED[..] } else { &NEEDED_OF_8 };
        table()._library.open_parts(needed)
    }

    /// Opens the parts that it needs to start, which takes longer.
    pub(crate) fn has_engines() -> bool {
        !is_of_9() || table()._library.open_parts(&ENGINES)
    }

    library! {
        "cudnn" as ["libcudnn.so.9", "libcudnn.so", "libcudnn.so.8"];
        cudnnGetVersion() -> usize;
        cudnnGetErrorString(answer: Answer) -> *const c_char;
        cudnnCreate(handle: *mut Handle) -> Answer;
        cudnnDestroy(handle: Handle) -> Answer;
        cudnnSetStream(handle: Handle, stream: *mut c_void) -> Answer;
        cudnnBackendCreateDescriptor(kind: c_int, own: *mut Raw) -> Answer;
        cudnnBackendDestroyDescriptor(own: Raw) -> Answer;
        cudnnBackendSetAttribute(
            own: Raw,
            name: c_int,
            kind: c_int,
            count: i64,
            values: *const c_void,
        ) -> Answer;
        cudnnBackendGetAttribute(
            own: Raw,
            name: c_int,
            kind: c_int,
            most: i64,
            count: *mut i64,
            values: *mut c_void,
        ) -> Answer;
        cudnnBackendFinalize(own: Raw) -> Answer;
        cudnnBackendExecute(handle: Handle, plan: Raw, pack: Raw) -> Answer;
    }
}
