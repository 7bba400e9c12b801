//! Small models by hand, and random numbers from a seed.

use roundelay_dsl::{
    Extent, Masked, Model, ModelInput, ModelParameter, Node, NodeId, Operation, Source,
};
use roundelay_schedule::{Element, Initial, Origin, Treatment};

/// An extent that does not depend on the micro-batch.
pub(crate) fn fixed(size: u64) -> Extent {
    Extent { size, per_example: false }
}

/// An extent that counts examples, `size` for each.
pub(crate) fn per_example(size: u64) -> Extent {
    Extent { size, per_example: true }
}

/// A model under construction.
#[derive(Default)]
pub(crate) struct Build {
    pub(crate) model: Model,
}

impl Build {
    pub(crate) fn input(&mut self, name: &str, shape: &[Extent]) -> Source {
        self.any_input(name, shape, Element::Real, 0)
    }
    pub(crate) fn tokens(&mut self, name: &str, shape: &[Extent], bound: u64) -> Source {
        self.any_input(name, shape, Element::I32, bound)
    }
    /// What each of this many rows counts in a masked loss.
    pub(crate) fn shares(&mut self, rows: u64) -> Source {
        self.any_input("shares", &[fixed(rows)], Element::Wide, 0)
    }
    fn any_input(
        &mut self,
        name: &str,
        shape: &[Extent],
        element: Element,
        bound: u64,
    ) -> Source {
        let name = name.to_owned();
        let (shape, origin) = (shape.to_vec(), Origin::Data);
        let input = ModelInput { name, element, shape, bound, origin };
        Source::Input(self.model.inputs.push(input))
    }
    pub(crate) fn parameter(&mut self, shape: &[u64]) -> Source {
        let number = self.model.parameters.len();
        Source::Parameter(self.model.parameters.push(ModelParameter {
            belonging: roundelay_schedule::Belonging::Model,
            name: format!("p{number}"),
            shape: shape.to_vec(),
            kind: roundelay_schedule::ParameterKind::Plain,
            split: roundelay_schedule::Division::Whole,
            initial: Initial::Normal(0.5),
            treatment: match number.is_multiple_of(3) {
                true => Treatment::Spared,
                false => Treatment::Decayed,
            },
        }))
    }
    /// A running average.
    pub(crate) fn average(&mut self, shape: &[u64]) -> Source {
        let source = self.parameter(shape);
        if let Source::Parameter(id) = source {
            let treatment = Treatment::Averaged { momentum: 0.1 };
            self.model.parameters[id].treatment = treatment;
        }
        source
    }
    pub(crate) fn node(
        &mut self,
        operation: Operation,
        operands: &[Source],
        shape: &[Extent],
    ) -> Source {
        let name = format!("node{}", self.model.nodes.len());
        let operands = operands.to_vec();
        let node = Node { name, operation, operands, shape: shape.to_vec() };
        Source::Node(self.model.nodes.push(node))
    }
    /// The mean loss over all rows.
    pub(crate) fn cross_entropy(&mut self, logits: Source, classes: Source) -> Source {
        let operation = Operation::CrossEntropy { masked: Masked::No };
        self.node(operation, &[logits, classes], &[])
    }
    /// Ends with the mean squared distance to an input.
    pub(crate) fn mean_squared_error(mut self, x: Source, shape: &[Extent]) -> Model {
        let target = self.input("target", shape);
        let loss = self.node(Operation::MeanSquaredError, &[x, target], &[]);
        self.end(loss)
    }
    pub(crate) fn end(mut self, loss: Source) -> Model {
        self.model.loss = match loss {
            Source::Node(id) => Some(id),
            Source::Parameter(_) | Source::Input(_) => None,
        };
        self.model
    }
}

/// The number of nodes of a model.
pub(crate) fn nodes(model: &Model) -> u32 {
    model.nodes.ids().map(|_: NodeId| 1).sum()
}

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
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }
    /// Uniform in [−1, 1).
    pub(crate) fn real(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
