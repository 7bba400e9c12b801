//! `CUBLASLT_EPILOGUE_BGRADA` and `CUBLASLT_EPILOGUE_BGRADB`: what the factors of a product are summed to
//! along the sums of the product, written over what is there, whatever the product is scaled by.

use crate::{
    forbid, matrices::Matrix, memory::is_of_device, numbers::Number,
    products::BIAS_ALIGNMENT, settings::Summed, world::World,
};
use half::bf16;

/// The numbers of both: sums of the rows of the first factor, and of the columns of the second one.
pub(crate) const OF_FIRST: u32 = 256;
pub(crate) const OF_SECOND: u32 = 512;

/// Whether an epilogue is one of them.
pub(crate) fn is_one(epilogue: u32) -> bool {
    [OF_FIRST, OF_SECOND].contains(&epilogue)
}

/// Whether the library has it for factors that are transposed, or not, of one product alone.
pub(crate) fn are_made(epilogue: u32, transposed: [bool; 2], batches: u64) -> bool {
    match epilogue {
        OF_FIRST => !transposed[0] && batches == 1,
        OF_SECOND => transposed[1] && batches == 1,
        _ => true,
    }
}

/// Sums beside a product.
#[derive(Clone, Copy)]
pub(crate) struct Sums {
    pub(crate) epilogue: u32,
    /// Where they go, in numbers of this type.
    pub(crate) start: u64,
    pub(crate) number: Number,
    /// Whether sums and what they are made of have 64 bits.
    pub(crate) wide: bool,
    pub(crate) summed: Summed,
}

impl Sums {
    /// How many there are, of how many numbers each.
    fn extents(&self, [first, second]: [&Matrix; 2]) -> (u64, u64) {
        match self.epilogue {
            OF_FIRST => first.extents(),
            _ => {
                let (terms, count) = second.extents();
                (count, terms)
            }
        }
    }

    /// Ends the process where they do not go to live memory, apart from what is read and made.
    pub(crate) fn check(&self, factors: [&Matrix; 2], out: &Matrix, world: &World) {
        let bytes = self.extents(factors).0 * self.number.size();
        if !is_of_device(self.start) || !world.memory.is_live(self.start, bytes) {
            forbid("sums beside a product are not in live memory");
        }
        if !self.start.is_multiple_of(BIAS_ALIGNMENT) {
            forbid("sums beside a product do not start at a multiple of 16 bytes");
        }
        let meets = |matrix: &&Matrix| {
            self.start < matrix.start + matrix.bytes()
                && matrix.start < self.start + bytes
        };
        if factors.iter().chain([&out]).any(meets) {
            forbid("sums beside a product overlap a matrix of it");
        }
    }

    /// Makes them.
    pub(crate) fn run(&self, factors: [&Matrix; 2]) {
        let (count, terms) = self.extents(factors);
        for place in 0..count {
            let term = |k| match self.epilogue {
                OF_FIRST => factors[0].read(0, place, k),
                _ => factors[1].read(0, k, place),
            };
            let value = match (self.wide, self.summed) {
                (true, _) => (0..terms).map(term).sum(),
                (false, Summed::Short) => {
                    let half = terms / 2;
                    [0..half, half..terms].map(|part| short(part.map(term))).iter().sum()
                }
                (false, Summed::Fast | Summed::Slow | Summed::Refused) => {
                    f64::from((0..terms).map(|k| term(k) as f32).sum::<f32>())
                }
            };
            let at = self.start + place * self.number.size();
            // SAFETY: it was live when the product was given.
            unsafe { self.number.write(at, value) };
        }
    }
}

/// Part of a sum, in 16 bits.
fn short(terms: impl Iterator<Item = f64>) -> f64 {
    bf16::from_f64(terms.sum()).to_f64()
}
