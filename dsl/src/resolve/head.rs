//! `head after NAME { … loss … }`: the head that a unit of a local rule ends in.
//!
//! NAME is a value, or what counts the passes of outermost repeats: then the head may stand behind
//! every pass, and the name that a pass binds again is its value there. Repeats of blocks are meant
//! where the model itself has none that are counted like this. A body sees that value, the inputs
//! of the model, and all that is no tensor.

use super::{
    evaluate::Evaluator,
    model::Home,
    scope::{Binding, Scope},
};
use crate::{
    Code, Head, Mistake, ModelInputId, NodeId, Source, Span, TensorValue, Value,
    graph::Graph,
    report::Known,
    syntax::{Expression, ExpressionKind, Name, Statement, StatementKind},
    value::spelled,
};
use roundelay_schedule::Element;
use std::collections::BTreeMap;

/// Where a repeat stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Within {
    Model,
    Block,
}

/// The values that passes of repeats bind again, by where they stand and what counts the passes,
/// and by name.
pub(super) type Passes = BTreeMap<(Within, String), BTreeMap<String, Vec<TensorValue>>>;

/// Where a head stands: the name of its value, and the values that may be it.
struct Behind {
    name: String,
    values: Vec<TensorValue>,
}

impl Evaluator<'_> {
    /// What a pass of an outermost repeat bound again, for heads behind passes.
    pub(super) fn note_pass(&mut self, counter: &Name, body: &[Statement]) {
        if self.nested > 0 {
            return;
        }
        for name in bound(body) {
            let Some(Binding { value: Some(Value::Tensor(tensor)), .. }) =
                self.scope.get(name)
            else {
                continue;
            };
            let place = (self.within, counter.text.clone());
            let names = self.passes.entry(place).or_default();
            names.entry(name.to_owned()).or_default().push(tensor.clone());
        }
    }

    /// `head after value { … }`.
    pub(super) fn state_head(
        &mut self,
        after: &Expression,
        body: &[Statement],
        span: Span,
    ) -> Known<()> {
        let Behind { name, values } = self.behind(after)?;
        let Some(first) = values.first().cloned() else {
            let message = "a head stands behind what the model computes";
            return self.fail(after.span, Mistake::new(Code::Type, message));
        };
        let nodes = values.iter().filter_map(|value| match value.source {
            Source::Node(node) => Some(node),
            Source::Parameter(_) | Source::Input(_) => None,
        });
        let after_nodes: Vec<NodeId> = nodes.collect();
        if let Some(other) = values.iter().find(|value| value.shape != first.shape) {
            let [one, other] = [&first, other].map(|value| spelled(&value.shape));
            let message =
                format!("`{name}` has {one} behind some passes, {other} behind others");
            let hint = "count the repeats by different names, and write a head for each";
            let mistake = Mistake::new(Code::Shape, message).hint(hint);
            return self.fail(after.span, mistake);
        }
        if after_nodes.is_empty() || first.element != Element::Real {
            let message = format!("`{name}` is not computed, so no unit ends there");
            return self.fail(after.span, Mistake::new(Code::Type, message));
        }
        let taken = self
            .heads
            .iter()
            .find(|(head, _)| head.after.iter().any(|node| after_nodes.contains(node)));
        if let Some((_, earlier)) = taken {
            let message = format!("a head stands behind `{name}` already");
            let labels = vec![(*earlier, "the first is here".to_owned())];
            let mistake = Mistake::new(Code::Duplicate, message);
            return Err(self.report.error_with(after.span, mistake, labels));
        }
        let body = self.head_body((&name, &first), body, span)?;
        self.heads.push((Head { after: after_nodes, body }, after.span));
        Ok(())
    }

    fn behind(&mut self, after: &Expression) -> Known<Behind> {
        let ExpressionKind::Name(name) = &after.kind else {
            let message = "expected the name of a value, or of what counts a repeat";
            return self.fail(after.span, Mistake::new(Code::Type, message));
        };
        let passes = [Within::Model, Within::Block]
            .into_iter()
            .find_map(|within| self.passes.get(&(within, name.clone())));
        match (self.scope.get(name).cloned(), passes) {
            (Some(Binding { value: Some(Value::Tensor(tensor)), .. }), _) => {
                Ok(Behind { name: name.clone(), values: vec![tensor] })
            }
            (Some(Binding { value: None, .. }), _) => Err(self.report.earlier()),
            (None, Some(names)) => match &names.iter().collect::<Vec<_>>()[..] {
                [(own, values)] => {
                    Ok(Behind { name: (*own).clone(), values: (*values).clone() })
                }
                several => {
                    let names: Vec<String> =
                        several.iter().map(|(name, _)| format!("`{name}`")).collect();
                    let message = format!(
                        "a pass of `{name}` binds {} again, so which of them goes on?",
                        names.join(" and ")
                    );
                    let hint = "write a head after one of these names";
                    self.fail(after.span, Mistake::new(Code::Value, message).hint(hint))
                }
            },
            (found, _) => {
                let message = match found {
                    Some(_) => format!("`{name}` is not a value that the model computes"),
                    None => format!("nothing above is called `{name}`"),
                };
                let hint = "name a value, or what counts an outermost repeat: `repeat 4 as layer`";
                let mistake = Mistake::new(Code::UnknownName, message).hint(hint);
                self.fail(after.span, mistake)
            }
        }
    }

    /// The body as a model of its own, whose first input is the value.
    fn head_body(
        &mut self,
        (name, value): (&str, &TensorValue),
        body: &[Statement],
        span: Span,
    ) -> Known<crate::Model> {
        let (graph, scope) = self.inside(name, value, span)?;
        let outside = (
            std::mem::replace(&mut self.graph, graph),
            std::mem::replace(&mut self.scope, scope),
            std::mem::take(&mut self.origins),
            self.loss.take(),
        );
        let before = self.report.errors();
        self.nested += 1;
        self.body(body, Home::Head);
        self.nested -= 1;
        let graph = std::mem::replace(&mut self.graph, outside.0);
        (self.scope, self.origins) = (outside.1, outside.2);
        let loss = std::mem::replace(&mut self.loss, outside.3);
        self.graph.share_momentum(&graph);
        if self.report.errors() > before {
            return Err(self.report.earlier());
        }
        let Some((loss, loss_span)) = loss else {
            let mistake = Mistake::new(Code::Missing, "the head has no loss");
            let hint = "end it with `loss cross_entropy(…)` or `loss mse(…)`";
            return self.fail(span, mistake.hint(hint));
        };
        graph.finish_head(name, &loss).or_else(|mistake| self.fail(loss_span, mistake))
    }

    /// The value and the model's inputs as inputs of an empty graph, under whatever names they are
    /// in sight, and all that is no tensor.
    fn inside(
        &mut self,
        name: &str,
        value: &TensorValue,
        span: Span,
    ) -> Known<(Graph, Scope)> {
        let mut graph = Graph::new(name);
        graph.share_momentum(&self.graph);
        let mut inputs: BTreeMap<ModelInputId, TensorValue> = BTreeMap::new();
        let mut scope = Scope::new();
        let own = graph.input(name, value.element, value.shape.clone());
        let own = own.or_else(|mistake| self.fail(span, mistake))?;
        for (other, binding) in self.scope.bindings() {
            let seen = match &binding.value {
                Some(Value::Tensor(TensorValue {
                    source: Source::Input(id),
                    element,
                    shape,
                })) => {
                    if !inputs.contains_key(id) {
                        let name = self.graph.input_name(*id);
                        let input = graph.input(name, *element, shape.clone());
                        inputs.extend(input.ok().map(|input| (*id, input)));
                    }
                    inputs.get(id).cloned().map(Value::Tensor)
                }
                Some(Value::Tensor(_) | Value::Metric(_)) => continue,
                value => value.clone(),
            };
            scope.bind_here(other, Binding { value: seen, span: binding.span });
        }
        let value = Some(Value::Tensor(own));
        scope.bind_here(name, Binding { value, span });
        Ok((graph, scope))
    }
}

/// The names that statements bind, also inside of repeats.
fn bound(body: &[Statement]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for statement in body {
        let own = match &statement.kind {
            StatementKind::Bind(name, _) => vec![name.text.as_str()],
            StatementKind::Repeat(_, _, body) => bound(body),
            StatementKind::Input(..)
            | StatementKind::Parameter(..)
            | StatementKind::Loss(_)
            | StatementKind::Metric(_)
            | StatementKind::Return(_)
            | StatementKind::Head(..)
            | StatementKind::Broken(_) => continue,
        };
        let new: Vec<&str> =
            own.into_iter().filter(|name| !names.contains(name)).collect();
        names.extend(new);
    }
    names
}
