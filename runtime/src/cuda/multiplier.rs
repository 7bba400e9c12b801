//! Who makes each matrix product: the library by one of its plans, or a function of ours; which is
//! never left unsaid.

use super::{
    arena::ALIGNMENT,
    bounce::Unreached,
    code::Binding,
    driver::{Device, DriverError, Products, Stream},
    products::{self, Addresses, Algorithm, Extents, Handle, Plan, Refused},
    tuning::{Bench, Choice, Trials, Tried, Tuner},
};
use crate::{digest::Digest, machine::ProductCounts};
use roundelay_kernels::cuda::{Addend, CallPlace, Epilogue, Matrix, Product};
use roundelay_schedule::Bytes;

/// What a bias starts at a multiple of, in bytes. Preferences speak of matrices alone, so the
/// library's kernels are free to load a bias by whole vectors.
const BIAS_ALIGNMENT: u64 = 16;

/// Why a product is made by a function of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    /// Nobody wants the library.
    #[error("own functions are asked for")]
    Unwanted,
    /// There is no library.
    #[error(
        "there is no cuBLASLt of CUDA 12.0 or newer here; install it, as \
         `pip install nvidia-cublas` does, or name its folder in ROUNDELAY_CUDA_LIBRARIES"
    )]
    Absent,
    /// It does not start.
    #[error("cuBLASLt does not start: {0}")]
    Start(Refused),
    /// It has no way to do a product.
    #[error("cuBLASLt answers {status} for a product of {m} x {k} and {k} x {n}")]
    Refused { status: Refused, m: usize, n: usize, k: usize },
    /// A bias lies where the library may not load it.
    #[error(
        "a bias starts at a multiple of {0} bytes, and cuBLASLt may load {BIAS_ALIGNMENT} at once"
    )]
    Bias(u64),
}

/// The library of products with its plans, or neither.
pub(super) struct Multiplier {
    handle: Result<Handle, Reason>,
    /// By shape, that is the product with all matrices at the beginning of something, and by what
    /// the first bytes of matrices are multiples of.
    plans: Vec<((Product, u64), Plan)>,
    /// What the first byte of every row is a multiple of.
    alignment: u64,
    tuner: Tuner,
    /// Of what algorithms depend on.
    versions: String,
    counts: ProductCounts,
}

/// A product whose algorithms are tried.
struct Trial<'a> {
    plan: &'a mut Plan,
    handle: &'a Handle,
    algorithms: &'a [Algorithm],
    extents: Extents,
}

impl Tried for Trial<'_> {
    fn ways(&self) -> Vec<Vec<u8>> {
        self.algorithms.iter().map(Algorithm::bytes).collect()
    }

    fn extents(&self) -> Vec<Bytes> {
        let Extents { a, b, out, bias } = self.extents;
        vec![a, b, out, bias]
    }

    fn prepare(&mut self, _: &mut Bench) -> Result<Vec<bool>, Unreached> {
        Ok(vec![true; self.algorithms.len()])
    }

    fn run(&mut self, way: usize, bench: &Bench) -> Result<(), DriverError> {
        let [a, b, out, bias] = [0, 1, 2, 3].map(|array| bench.arrays[array]);
        let at = Addresses { a, b, out, added: out, bias: Some(bias) };
        self.plan.take(self.algorithms[way]);
        self.plan.run(self.handle, at, bench.workspace, &bench.stream)?;
        Ok(())
    }
}

impl Multiplier {
    /// Products by the library, for rows that start at multiples of `alignment`; by functions of
    /// ours without it, or where there is no library.
    pub(super) fn new(device: &Device, alignment: Option<u64>, trials: Trials) -> Self {
        let handle = match (device.libraries.products, alignment) {
            (Products::Library(_), Some(_)) => Handle::new().map_err(Reason::Start),
            (Products::Own, Some(_)) => Err(Reason::Absent),
            (Products::Library(_) | Products::Own, None) => Err(Reason::Unwanted),
        };
        let (plans, counts) = (Vec::new(), ProductCounts::default());
        let facts = device.facts();
        let (alignment, tuner) = (alignment.unwrap_or(1), Tuner::new(facts, trials));
        let versions = format!("{:?} {}", facts.driver, facts.products);
        Self { handle, plans, alignment, tuner, versions, counts }
    }

    /// Who makes the products that were planned so far.
    pub(super) fn counts(&self) -> &ProductCounts {
        &self.counts
    }

    /// How the products that were planned so far are made; who says the same makes the same bits of
    /// them, on the same GPU with the same library.
    pub(super) fn ways(&self) -> String {
        let mut digest = Digest::new();
        for (key, plan) in &self.plans {
            digest.add(format!("{key:?}").as_bytes());
            digest.add(&plan.algorithm().bytes());
        }
        let ProductCounts { library, own, .. } = &self.counts;
        format!(
            "{library} by the library, {:016x}, and {own} by own functions",
            digest.value()
        )
    }

