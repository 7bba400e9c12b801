//! Which algorithms the library offers for a product, and what says which one is which.
//!
//! An algorithm is 64 bytes of which the library says that they may be stored and given back to it, and nothing
//! of what is in them: two that are the same need not have the same bytes, where some have no meaning. So
//! an algorithm is named by all that the library tells of it, and by its place among those of which it
//! tells the same.
#![expect(unsafe_code, reason = "cuBLASLt is called here")]

use super::{Description, Done, Handle, Layout, Refused, WORKSPACE, check};
use crate::cuda::driver::cublaslt;
use cudarc::cublaslt::sys::{
    self, cublasLtMatmulAlgo_t, cublasLtMatmulAlgoConfigAttributes_t as Said,
    cublasLtMatmulHeuristicResult_t as Heuristic, cublasLtMatmulPreferenceAttributes_t,
    cublasStatus_t,
};
use roundelay_schedule::Bytes;
use std::{mem::MaybeUninit, ptr};

/// The most algorithms that the library is asked for.
const OFFERED: usize = 8;

/// `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: sums that are made in parts are not rounded to the type
/// of the result before they meet.
const WIDE_SUMS: u32 = 2;

/// All that the library tells of an algorithm, and in how many bytes.
const TOLD: [(Said, usize); 9] = [
    (Said::CUBLASLT_ALGO_CONFIG_ID, 4),
    (Said::CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
    (Said::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4),
    (Said::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
    (Said::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4),
    (Said::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
    (Said::CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
    (Said::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
    (Said::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2),
];

/// What stands for something that the library does not tell.
const UNTOLD: u32 = u32::MAX;

/// One of the ways in which the library does a product.
#[derive(Clone, Copy)]
pub(in super::super) struct Algorithm {
    pub(super) raw: cublasLtMatmulAlgo_t,
    /// What it takes beside the matrices.
    pub(super) workspace: Bytes,
    told: [u32; TOLD.len()],
    /// How many were offered before it of which the library tells the same.
    place: u32,
}

impl Algorithm {
    /// What says which one it is, for the same version of the library.
    pub(in super::super) fn bytes(&self) -> Vec<u8> {
        let words = self.told.iter().chain([&self.place]);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// What the library tells of an algorithm.
fn told(raw: &cublasLtMatmulAlgo_t) -> [u32; TOLD.len()] {
    TOLD.map(|(said, size)| {
        let (mut bytes, mut written) = ([0; 4], 0);
        // SAFETY: at most this many bytes, and a number, are written.
        let answer = check(unsafe {
            cublaslt::cublasLtMatmulAlgoConfigGetAttribute(
                raw,
                said,
                bytes.as_mut_ptr().cast(),
                size,
                &raw mut written,
            )
        });
        answer.map_or(UNTOLD, |()| u32::from_le_bytes(bytes))
    })
}

/// What an algorithm may count on.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new(alignment: u64) -> Done<Self> {
        use cublasLtMatmulPreferenceAttributes_t as Attribute;
        let mut raw = ptr::null_mut();
        // SAFETY: a preference is written.
        check(unsafe { cublaslt::cublasLtMatmulPreferenceCreate(&raw mut raw) })?;
        let mut own = Self(raw);
        own.set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, WORKSPACE.0)?;
        own.set(Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, WIDE_SUMS)?;
        let alignment = alignment as u32;
        own.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment)?;
        own.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment)?;
        own.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment)?;
        own.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment)?;
        Ok(own)
    }

    fn set<T>(
        &mut self,
        attribute: cublasLtMatmulPreferenceAttributes_t,
        value: T,
    ) -> Done {
        // SAFETY: the preference is live, and the attribute has the size of the value.
        check(unsafe {
            cublaslt::cublasLtMatmulPreferenceSetAttribute(
                self.0,
                attribute,
                ptr::from_ref(&value).cast(),
                size_of::<T>(),
            )
        })
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: the preference is live.
        let _ = unsafe { cublaslt::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}

/// The algorithms that the library offers, the one that it holds best first; there is one at least.
pub(super) fn ask(
    handle: &Handle,
    description: &Description,
    layouts: &[Layout; 3],
    alignment: u64,
) -> Done<Vec<Algorithm>> {
    let preference = Preference::new(alignment)?;
    let [a, b, out] = layouts.each_ref().map(|layout| layout.0);
    let mut found = [const { MaybeUninit::<Heuristic>::zeroed() }; OFFERED];
    let mut count = 0;
    // SAFETY: all descriptions are live; at most this many results and a number are written.
    check(unsafe {
        cublaslt::cublasLtMatmulAlgoGetHeuristic(
            handle.0,
            description.0,
            a,
            b,
            out,
            out,
            preference.0,
            OFFERED as i32,
            found.as_mut_ptr().cast(),
            &raw mut count,
        )
    })?;
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the library has written this many results; all others are zero, which is one too.
    let found =
        found.iter().take(count).map(|result| unsafe { result.assume_init_ref() });
    let usable =
        found.filter(|result| result.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS);
    let mut algorithms: Vec<Algorithm> = Vec::new();
    for result in usable {
        let told = told(&result.algo);
        let same = algorithms.iter().filter(|other| other.told == told).count();
        algorithms.push(Algorithm {
            raw: result.algo,
            workspace: Bytes(result.workspaceSize as u64),
            told,
            place: u32::try_from(same).unwrap_or(u32::MAX),
        });
    }
    match algorithms.is_empty() {
        true => Err(Refused(cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)),
        false => Ok(algorithms),
    }
}
