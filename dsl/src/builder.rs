//! Models and programs made from Rust, with the operators of the language.

use crate::{
    Code, Extent, Measure, Mistake, Model, Program, Search, TensorValue, Train, Value,
    graph::Graph,
    near,
    operators::{self, METRICS, OPERATORS, metric, operator},
};
use roundelay_schedule::{Element, Initial};
use std::collections::{BTreeMap, BTreeSet};

/// A model under construction.
///
/// ```
/// use roundelay_dsl::{Extent, ModelBuilder, Program};
/// use roundelay_schedule::Element;
///
/// let mut model = ModelBuilder::new("mlp");
/// let x = model.input("x", Element::Real, &[Extent::batch(), Extent::fixed(8)])?;
/// let y = model.input("y", Element::Real, &[Extent::batch(), Extent::fixed(1)])?;
/// let hidden = model.call("linear", vec![x.into(), 16.into()])?;
/// let hidden = model.call("relu", vec![hidden.into()])?;
/// let output = model.call("linear", vec![hidden.into(), 1.into()])?;
/// let loss = model.call("mse", vec![output.into(), y.into()])?;
/// let program = Program::new(model.loss(&loss)?);
///
/// let names: Vec<&str> = program.model.parameters.values().map(|p| p.name.as_str()).collect();
/// assert_eq!(names, ["linear.weight", "linear.bias", "linear_1.weight", "linear_1.bias"]);
/// # Ok::<(), roundelay_dsl::Mistake>(())
/// ```
#[derive(Clone, Debug)]
pub struct ModelBuilder {
    graph: Graph,
    names: Vec<String>,
    metrics: Vec<Measure>,
}

impl ModelBuilder {
    /// An empty model.
    pub fn new(name: &str) -> Self {
        Self { graph: Graph::new(name), names: Vec::new(), metrics: Vec::new() }
    }

    /// An input; its first extent counts examples, the others are fixed.
    ///
    /// # Errors
    /// When the shape is another, or the name is taken.
    pub fn input(
        &mut self,
        name: &str,
        element: Element,
        shape: &[Extent],
    ) -> Result<TensorValue, Mistake> {
        if self.names.iter().any(|known| known == name) {
            return Err(crate::report::duplicate("input", name));
        }
        let input = self.graph.input(name, element, shape.to_vec())?;
        self.names.push(name.to_owned());
        Ok(input)
    }

    /// A parameter; `name` is made unique at the present path.
    ///
    /// # Errors
    /// When a declared limit is exceeded, or it begins with what is no number.
    pub fn parameter(
        &mut self,
        name: &str,
        shape: &[u64],
        initial: Initial,
    ) -> Result<TensorValue, Mistake> {
        if shape.contains(&0) {
            return Err(Mistake::new(Code::Value, "an extent is at least 1"));
        }
        if !initial.number().is_finite() {
            let message =
                format!("expected a number to begin with, found {}", initial.number());
            return Err(Mistake::new(Code::Value, message));
        }
        let role = self.graph.claim(name);
        self.graph.parameter(&role, shape.to_vec(), initial)
    }

    /// An operator of [`OPERATORS`] with arguments by position.
    ///
    /// # Errors
    /// When there is no such operator, or the arguments do not fit it.
    pub fn call(
        &mut self,
        name: &str,
        arguments: Vec<Value>,
    ) -> Result<TensorValue, Mistake> {
        self.call_named(
            name,
            name,
            arguments.into_iter().map(|value| (None, value)).collect(),
        )
    }

    /// An operator under the name `wanted`, with arguments by position or by name.
    ///
    /// # Errors
    /// When there is no such operator, or the arguments do not fit it or are another model's.
    pub fn call_named(
        &mut self,
        wanted: &str,
        name: &str,
        arguments: Vec<(Option<&str>, Value)>,
    ) -> Result<TensorValue, Mistake> {
        let Some(operator) = operator(name) else {
            let known = OPERATORS.iter().map(|known| known.name);
            let unknown = || near::unknown("operator", name, known);
            return Err(operators::absent(name).unwrap_or_else(unknown));
        };
        self.own(arguments.iter().map(|(_, value)| value))?;
        operator.apply(wanted, &operator.bind(arguments)?, &mut self.graph)
    }

    /// Measures a metric of [`METRICS`] besides the loss, under the name `wanted`, which is made
    /// unique among metrics.
    ///
    /// # Errors
    /// When there is no such metric, or the arguments do not fit it.
    pub fn metric(
        &mut self,
        wanted: &str,
        name: &str,
        arguments: Vec<Value>,
    ) -> Result<(), Mistake> {
        let Some(metric) = metric(name) else {
            let known = METRICS.iter().map(|known| known.name);
            return Err(near::unknown("metric", name, known));
        };
        self.own(&arguments)?;
        let arguments = arguments.into_iter().map(|value| (None, value)).collect();
        let measured = metric.measure(wanted, &metric.bind(arguments)?, &mut self.graph);
        self.metrics.push(measured?);
        Ok(())
    }

