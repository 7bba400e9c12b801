//! Examples that follow from step, micro-batch and input alone.

use crate::random::Random;
use roundelay_runtime::Feed;
use roundelay_schedule::{Id, InputId};

/// Reals in [−1, 1).
#[derive(Clone, Copy)]
pub(crate) struct Examples;

impl Feed for Examples {
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]) {
        let seed = t * 1_000_003 + micro_batch * 1009 + input.index() as u64;
        let mut random = Random::new(seed + 1);
        for number in bytes.chunks_exact_mut(4) {
            let real = (random.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
            number.copy_from_slice(&real.to_ne_bytes());
        }
    }
}
