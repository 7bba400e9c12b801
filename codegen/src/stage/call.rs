//! Kernel calls over symbolic tensors: what is computed, before anything has an address.

use crate::tensor::Strand;
use roundelay_dsl::{NodeId, Source};
use roundelay_schedule::{
    Attribute, Bytes, Call, Constants, Element, Extents, Operand, Stage,
};

/// A dense array of a routine. Reshapes are views, so no `Source` here names a reshape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Tensor {
    /// A node's result, a parameter, or an input.
    Source(Source),
    /// What forward makes besides the result, for backward: mean, 1/σ, log-sum-exp.
    Auxiliary(NodeId, u32),
    /// Scratch of one node's calls in one pass.
    Scratch(NodeId, u32),
    /// What a kernel makes besides its contributions though nobody wants it.
    Unwanted(NodeId, u32),
    /// A small parameter gradient that the first half of a backward pass makes, until the second
    /// adds it.
    Aside(NodeId, u32),
    /// The whole gradient of a node's result, kept for the second half of a backward pass apart
    /// from the row in which it crosses stages.
    Adjoint(NodeId),
    /// What forward calls made again in a backward pass make, though it is still there: 0 is the node's
    /// result.
    Again(NodeId, u32),
    /// A contribution on its way to the gradient of this node's result, which has others already.
    Detour(NodeId, u32),
    /// The same for a parameter, as wide as the sum that it is added to.
    ParameterDetour(NodeId, u32),
    /// The gradient sum of a node's result or a parameter.
    Gradient(Source),
    /// A range of a state's flat gradient, from this element on.
    Gradients(Stage, u64),
    /// The place of this metric's number behind the loss.
    Metric(u32),
    /// One contribution to such a sum; accumulation turns it into `Gradient` or `Detour`.
    Contribution(Source),
}

/// A tensor as one kernel sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    /// The tensor.
    pub(crate) tensor: Tensor,
    /// Element type.
    pub(crate) element: Element,
    /// Extents, slowest first.
    pub(crate) shape: Extents,
}

impl Term {
    /// A real tensor.
    pub(crate) fn real(tensor: Tensor, shape: &[u64]) -> Self {
        Self { tensor, element: Element::Real, shape: shape.into() }
    }
    /// Number of elements; saturates.
    pub(crate) fn elements(&self) -> u64 {
        elements(&self.shape)
    }
    /// (.., n) as (m, n).
    pub(crate) fn matrix(self) -> Self {
        let columns = self.shape.last().copied().unwrap_or(1);
        self.rows_of(columns)
    }
    /// The same elements as (m, `columns`).
    pub(crate) fn rows_of(self, columns: u64) -> Self {
        let rows = self.elements() / columns.max(1);
        Self { shape: [rows, columns][..].into(), ..self }
    }
    /// The same elements in one row.
    pub(crate) fn flat(self) -> Self {
        Self { shape: [self.elements()][..].into(), ..self }
    }
}

/// Product of extents; saturates.
pub(crate) fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product, extent| product.saturating_mul(*extent))
}

/// A kernel call over symbolic tensors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// Name in the kernel catalogue.
    pub(crate) kernel: &'static str,
    /// Its constants.
    pub(crate) attributes: Constants,
    /// What it works on, in the catalogue's order.
    pub(crate) terms: Vec<Term>,
    /// The operation that it stands for, where the table of derivatives has it.
    pub(crate) node: Option<NodeId>,
    /// The examples that it is about.
    pub(crate) strand: Strand,
}

/// A call without attributes.
pub(crate) fn call<const N: usize>(kernel: &'static str, terms: [Term; N]) -> Step {
    Step {
        kernel,
        attributes: Constants::default(),
        terms: terms.into(),
        node: None,
        strand: Strand::All,
    }
}

impl Step {
    /// The same, about these examples.
    pub(crate) fn of(self, strand: Strand) -> Self {
        Self { strand, ..self }
    }
    /// With these behind its operands.
    pub(crate) fn and(mut self, terms: impl IntoIterator<Item = Term>) -> Self {
        self.terms.extend(terms);
        self
    }
    /// With one more constant.
    pub(crate) fn with(mut self, name: &'static str, value: Attribute) -> Self {
        self.attributes.insert(name.into(), value);
        self
    }
    /// With a flag that is true.
    pub(crate) fn flag(self, name: &'static str) -> Self {
        self.with(name, Attribute::Flag(true))
    }
    /// With a real constant.
    pub(crate) fn real(self, name: &'static str, value: f64) -> Self {
        self.with(name, Attribute::Real(value))
    }
    /// With a whole constant.
    pub(crate) fn integer(self, name: &'static str, value: i64) -> Self {
        self.with(name, Attribute::Integer(value))
    }
    /// With a number of something; one that does not fit is refused by every kernel.
    pub(crate) fn count(self, name: &'static str, number: impl Into<u64>) -> Self {
        self.integer(name, i64::try_from(number.into()).unwrap_or(i64::MAX))
    }
    /// The call without places, for whoever asks the catalogue.
    pub(crate) fn unplaced(&self, element: impl Fn(&Term) -> Element) -> Call {
        self.placed(|term| Operand {
            argument: 0,
            offset: Bytes(0),
            element: element(term),
            shape: term.shape.clone(),
        })
    }
    /// The call of the schedule, each term placed by `place`.
    pub(crate) fn placed(&self, place: impl FnMut(&Term) -> Operand) -> Call {
        Call {
            kernel: self.kernel.into(),
            attributes: self.attributes.clone(),
            operands: self.terms.iter().map(place).collect(),
        }
    }
}
