//! Who makes each matrix product: the library by one of its plans, the library with functions of ours
//! for what goes with it, or functions of ours; which is never left unsaid.

mod placing;

use super::{
    super::{
        arena::ALIGNMENT,
        bounce::Unreached,
        driver::{Device, DriverError, Parameters, Stream},
    },
    code::{Binding, Operand, Room},
    functions::{Loaded, digest_of},
    products::{self, Addresses, Algorithm, Extents, Handle, Plan, Refused, Request},
    tools::Tools,
    tuning::{Bench, Choice, Trials, Tried, Tuner},
};
use crate::{digest::Digest, machine::Makers};
use placing::{Made, Place, Placing};
use roundelay_kernels::cuda::{Addend, CallPlace, Epilogue, Matrix, Product};
use roundelay_schedule::Bytes;

pub(super) use placing::{Part, Ways};

/// What a bias, what is before a GELU, and sums beside a product start at a multiple of, in bytes.
/// Preferences speak of matrices alone, so the library's kernels are free to move these by whole vectors.
const BESIDE_ALIGNMENT: u64 = 16;

/// Why a product is made by a function of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    /// Nobody wants the library.
    #[error("our own kernels were requested")]
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
    /// A bias, or what else goes with a product, lies where the library may not load it.
    #[error(
        "a bias or what is before a GELU starts at a multiple of {0} bytes, and cuBLASLt may load \
         {BESIDE_ALIGNMENT} at once"
    )]
    Beside(u64),
}

/// The library of products with its plans, or neither.
pub(super) struct Multiplier {
    handle: Result<Handle, Reason>,
    /// By shape, that is the product with all matrices at the beginning of something, and by what
    /// the first bytes of matrices are multiples of.
    plans: Vec<((Request, u64), Plan)>,
    /// Where what goes with products is done, by the plans of both ways.
    places: Vec<([usize; 2], Place)>,
    /// What the first byte of every row is a multiple of.
    alignment: u64,
    /// Of what algorithms depend on, and of what our functions do.
    versions: String,
    compiler: String,
    counts: Makers,
}

/// A product whose algorithms are tried.
struct Trial<'a> {
    request: &'a Request,
    plan: &'a mut Plan,
    handle: &'a Handle,
    algorithms: &'a [Algorithm],
    /// What the library has answered: that it did what it was asked for, once it ever did, else why not.
    answer: Option<Result<(), Refused>>,
}

impl Tried for Trial<'_> {
    fn ways(&self) -> Vec<Vec<u8>> {
        self.algorithms.iter().map(Algorithm::bytes).collect()
    }

    fn extents(&self) -> Vec<Bytes> {
        Extents::of(self.request).all()
    }

    fn prepare(&mut self, bench: &mut Bench) -> Result<Vec<bool>, Unreached> {
        let at = tried_at(bench, self.request);
        draw(bench, self.request, at)?;
        Ok(vec![true; self.algorithms.len()])
    }

    fn run(&mut self, way: usize, bench: &Bench) -> Result<(), DriverError> {
        self.plan.take(self.algorithms[way]);
        let at = tried_at(bench, self.request);
        let answer = self.plan.run(self.handle, at, bench.workspace, &bench.stream);
        if self.answer != Some(Ok(())) {
            self.answer = Some(answer);
        }
        Ok(answer?)
    }
}

/// Draws the factors of a product, and what is before a GELU. How fast a device multiplies depends on
/// them: where numbers are alike few bits change, and its power limits it less than in a training.
fn draw(bench: &mut Bench, request: &Request, at: Addresses) -> Result<(), Unreached> {
    let Extents { a, b, before, .. } = Extents::of(request);
    let product = &request.product;
    bench.draw((at.a, a), product.a.number, 0)?;
    bench.draw((at.b, b), product.b.number, 1)?;
    match at.before {
        Some(place) => bench.draw((place, before), product.out.number, 2),
        None => Ok(()),
    }
}

/// Where a product is tried, in arrays as [`Extents`] has them. The library refuses a bias that its
/// epilogue does not have.
fn tried_at(bench: &Bench, request: &Request) -> Addresses {
    let [a, b, out, bias, before] = [0, 1, 2, 3, 4].map(|array| bench.arrays[array]);
    let bias = products::bias(request).map(|_| bias);
    let before = products::before(&request.product).map(|_| before);
    Addresses { a, b, out, added: out, bias, before }
}

