//! Affine maps of the last extent.

use super::Operator;
use crate::{
    Code, Extent, Mistake, Operation, TensorValue, Value,
    graph::{Graph, bounded},
    limit,
    signature::{Arguments, Fallback, missing, optional, required},
    value::spelled,
};
use roundelay_schedule::Initial;

/// x (.., m) → (.., n) = x · weightᵀ + bias; parameters `weight` (n, m) and `bias` (n), both
/// uniform(1/√m), as PyTorch's `nn.Linear`, unless a deviation is given. A given weight ties this map to its other users.
pub(super) const LINEAR: Operator = Operator {
    name: "linear",
    summary: "x (.., m) → (.., width) = x · weightᵀ + bias; with `weight`: a parameter \
              (width, m) that other operators use too; `deviation`: the weight is drawn from \
              normal(deviation), the bias is zero",
    formals: &[
        required("x"),
        optional("width", Fallback::Absent),
        optional("bias", Fallback::Truth(true)),
        optional("weight", Fallback::Absent),
        optional("deviation", Fallback::Absent),
    ],
    build,
};

fn build(arguments: &Arguments, graph: &mut Graph) -> Result<TensorValue, Mistake> {
    let x = arguments.real_tensor("x")?;
    let (bias, drawn) = (Bias::of(arguments)?, Drawn::of(arguments)?);
    let no_width = || missing("linear", "width", &["x", "width"]);
    let weight = Weight::of(arguments, "width", no_width)?;
    affine(graph, &x, weight, bias, drawn)
}

/// Whether a vector is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bias {
    /// It is.
    With,
    /// It is not.
    Without,
}

impl Bias {
    /// The argument `bias`.
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Mistake> {
        arguments.truth("bias").map(Bias::from)
    }
}

impl From<bool> for Bias {
    fn from(with: bool) -> Self {
        if with { Bias::With } else { Bias::Without }
    }
}

/// How a new affine map is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Drawn {
    /// uniform(1/√m) from the number m of its inputs, as PyTorch's `nn.Linear`.
    Uniform,
    /// normal of this deviation, the bias zero, as GPT-2 and most models after it.
    Normal(f64),
}

impl Drawn {
    /// The argument `deviation`.
    pub(super) fn of(arguments: &Arguments) -> Result<Self, Mistake> {
        Ok(Self::given(arguments, "deviation")?.unwrap_or(Drawn::Uniform))
    }

    /// By the deviation of this name, when it is given.
    pub(super) fn given(
        arguments: &Arguments,
        name: &'static str,
    ) -> Result<Option<Self>, Mistake> {
        let read = |arguments: &Arguments, name| arguments.real_in(name, 0.0, f64::MAX);
        Ok(arguments.optional(name, read)?.map(Drawn::Normal))
    }

    /// How weight and bias of a map of this many inputs are drawn.
    pub(super) fn initials(self, inputs: u64) -> [Initial; 2] {
        match self {
            Drawn::Uniform => [Initial::Uniform(1.0 / (inputs as f64).sqrt()); 2],
            Drawn::Normal(deviation) => {
                [Initial::Normal(deviation), Initial::Constant(0.0)]
            }
        }
    }
}

/// Whose the matrix of an affine map is.
pub(super) enum Weight {
    /// A new parameter with as many rows.
    Own(u64),
    /// A tensor that others may use too, with its extents.
    Given(Matrix),
}

impl Weight {
    /// The argument `width`, a number under that name, or `weight`; `missing` says that neither is
    /// there.
    pub(super) fn of(
        arguments: &Arguments,
        width: &'static str,
        missing: impl Fn() -> Mistake,
    ) -> Result<Self, Mistake> {
        match (arguments.given(width), arguments.given("weight")) {
            (Some(Value::Tensor(_)), None) => {
                let mistake = arguments.size(width).err().unwrap_or_else(missing);
                Err(mistake.hint("name a parameter to share it: `weight = …`"))
            }
            (Some(_), None) => arguments.size(width).map(Self::Own),
            (None, Some(_)) => {
                matrix(&arguments.real_tensor("weight")?, "weight").map(Self::Given)
            }
            (None, None) => Err(missing()),
            (Some(_), Some(_)) => {
                let message = format!("`{width}` follows from `weight`");
                Err(Mistake::new(Code::Duplicate, message).argument(width))
            }
        }
    }

