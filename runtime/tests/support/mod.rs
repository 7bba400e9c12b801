//! What the tests of machines share: small models, every kind of plan, examples from a seed, and
//! a comparison of a replay with the oracle bit by bit.

#[path = "../../../tests/support/models.rs"]
pub(crate) mod models;
#[path = "../../../tests/support/plans.rs"]
pub(crate) mod plans;
#[path = "../../../tests/support/random.rs"]
mod random;
pub(crate) mod runs;

use random::Random;
use roundelay_runtime::Feed;
use roundelay_schedule::{Element, Float, Id, InputId, Job, Native};

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
        let mut random = Random::new(seed);
        for number in bytes.chunks_exact_mut(element.size(self.dtype) as usize) {
            match (element, self.dtype) {
                (Element::I32, _) => {
                    let token = (random.bits() % bound.max(1)) as i32;
                    number.copy_from_slice(&token.to_ne_bytes());
                }
                (Element::Real | Element::Wide, dtype) => {
                    write(dtype, number, random.real());
                }
            }
        }
    }
}

fn write(dtype: Float, bytes: &mut [u8], value: f64) {
    match dtype.native().expect("the CPU runs it") {
        Native::F32 => bytes.copy_from_slice(&(value as f32).to_ne_bytes()),
        Native::F64 => bytes.copy_from_slice(&value.to_ne_bytes()),
    }
}