impl Multiplier {
    /// Products by the library, for rows that start at multiples of `alignment`; by functions of
    /// ours without it, or where there is no library.
    pub(super) fn new(device: &Device, alignment: Option<u64>) -> Self {
        let handle = match (device.libraries.products, alignment) {
            (Some(_), Some(_)) => Handle::new().map_err(Reason::Start),
            (None, Some(_)) => Err(Reason::Absent),
            (_, None) => Err(Reason::Unwanted),
        };
        let (plans, places) = (Vec::new(), Vec::new());
        let counts = Makers::default();
        let facts = device.facts();
        let alignment = alignment.unwrap_or(1);
        let versions = format!("{:?} {:?}", facts.driver, facts.products);
        let compiler = format!("NVRTC {:?}", facts.compiler);
        Self { handle, plans, places, alignment, versions, compiler, counts }
    }

    /// Forgets all plans, but not what trials found to be wrong.
    pub(super) fn forget(&mut self) {
        self.plans.clear();
        self.places.clear();
        self.counts.forget();
    }

    /// Who makes the products that were planned so far.
    pub(super) fn counts(&self) -> &Makers {
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
        digest.add(format!("{:?}", self.places).as_bytes());
        self.counts.ways(digest)
    }

    /// Memory that the library takes for a plan beside the arrays.
    pub(super) fn workspace(&self, plan: usize) -> Bytes {
        self.plans[plan].1.workspace()
    }

    /// How the library makes a product of a call, and by which plan; none where functions of ours make
    /// it. Functions are asked for where it is tried which way is faster.
    pub(super) fn plan(
        &mut self,
        ways: Ways,
        room: Room<'_>,
        tools: &mut Tools,
    ) -> Option<(Part, usize)> {
        let way = self.way(ways, room, tools);
        self.counts.count(way)
    }

    fn way(
        &mut self,
        Ways { first, other, compared }: Ways,
        room: Room<'_>,
        tools: &mut Tools,
    ) -> Result<(Part, usize), Reason> {
        let place = first.place;
        let mut planned = |part: Part| {
            let plan = self.planned(&part.request, room.operands, &mut tools.tuner);
            plan.map(|plan| (part, plan))
        };
        let first = planned(first);
        let Some(other) = other else { return first };
        let other = planned(other);
        match (first, other) {
            (Ok(first), Ok(other)) => {
                let both = [&first, &other].map(|(part, plan)| (part, *plan));
                let found = self.place(both, compared, room, tools);
                Ok(if found == place { first } else { other })
            }
            (Ok(way), Err(_)) | (Err(_), Ok(way)) => Ok(way),
            // That of the product alone, which asks for least.
            (Err(first), Err(other)) => Err(match place {
                Place::Within => other,
                Place::Behind => first,
            }),
        }
    }

    /// Which of two ways of a product is taken, each by a plan: the first unless the other is known to be
    /// faster.
    fn place(
        &mut self,
        ways: [(&Part, usize); 2],
        compared: Option<Made>,
        room: Room<'_>,
        tools: &mut Tools,
    ) -> Place {
        let (parts, both) = (ways.map(|(part, _)| part), ways.map(|(_, plan)| plan));
        if let Some((_, known)) = self.places.iter().find(|(plans, _)| *plans == both) {
            return *known;
        }
        if tools.tuner.trials == Trials::Skipped {
            return Place::Within;
        }
        let handle = self.handle.as_ref().expect("who has plans has their library");
        let plans = self.plans.get_disjoint_mut(both);
        let [(first, one), (other, two)] = plans.expect("they differ in what they make");
        let by = [&*one, &*two].map(|plan| plan.algorithm().bytes());
        let behind = parts.map(|part| digest_of(&part.behind));
        let compiler = &self.compiler;
        let text =
            format!("{first:?} or {other:?} by {by:?}, then {behind:x?} by {compiler}");
        let mut placing = Placing {
            parts,
            plans: [one, two],
            handle,
            functions: &mut tools.functions,
            room,
            compared,
            behind: [Loaded::default(), Loaded::default()],
            parameters: Parameters::default(),
            wrong: None,
        };
        let words = [self.versions.as_str(), &text];
        let found = match tools.tuner.choose(&mut placing, "place", words) {
            Choice::Kept(way) => parts[way].place,
            Choice::First => parts[0].place,
        };
        if let Some(wrong) = placing.wrong {
            self.counts.wrong.get_or_insert(wrong);
        }
        self.places.push((both, found));
        found
    }