    /// a + b, where one has the shape of the other or of its trailing extents.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn add(
        &mut self,
        a: &TensorValue,
        b: &TensorValue,
    ) -> Result<TensorValue, Mistake> {
        self.own([&a.into(), &b.into()])?;
        operators::add(&mut self.graph, a, b)
    }

    /// a · b element by element, where one has the shape of the other or of its trailing extents.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn multiply(
        &mut self,
        a: &TensorValue,
        b: &TensorValue,
    ) -> Result<TensorValue, Mistake> {
        self.own([&a.into(), &b.into()])?;
        operators::multiply(&mut self.graph, a, b)
    }

    /// factor · x.
    ///
    /// # Errors
    /// When x is not real or the factor is not finite.
    pub fn scale(
        &mut self,
        x: &TensorValue,
        factor: f64,
    ) -> Result<TensorValue, Mistake> {
        self.own([&x.into()])?;
        operators::scale(&mut self.graph, x, factor)
    }

    /// Builds under a name, which comes before the names of what is built; it is made unique.
    pub fn within<T>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> T) -> T {
        let name = self.graph.claim(name);
        self.graph.descend(name);
        let result = body(self);
        self.graph.ascend();
        result
    }

    /// Applies `body` to x `times` times, pass k under the name `name.k`, as `repeat` does.
    ///
    /// # Errors
    /// What `body` returns.
    pub fn repeat(
        &mut self,
        name: &str,
        times: usize,
        mut x: TensorValue,
        mut body: impl FnMut(&mut Self, &TensorValue) -> Result<TensorValue, Mistake>,
    ) -> Result<TensorValue, Mistake> {
        let base = self.graph.claim(name);
        for pass in 0..times {
            self.graph.descend(format!("{base}.{pass}"));
            let result = body(self, &x);
            self.graph.ascend();
            x = result?;
        }
        Ok(x)
    }

    /// The model that minimises `loss` and measures the metrics, without what neither needs.
    ///
    /// # Errors
    /// When the loss is no single number, or depends on no parameter, or a metric needs a
    /// parameter or an input that the loss does not; when two parameters have one name, or a name
    /// is none that files of arrays can hold.
    pub fn loss(self, loss: &TensorValue) -> Result<Model, Mistake> {
        self.own([&loss.into()])?;
        self.metrics.iter().try_for_each(|metric| self.graph.admits(loss, metric))?;
        let (model, _) = self.graph.finish(loss, &self.metrics)?;
        named(&model)?;
        Ok(model)
    }

    /// Whether tensors are this model's, as far as their places and shapes tell.
    fn own<'a>(
        &self,
        values: impl IntoIterator<Item = &'a Value>,
    ) -> Result<(), Mistake> {
        let strange = |value: &&Value| match value {
            Value::Tensor(tensor) => !self.graph.has(tensor),
            _ => false,
        };
        match values.into_iter().find(strange) {
            None => Ok(()),
            Some(_) => {
                Err(Mistake::new(Code::Value, "the tensor belongs to another model"))
            }
        }
    }
}

/// Whether parameters and inputs have names that programs could give them, and one each.
fn named(model: &Model) -> Result<(), Mistake> {
    let parameters = model.parameters.values().map(|own| ("parameter", &*own.name));
    let inputs = model.inputs.values().map(|own| ("input", &*own.name));
    let mut known = BTreeSet::new();
    for (what, name) in parameters.chain(inputs) {
        if !known.insert((what, name)) {
            return Err(crate::report::duplicate(what, name));
        }
        let is_word =
            |word: &str| !word.is_empty() && word.chars().all(crate::token::in_word);
        if !name.split('.').all(is_word) {
            let message = format!("the {what} `{}` has no name", name.escape_debug());
            let hint = "write letters, digits and `_`, and dots between words";
            return Err(Mistake::new(Code::Value, message).hint(hint));
        }
    }
    Ok(())
}

impl Program {
    /// A model on one plain device, trained as programs are that say nothing else.
    pub fn new(model: Model) -> Self {
        let target = crate::resolve::plain();
        let (train, search) = (Train::default(), Search::default());
        Self {
            model,
            target,
            train,
            search,
            profiles: BTreeMap::new(),
            prices: BTreeMap::new(),
            peaks: BTreeMap::new(),
        }
    }
}
