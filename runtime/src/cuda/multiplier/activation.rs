//! Where the activation behind a product is done: by the library in the product, or by a pass of ours
//! behind it, whichever is faster. An epilogue may cost more than that pass, because fewer algorithms
//! have it.

use super::{
    super::{
        bounce::Unreached,
        code::{Binding, give},
        driver::{DriverError, Function, Parameters},
        functions::Functions,
        products::{Addresses, Extents, Handle, Plan},
        tuning::{Bench, Tried},
    },
    tried_at,
};
use roundelay_kernels::cuda::{CallPlace, Epilogue, Launch, Matrix, Product};
use roundelay_schedule::Bytes;

/// Where an activation is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    /// In the product.
    Within,
    /// By a pass of ours.
    Behind,
}

impl Activation {
    /// Both, the one first that stands unless the other is known to be faster.
    pub(super) const ALL: [Self; 2] = [Self::Within, Self::Behind];

    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Within => b"within".to_vec(),
            Self::Behind => b"behind".to_vec(),
        }
    }
}

/// An activation of which it is tried where it is done.
pub(super) struct Placing<'a> {
    product: &'a Product,
    within: &'a mut Plan,
    behind: &'a mut Plan,
    handle: &'a Handle,
    functions: &'a mut Functions,
    extents: Extents,
    pass: Option<OwnPass>,
}

/// A pass of ours behind a product of which it makes the rest.
struct OwnPass {
    function: Function,
    launch: Launch,
    parameters: Parameters,
    /// Where the product is made for it.
    made: CallPlace,
}

/// Where trials have what comes out, and what is before an activation.
const OUT: CallPlace = CallPlace::Operand(0, Bytes(0));
const BEFORE: CallPlace = CallPlace::Operand(1, Bytes(0));

impl<'a> Placing<'a> {
    /// Of a product, by the plan that does all of it and by the one that leaves the activation.
    pub(super) fn new(
        product: &'a Product,
        ([within, behind], handle): ([&'a mut Plan; 2], &'a Handle),
        functions: &'a mut Functions,
    ) -> Self {
        let extents = Extents::of(product);
        Self { product, within, behind, handle, functions, extents, pass: None }
    }
}

impl Tried for Placing<'_> {
    fn ways(&self) -> Vec<Vec<u8>> {
        Activation::ALL.iter().map(|own| own.bytes()).collect()
    }

    fn extents(&self) -> Vec<Bytes> {
        self.extents.all()
    }

    /// A pass whose function cannot be loaded is no way; whoever needs it says why.
    fn prepare(&mut self, _: &mut Bench) -> Result<Vec<bool>, Unreached> {
        self.pass = OwnPass::new(self.product, self.functions);
        let open = |own: &Activation| match own {
            Activation::Within => true,
            Activation::Behind => self.pass.is_some(),
        };
        Ok(Activation::ALL.iter().map(open).collect())
    }

    fn run(&mut self, way: usize, bench: &Bench) -> Result<(), DriverError> {
        let at = tried_at(bench, &self.extents);
        let (handle, workspace, stream) = (self.handle, bench.workspace, &bench.stream);
        match (Activation::ALL[way], &mut self.pass) {
            (Activation::Behind, Some(pass)) => {
                let OwnPass { function, launch, parameters, made } = pass;
                let operands = [at.out, at.before.unwrap_or(at.out)];
                let binding = Binding::of(&operands, workspace);
                let out = binding.address(*made);
                let at = Addresses { out, added: out, before: None, ..at };
                self.behind.run(handle, at, workspace, stream)?;
                give((function, launch), &binding, parameters, stream)
            }
            (Activation::Within | Activation::Behind, _) => {
                Ok(self.within.run(handle, at, workspace, stream)?)
            }
        }
    }
}

impl OwnPass {
    /// Of a product with an activation.
    fn new(product: &Product, functions: &mut Functions) -> Option<Self> {
        let epilogue = match product.epilogue {
            Epilogue::Plain | Epilogue::Bias(_) | Epilogue::BiasRelu(_) => return None,
            Epilogue::BiasGelu { bias, .. } => {
                Epilogue::BiasGelu { bias, before: BEFORE }
            }
            Epilogue::BiasGeluTanh { bias, .. } => {
                Epilogue::BiasGeluTanh { bias, before: BEFORE }
            }
            Epilogue::GeluTanhSlope { .. } => Epilogue::GeluTanhSlope { before: BEFORE },
        };
        let out = Matrix { place: OUT, ..product.out };
        let (part, launch) = Product { out, epilogue, ..*product }.apart()?;
        let function = functions.of(&launch).ok()?;
        let (parameters, made) = (Parameters::default(), part.out.place);
        Some(Self { function, launch, parameters, made })
    }
}