    fn planned(
        &mut self,
        request: &Request,
        operands: &[Operand],
        tuner: &mut Tuner,
    ) -> Result<usize, Reason> {
        let product = &request.product;
        let handle = self.handle.as_ref().map_err(|reason| *reason)?;
        let starts = |places: &[CallPlace]| {
            let offsets = places.iter().map(|place| offset(*place, operands));
            power_of_two_in(offsets.chain([self.alignment]))
        };
        let beside = [products::bias(request), products::before(product)];
        let beside: Vec<CallPlace> = beside.into_iter().flatten().collect();
        let aligned = starts(&beside);
        if !beside.is_empty() && aligned < BESIDE_ALIGNMENT {
            return Err(Reason::Beside(aligned));
        }
        let [a, b, out] = [&product.a, &product.b, &product.out].map(|own| own.place);
        let key = (shape(request), starts(&[a, b, out, products::added(product)]));
        if let Some(known) = self.plans.iter().position(|(other, _)| *other == key) {
            return Ok(known);
        }
        let Product { m, n, k, .. } = *product;
        let refused = |status| Reason::Refused { status, m, n, k };
        let (mut plan, algorithms) =
            Plan::new(handle, request, key.1).map_err(refused)?;
        let mut trial = Trial {
            request,
            plan: &mut plan,
            handle,
            algorithms: &algorithms,
            answer: None,
        };
        let words = [self.versions.as_str(), &format!("{key:?}")];
        let chosen = match tuner.choose(&mut trial, "product", words) {
            Choice::Kept(way) => way,
            Choice::First => match trial.answer {
                Some(Err(status)) => return Err(refused(status)),
                Some(Ok(())) | None => 0,
            },
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
        request: &Request,
        binding: &Binding<'_>,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let handle = self.handle.as_ref().expect("who has plans has their library");
        let at = addresses(request, binding);
        let (_, plan) = &mut self.plans[plan];
        plan.run(handle, at, binding.workspace, stream).map_err(DriverError::from)
    }
}

/// Where all is that the library is told of.
fn addresses(request: &Request, binding: &Binding<'_>) -> Addresses {
    let product = &request.product;
    Addresses {
        a: binding.address(product.a.place),
        b: binding.address(product.b.place),
        out: binding.address(product.out.place),
        added: binding.address(products::added(product)),
        bias: products::bias(request).map(|place| binding.address(place)),
        before: products::before(product).map(|place| binding.address(place)),
    }
}

/// Bits of how far behind the beginning of a row, or of scratch, a place is.
pub(super) fn offset(place: CallPlace, operands: &[Operand]) -> u64 {
    match place {
        CallPlace::Operand(operand, Bytes(bytes)) => {
            bytes | operands.get(operand).map_or(0, |own| own.offset)
        }
        CallPlace::Scratch(Bytes(bytes)) => bytes,
    }
}

/// The greatest power of two, up to the alignment of arenas, of which all are multiples.
pub(super) fn power_of_two_in(numbers: impl Iterator<Item = u64>) -> u64 {
    let bits = numbers.fold(ALIGNMENT, |bits, number| bits | number);
    1 << bits.trailing_zeros()
}

/// What is asked for without its places.
fn shape(Request { product, sums }: &Request) -> Request {
    let place = CallPlace::Operand(0, Bytes(0));
    let nowhere = |matrix: &Matrix| Matrix { place, ..*matrix };
    let epilogue = match product.epilogue {
        Epilogue::Plain => Epilogue::Plain,
        Epilogue::Bias(_) => Epilogue::Bias(place),
        Epilogue::BiasRelu(_) => Epilogue::BiasRelu(place),
        Epilogue::BiasGelu { .. } => Epilogue::BiasGelu { bias: place, before: place },
        Epilogue::BiasGeluTanh { .. } => {
            Epilogue::BiasGeluTanh { bias: place, before: place }
        }
        Epilogue::GeluTanhSlope { .. } => Epilogue::GeluTanhSlope { before: place },
    };
    let addend = match product.addend {
        Addend::Nothing => Addend::Nothing,
        Addend::Out => Addend::Out,
        Addend::Other(_) => Addend::Other(place),
    };
    let [a, b, out] = [&product.a, &product.b, &product.out].map(nowhere);
    Request {
        product: Product { a, b, out, addend, epilogue, ..*product },
        sums: sums.map(|_| place),
    }
}
