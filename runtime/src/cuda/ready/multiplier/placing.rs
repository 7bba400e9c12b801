//! Where what goes with a product is done: by the library in the product, or by functions of ours
//! behind it, whichever is faster. An epilogue may cost more than they do, because fewer algorithms
//! have it.
//!
//! An activation is the library's where nobody tried. Sums beside a product are ours then, since the
//! library does not say how it makes them; and before they are timed both must make the same bits, on
//! numbers whose sums are exact in 32 bits, however they are cut: so no part of a sum is rounded to 16.

use super::{
    super::{
        super::{
            bounce::Unreached,
            driver::{DriverError, Parameters},
            likeness::{numbers, worst},
        },
        code::Room,
        functions::{Functions, Loaded},
        products::{Handle, Plan, Request},
        tuning::{Bench, DEADLINE, Tried},
    },
    addresses, draw,
};
use roundelay_kernels::cuda::{Array, Gradients, Launch, Product, Sums};
use roundelay_schedule::Bytes;

/// Where what goes with a product is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the product.
    Within,
    /// By functions of ours.
    Behind,
}

impl Place {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Within => b"within".to_vec(),
            Self::Behind => b"behind".to_vec(),
        }
    }
}

/// A product as the library is asked for it, and functions of ours that follow.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Part {
    pub(super) place: Place,
    pub(in super::super) request: Request,
    pub(in super::super) behind: Vec<Launch>,
}

/// In which ways a product may be the library's.
pub(in super::super) struct Ways {
    /// What stands unless the other is known to be faster.
    pub(super) first: Part,
    pub(super) other: Option<Part>,
    /// What both must make alike.
    pub(super) compared: Option<Made>,
}

/// An array that a way makes, and how far it reaches.
pub(super) type Made = (Array, Bytes);

impl From<&Product> for Ways {
    fn from(product: &Product) -> Self {
        let part = |place, product: Product, behind| {
            let request = Request::from(product);
            Part { place, request, behind }
        };
        let apart = product.apart();
        Self {
            first: part(Place::Within, *product, vec![]),
            other: apart.map(|(own, pass)| part(Place::Behind, own, vec![pass])),
            compared: None,
        }
    }
}

impl From<&Gradients> for Ways {
    fn from(gradients: &Gradients) -> Self {
        let Gradients { product, bias, sums: Sums { place, added }, own } = gradients;
        let within = Part {
            place: Place::Within,
            request: Request { product: *product, sums: Some(*place) },
            behind: added.iter().cloned().collect(),
        };
        let request = Request::from(*product);
        let sums_of = Bytes((product.m * bias.number.size()) as u64);
        Self {
            first: Part { place: Place::Behind, request, behind: own.clone() },
            other: Some(within),
            compared: Some((*bias, sums_of)),
        }
    }
}

/// A product of which it is tried where the rest is done, in the memory of its call.
pub(super) struct Placing<'a> {
    pub(super) parts: [&'a Part; 2],
    pub(super) plans: [&'a mut Plan; 2],
    pub(super) handle: &'a Handle,
    pub(super) functions: &'a mut Functions,
    pub(super) room: Room<'a>,
    pub(super) compared: Option<Made>,
    pub(super) behind: [Loaded; 2],
    pub(super) parameters: Parameters,
    /// In words how the library makes other numbers than our functions.
    pub(super) wrong: Option<String>,
}

impl Placing<'_> {
    /// Loads the functions of a way. One whose functions cannot be loaded is no way; whoever needs
    /// them says why.
    fn load(&mut self, way: usize) -> bool {
        let loaded = self.functions.all(&self.parts[way].behind);
        let is_loaded = loaded.is_ok();
        self.behind[way] = loaded.unwrap_or_default();
        is_loaded
    }

    /// Whether both ways make the same numbers of what was drawn.
    fn agree(&mut self, bench: &mut Bench, made: Made) -> Result<bool, Unreached> {
        let own = self.made_by(0, bench, made)?;
        let found = self.made_by(1, bench, made)?;
        let (Some(own), Some(found)) = (own, found) else { return Ok(false) };
        let (error, place) = worst(&found, &own);
        if error > 0.0 {
            self.wrong.get_or_insert_with(|| {
                let (all, most) = (own.len(), self.parts[0].request.product.k);
                format!(
                    "of {all} sums of {most} numbers beside a product number {place} is not ours, off by \
                     {error:.1e} of the largest"
                )
            });
        }
        Ok(error == 0.0)
    }

    /// What a way makes where nothing was; none where it is refused.
    fn made_by(
        &mut self,
        way: usize,
        bench: &mut Bench,
        (array, Bytes(bytes)): Made,
    ) -> Result<Option<Vec<f64>>, Unreached> {
        let at = bench.binding().address(array.place);
        bench.stream.fill(at, 0, bytes)?;
        if self.run(way, bench).is_err() {
            return Ok(None);
        }
        let mut found = vec![0; bytes as usize];
        bench.bounce.read(&bench.stream, at, &mut found, DEADLINE)?;
        Ok(Some(numbers(&found, array.number)))
    }
}

impl Tried for Placing<'_> {
    fn ways(&self) -> Vec<Vec<u8>> {
        self.parts.iter().map(|part| part.place.bytes()).collect()
    }

    fn extents(&self) -> Vec<Bytes> {
        self.room.sizes.iter().copied().chain([self.room.scratch]).collect()
    }

    fn prepare(&mut self, bench: &mut Bench) -> Result<Vec<bool>, Unreached> {
        let [first, mut other] = [0, 1].map(|way| self.load(way));
        let request = &self.parts[0].request;
        let at = addresses(request, &bench.binding());
        draw(bench, request, at)?;
        if let Some(compared) = self.compared.filter(|_| first && other) {
            other = self.agree(bench, compared)?;
        }
        Ok(vec![first, other])
    }

    fn run(&mut self, way: usize, bench: &Bench) -> Result<(), DriverError> {
        let (binding, stream) = (bench.binding(), &bench.stream);
        let at = addresses(&self.parts[way].request, &binding);
        self.plans[way].run(self.handle, at, bench.workspace, stream)?;
        self.behind[way].give(&binding, &mut self.parameters, stream)
    }
}
