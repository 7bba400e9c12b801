//! What the tests of machines share: small models, every kind of plan, examples from a seed, and
//! a comparison of a replay with the oracle bit by bit.

pub(crate) mod models;
pub(crate) mod plans;
pub(crate) mod runs;

use roundelay_runtime::Feed;
use roundelay_schedule::{Element, Float, Id, InputId, Job};

/// Numbers that look random and follow from a seed (splitmix64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Uniform in [−1, 1).
    pub(crate) fn real(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Examples that follow from step, micro-batch and input alone.
#[derive(Clone)]
pub(crate) struct Examples {
    dtype: Float,
    inputs: Vec<(Element, u64)>,
}

impl Examples {
    pub(crate) fn of(job: &Job) -> Self {
        let inputs = job.inputs.values().map(|input| (input.element, input.bound));
        Self { dtype: job.dtype, inputs: inputs.collect() }
    }
}

impl Feed for Examples {
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]) {
        let (element, bound) = self.inputs[input.index()];
        let seed = t * 1_000_003 + micro_batch * 1009 + input.index() as u64;
        let mut numbers = Numbers(seed);
        for number in bytes.chunks_exact_mut(element.size(self.dtype) as usize) {
            match (element, self.dtype) {
                (Element::I32, _) => {
                    let token = (numbers.bits() % bound.max(1)) as i32;
                    number.copy_from_slice(&token.to_ne_bytes());
                }
                (Element::Real, dtype) => write(dtype, number, numbers.real()),
            }
        }
    }
}

fn write(dtype: Float, bytes: &mut [u8], value: f64) {
    match dtype {
        Float::F32 => bytes.copy_from_slice(&(value as f32).to_ne_bytes()),
        Float::F64 => bytes.copy_from_slice(&value.to_ne_bytes()),
    }
}