    /// The matrix for rows of x, which has their length; drawn with this where it is new. Gives its
    /// rows too.
    pub(super) fn tensor(
        self,
        graph: &mut Graph,
        x: &TensorValue,
        drawn: Initial,
    ) -> Result<(TensorValue, u64), Mistake> {
        let (from, leading) = last_extent(x)?;
        let width = match &self {
            Self::Own(width) => *width,
            Self::Given(Matrix { extents: (width, columns), .. }) if *columns == from => {
                *width
            }
            Self::Given(Matrix { extents: (width, columns), .. }) => {
                let message = format!(
                    "a weight [{width}, {columns}] does not fit rows of {from}: its columns \
                     must be as many"
                );
                return Err(Mistake::new(Code::Shape, message).argument("weight"));
            }
        };
        let rows = bounded(leading)?;
        let work = rows.checked_mul(from).and_then(|work| work.checked_mul(width));
        if work.is_none_or(|work| work > limit::WORK) {
            return Err(Mistake::new(Code::Limit, "the matrix product is too large"));
        }
        match self {
            Self::Own(_) => graph.parameter("weight", vec![width, from], drawn),
            Self::Given(matrix) => Ok(matrix.tensor),
        }
        .map(|weight| (weight, width))
    }
}

/// A tensor of two fixed extents.
pub(super) struct Matrix {
    /// The tensor.
    pub(super) tensor: TensorValue,
    /// Its extents.
    pub(super) extents: (u64, u64),
}

/// The argument `name` as a matrix.
pub(super) fn matrix(
    tensor: &TensorValue,
    name: &'static str,
) -> Result<Matrix, Mistake> {
    match tensor.shape[..] {
        [rows, columns] if !rows.per_example && !columns.per_example => {
            let extents = (rows.size, columns.size);
            Ok(Matrix { tensor: tensor.clone(), extents })
        }
        _ => {
            let found = spelled(&tensor.shape);
            let message = format!("expected a matrix of fixed extents, found {found}");
            let hint = "share a parameter: `param table: [256, 128]`";
            Err(Mistake::new(Code::Shape, message).hint(hint).argument(name))
        }
    }
}

/// An affine map to `width` with parameters of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affine {
    pub(super) width: u64,
    pub(super) bias: Bias,
    pub(super) drawn: Drawn,
}

impl Affine {
    /// Maps the last extent of x, with parameters at the present path.
    pub(super) fn build(
        self,
        graph: &mut Graph,
        x: &TensorValue,
    ) -> Result<TensorValue, Mistake> {
        affine(graph, x, Weight::Own(self.width), self.bias, self.drawn)
    }
}

fn affine(
    graph: &mut Graph,
    x: &TensorValue,
    weight: Weight,
    bias: Bias,
    drawn: Drawn,
) -> Result<TensorValue, Mistake> {
    let (from, leading) = last_extent(x)?;
    let [for_weight, for_bias] = drawn.initials(from);
    let (weight, width) = weight.tensor(graph, x, for_weight)?;
    let mut operands = vec![x.clone(), weight];
    if bias == Bias::With {
        operands.push(graph.parameter("bias", vec![width], for_bias)?);
    }
    let mut shape = leading.to_vec();
    shape.push(Extent::fixed(width));
    graph.node("", Operation::Linear, &operands.iter().collect::<Vec<_>>(), shape)
}

/// The last extent, which must be fixed, and the others.
pub(super) fn last_extent(x: &TensorValue) -> Result<(u64, &[Extent]), Mistake> {
    match x.shape.split_last() {
        Some((last, leading)) if !last.per_example => Ok((last.size, leading)),
        _ => {
            let found = spelled(&x.shape);
            let message =
                format!("expected a tensor whose last extent is a number, found {found}");
            Err(Mistake::new(Code::Shape, message).argument("x"))
        }
    }
}