    /// Memory that the library may take on each lane.
    pub(super) fn workspace(&self) -> Bytes {
        self.plans.iter().map(|(_, plan)| plan.workspace()).max().unwrap_or_default()
    }

    /// The plan of a product of a call with these operands; none where a function of ours makes it.
    pub(super) fn plan(
        &mut self,
        product: &Product,
        operands: &[(usize, u64)],
    ) -> Option<usize> {
        match self.planned(product, operands) {
            Ok(plan) => {
                self.counts.library += 1;
                Some(plan)
            }
            Err(reason) => {
                self.counts.own += 1;
                self.counts.why_own.get_or_insert_with(|| reason.to_string());
                None
            }
        }
    }

    fn planned(
        &mut self,
        product: &Product,
        operands: &[(usize, u64)],
    ) -> Result<usize, Reason> {
        let handle = self.handle.as_ref().map_err(|reason| *reason)?;
        let starts = |places: &[CallPlace]| {
            let offsets = places.iter().map(|place| offset(*place, operands));
            power_of_two_in(offsets.chain([self.alignment]))
        };
        if let Some(bias) = products::bias(product) {
            let bias = starts(&[bias]);
            if bias < BIAS_ALIGNMENT {
                return Err(Reason::Bias(bias));
            }
        }
        let [a, b, out] = [&product.a, &product.b, &product.out].map(|own| own.place);
        let key = (shape(product), starts(&[a, b, out, products::added(product)]));
        if let Some(known) = self.plans.iter().position(|(other, _)| *other == key) {
            return Ok(known);
        }
        let Product { m, n, k, .. } = *product;
        let refused = |status| Reason::Refused { status, m, n, k };
        let (mut plan, algorithms) =
            Plan::new(handle, product, key.1).map_err(refused)?;
        let mut trial = Trial {
            plan: &mut plan,
            handle,
            algorithms: &algorithms,
            extents: Extents::of(product),
        };
        let words = [self.versions.as_str(), &format!("{key:?}")];
        let chosen = match self.tuner.choose(&mut trial, "product", words) {
            Choice::Kept(way) => way,
            Choice::First => 0,
        };
        plan.take(algorithms[chosen]);
        self.plans.push((key, plan));
        Ok(self.plans.len() - 1)
    }

    /// Gives a product to a stream.
    ///
    /// # Errors
    /// When the library refuses it.
    pub(super) fn run(
        &mut self,
        plan: usize,
        product: &Product,
        binding: &Binding<'_>,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let handle = self.handle.as_ref().expect("who has plans has their library");
        let at = Addresses {
            a: binding.address(product.a.place),
            b: binding.address(product.b.place),
            out: binding.address(product.out.place),
            added: binding.address(products::added(product)),
            bias: products::bias(product).map(|place| binding.address(place)),
        };
        let (_, plan) = &mut self.plans[plan];
        plan.run(handle, at, binding.workspace, stream).map_err(DriverError::from)
    }
}

/// Bits of how far behind the beginning of a row, or of scratch, a place is.
pub(super) fn offset(place: CallPlace, operands: &[(usize, u64)]) -> u64 {
    match place {
        CallPlace::Operand(operand, Bytes(bytes)) => {
            bytes | operands.get(operand).map_or(0, |(_, offset)| *offset)
        }
        CallPlace::Scratch(Bytes(bytes)) => bytes,
    }
}

/// The greatest power of two, up to the alignment of arenas, of which all are multiples.
pub(super) fn power_of_two_in(numbers: impl Iterator<Item = u64>) -> u64 {
    let bits = numbers.fold(ALIGNMENT, |bits, number| bits | number);
    1 << bits.trailing_zeros()
}

/// A product without its places.
fn shape(product: &Product) -> Product {
    let place = CallPlace::Operand(0, Bytes(0));
    let nowhere = |matrix: &Matrix| Matrix { place, ..*matrix };
    let epilogue = match product.epilogue {
        Epilogue::Plain => Epilogue::Plain,
        Epilogue::Bias(_) => Epilogue::Bias(place),
        Epilogue::BiasRelu(_) => Epilogue::BiasRelu(place),
        Epilogue::BiasGelu { .. } => Epilogue::BiasGelu { bias: place, before: place },
    };
    let addend = match product.addend {
        Addend::Nothing => Addend::Nothing,
        Addend::Out => Addend::Out,
        Addend::Other(_) => Addend::Other(place),
    };
    let [a, b, out] = [&product.a, &product.b, &product.out].map(nowhere);
    Product { a, b, out, addend, epilogue, ..*product }
}
