//! Statements of models and blocks: what they bind and add to the graph.

use super::{
    definitions::Definitions,
    evaluate::Evaluator,
    scope::{Binding, reserved},
};
use crate::{
    Code, Extent, Measure, Mistake, Model, Span, TensorValue, Value,
    finish::weightless,
    held::Constant,
    local,
    operators::spelled_metrics,
    report::{Known, Report},
    syntax::{
        self, Expression, ExpressionKind, Name, Operator, Statement, StatementKind,
    },
    value::spelled,
};
use roundelay_schedule::{Element, Initial};
use std::collections::BTreeMap;

/// Where a statement stands; inputs, losses and returns are not welcome everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Model,
    Block,
    Repeat,
    Head,
}

/// The model that is trained, and where it stands.
pub(super) struct Resolved {
    pub(super) model: Model,
    pub(super) places: Places,
    /// What each of its heads stands behind.
    pub(super) heads: Vec<Span>,
    /// Its numbers, and where each is written.
    pub(super) constants: Vec<(Span, Constant)>,
}

/// Where a model was written.
pub(super) struct Places {
    /// Its name.
    pub(super) model: Span,
    /// The names of its inputs.
    inputs: BTreeMap<String, Span>,
}

impl Places {
    fn of(model: &syntax::Model) -> Self {
        let name = |statement: &Statement| match &statement.kind {
            StatementKind::Input(name, ..) => Some((name.text.clone(), name.span)),
            StatementKind::Bind(..)
            | StatementKind::Parameter(..)
            | StatementKind::Repeat(..)
            | StatementKind::Loss(_)
            | StatementKind::Metric(_)
            | StatementKind::Return(_)
            | StatementKind::Head(..)
            | StatementKind::Broken(_) => None,
        };
        let inputs = model.body.iter().filter_map(name).collect();
        Self { model: model.name.span, inputs }
    }

    /// The name of an input.
    pub(super) fn input(&self, name: &str) -> Span {
        self.inputs.get(name).copied().unwrap_or(self.model)
    }
}

/// The model that is trained.
pub(super) fn resolve(
    definitions: &Definitions<'_>,
    report: &mut Report,
) -> Known<Resolved> {
    let model = definitions.model(report)?;
    let places = Places::of(model);
    let mut evaluator = Evaluator::new(&model.name.text, definitions, report);
    evaluator.body(&model.body, Home::Model);
    evaluator.look_over_uncalled();
    let Evaluator { report, mut graph, origins, constants, loss, metrics, heads, .. } =
        evaluator;
    if report.errors() > 0 {
        return Err(report.earlier());
    }
    let Some((loss, span)) = loss else {
        let mistake = Mistake::new(Code::Missing, "the model has no loss");
        let hint = "end it with `loss cross_entropy(…)` or `loss mse(…)`";
        return Err(report.error(places.model, mistake.hint(hint)));
    };
    for (metric, place) in &metrics {
        graph.admits(&loss, metric).map_err(|m| report.error(*place, m))?;
    }
    let metrics: Vec<Measure> = metrics.into_iter().map(|(metric, _)| metric).collect();
    let (bodies, heads): (Vec<_>, Vec<Span>) = heads.into_iter().unzip();
    graph.state_heads(bodies);
    let finished = graph.finish(&loss, &metrics);
    let (model, unused) = finished.map_err(|m| report.error(span, m))?;
    origins.warn_unused(&unused, report);
    for mistake in weightless(&model) {
        report.warning(span, mistake);
    }
    for (head, place) in model.heads.iter().zip(&heads) {
        local::fits(&model, head).map_err(|m| report.error(*place, m))?;
    }
    Ok(Resolved { model, places, heads, constants })
}

/// Whether an expression is a quotient, or made of one.
fn divides(expression: &Expression) -> bool {
    match &expression.kind {
        ExpressionKind::Chain(first, others) => {
            let mut all = others.iter().map(|(operator, other)| (*operator, other));
            divides(first)
                || all.any(|(operator, other)| {
                    operator == Operator::Divide || divides(other)
                })
        }
        ExpressionKind::Negative(inner) => divides(inner),
        ExpressionKind::Number(..)
        | ExpressionKind::Text(_)
        | ExpressionKind::Name(_)
        | ExpressionKind::Shape(_)
        | ExpressionKind::Call(..)
        | ExpressionKind::Index(..) => false,
    }
}

impl Evaluator<'_> {
    /// Statements one after another; the returned value, when one is.
    pub(super) fn body(
        &mut self,
        statements: &[Statement],
        home: Home,
    ) -> Option<Known<Value>> {
        let mut assigned: BTreeMap<&str, usize> = BTreeMap::new();
        for statement in statements {
            if let StatementKind::Bind(name, _) = &statement.kind {
                *assigned.entry(&name.text).or_default() += 1;
            }
        }
        for (index, statement) in statements.iter().enumerate() {
            if self.report.is_full() {
                break;
            }
            if let StatementKind::Return(value) = &statement.kind {
                return Some(self.returned(
                    value,
                    statement.span,
                    home,
                    &statements[index + 1..],
                ));
            }
            let single = |name: &str| assigned.get(name) == Some(&1);
            // A mistake is reported where it is found; the next statement is read all the same.
            let _: Known<()> = self.statement(statement, home, single);
        }
        None
    }

    fn statement(
        &mut self,
        statement: &Statement,
        home: Home,
        single: impl Fn(&str) -> bool,
    ) -> Known<()> {
        self.charge(statement.span, 1)?;
        match &statement.kind {
            StatementKind::Bind(name, value) => {
                self.bind(name, value, single(&name.text))
            }
            StatementKind::Input(name, element, shape) => {
                self.input(name, element, shape, home)
            }
            StatementKind::Parameter(name, shape, initial) => {
                self.parameter(name, shape, initial.as_ref())
            }
            StatementKind::Repeat(times, counter, body) => self
                .deeper(statement.span, |this| {
                    this.repeat(times, counter.as_ref(), body)
                }),
            StatementKind::Loss(value) => self.state_loss(value, statement.span, home),
            StatementKind::Broken(name) => {
                self.scope.bind(&name.text, Binding { value: None, span: name.span });
                Err(self.report.earlier())
            }
            StatementKind::Metric(value) => {
                self.state_metric(value, statement.span, home)
            }
            StatementKind::Head(after, body) if home == Home::Model => self
                .deeper(statement.span, |this| {
                    this.state_head(after, body, statement.span)
                }),
            StatementKind::Head(..) => {
                let mistake = Mistake::new(
                    Code::Syntax,
                    "`head` belongs behind a repeat of a model",
                );
                let hint = "write it behind the repeat, after what counts the passes";
                self.fail(statement.span, mistake.hint(hint))
            }
            StatementKind::Return(_) => unreachable!("bodies end at their return"),
        }
    }

    /// `name = value`. A name that is bound once names the operator that it is bound to.
    fn bind(&mut self, name: &Name, value: &Expression, single: bool) -> Known<()> {
        self.bindable(name)?;
        let fresh = single && self.scope.get(&name.text).is_none();
        let result = match &value.kind {
            ExpressionKind::Call(callee, given) if fresh => self
                .charge(value.span, 1)
                .and_then(|()| self.call(callee, given, value.span, Some(&name.text))),
            _ => self.expression(value),
        };
        let kept = match (&result, self.scope.outer(&name.text)) {
            (Ok(new), Some(Binding { value: Some(old), span })) => {
                changed_shape(&name.text, old, new).map(|mistake| (mistake, *span))
            }
            _ => None,
        };
        let value_span = value.span;
        let value = match kept {
            Some((mistake, first)) => {
                let labels = vec![(first, "bound here".to_owned())];
                Err(self.report.error_with(value_span, mistake, labels))
            }
            None => result,
        };
        let binding = Binding { value: value.clone().ok(), span: name.span };
        self.scope.bind(&name.text, binding);
        value.map(|_| ())
    }

    /// Refuses a name that means something else everywhere.
    fn bindable(&mut self, name: &Name) -> Known<()> {
        reserved(&name.text).map_or(Ok(()), |mistake| self.fail(name.span, mistake))
    }

    /// Refuses a name that is bound already.
    fn unbound(&mut self, name: &Name) -> Known<()> {
        self.bindable(name)?;
        let Some(Binding { span, .. }) = self.scope.get(&name.text) else {
            return Ok(());
        };
        let labels = vec![(*span, "bound here".to_owned())];
        let mistake = crate::report::duplicate("the name", &name.text);
        Err(self.report.error_with(name.span, mistake, labels))
    }

    /// `input name: element[shape]`.
    fn input(
        &mut self,
        name: &Name,
        element: &Name,
        shape: &[Expression],
        home: Home,
    ) -> Known<()> {
        if home != Home::Model {
            let mistake = Mistake::new(Code::Syntax, "`input` belongs in a model");
            return self.fail(name.span, mistake);
        }
        let shape = self.shape(shape);
        let element = self.element(element);
        self.unbound(name)?;
        let tensor = match (element, shape) {
            (Ok(element), Ok(shape)) => self.graph.input(&name.text, element, shape),
            (Err(reported), _) | (_, Err(reported)) => {
                let binding = Binding { value: None, span: name.span };
                self.scope.bind(&name.text, binding);
                return Err(reported);
            }
        };
        let tensor = self.built(tensor, name.span);
        let value = tensor.map(Value::Tensor);
        let binding = Binding { value: value.clone().ok(), span: name.span };
        self.scope.bind(&name.text, binding);
        value.map(|_| ())
    }

    fn element(&mut self, element: &Name) -> Known<Element> {
        match element.text.as_str() {
            "i32" => Ok(Element::I32),
            "real" => Ok(Element::Real),
            other => {
                let message = format!("unknown element type `{other}`");
                let hint = "write `i32` for tokens and classes, `real` for real numbers: how \
                            wide these are says `dtype` of `train`";
                let mistake = Mistake::new(Code::UnknownName, message).hint(hint);
                self.fail(element.span, mistake)
            }
        }
    }

    fn shape(&mut self, items: &[Expression]) -> Known<Vec<Extent>> {
        let mut shape = Vec::new();
        let mut wrong = None;
        for item in items {
            let value = self.expression(item);
            let extent = value.and_then(|value| {
                value.extent().or_else(|mistake| self.fail(item.span, mistake))
            });
            match extent {
                Ok(extent) => shape.push(extent),
                Err(reported) => wrong = Some(reported),
            }
        }
        wrong.map_or(Ok(shape), Err)
    }

    /// `param name: [shape] = initial`.
    fn parameter(
        &mut self,
        name: &Name,
        shape: &[Expression],
        initial: Option<&Expression>,
    ) -> Known<()> {
        let extents = self.shape(shape);
        let initial = match initial {
            Some(initial) => super::optimizer::initial(initial, self.report),
            None => Ok(Initial::Normal(0.02)),
        };
        let made = match (extents, initial) {
            (Ok(extents), Ok(initial)) => self.new_parameter(name, &extents, initial),
            (Err(reported), _) | (_, Err(reported)) => Err(reported),
        };
        self.unbound(name)?;
        let binding =
            Binding { value: made.clone().ok().map(Value::Tensor), span: name.span };
        self.scope.bind(&name.text, binding);
        made.map(|_| ())
    }

    fn new_parameter(
        &mut self,
        name: &Name,
        extents: &[Extent],
        initial: Initial,
    ) -> Known<TensorValue> {
        if extents.iter().any(|extent| extent.per_example) {
            let message = format!(
                "a parameter cannot depend on `batch`, found the shape {}",
                spelled(extents)
            );
            return self.fail(name.span, Mistake::new(Code::Shape, message));
        }
        let shape = extents.iter().map(|extent| extent.size).collect();
        let role = self.graph.claim(&name.text);
        let made = self.graph.parameter(&role, shape, initial);
        self.built(made, name.span)
    }

    /// `repeat times as counter { … }`; stops after the first pass with a mistake.
    fn repeat(
        &mut self,
        times: &Expression,
        counter: Option<&Name>,
        body: &[Statement],
    ) -> Known<()> {
        let Ok(count) = self.times(times) else {
            self.look_over(counter, body);
            return Err(self.report.earlier());
        };
        counter.map_or(Ok(()), |name| self.bindable(name))?;
        let work = count.unsigned_abs().saturating_mul(body.len() as u64 + 1);
        self.foresee(times.span, work)?;
        let base = self.graph.claim(counter.map_or("repeat", |name| &name.text));
        if count == 0 {
            self.look_over(counter, body);
        }
        let before = self.report.errors();
        for pass in 0..count {
            self.charge(times.span, 1)?;
            self.scope.push();
            if let Some(name) = counter {
                let value = Some(Value::Integer(pass));
                self.scope.bind_here(&name.text, Binding { value, span: name.span });
            }
            self.graph.descend(format!("{base}.{pass}"));
            self.nested += 1;
            self.pass(pass, times, counter, body);
            self.nested -= 1;
            self.graph.ascend();
            self.scope.pop();
            if self.report.errors() > before {
                return Err(self.report.earlier());
            }
            if let Some(name) = counter {
                self.note_pass(name, body);
            }
        }
        Ok(())
    }

    /// One pass of a repeat. What is wrong in a later one alone is told with its number.
    fn pass(
        &mut self,
        pass: i64,
        times: &Expression,
        counter: Option<&Name>,
        body: &[Statement],
    ) {
        let (span, text) = match counter {
            Some(name) => (name.span, format!("where `{}` is {pass}", name.text)),
            None => (times.span, format!("in pass {}", pass + 1)),
        };
        if pass > 0 {
            self.report.enter(span, text);
        }
        self.body(body, Home::Repeat);
        if pass > 0 {
            self.report.leave();
        }
    }

    fn times(&mut self, times: &Expression) -> Known<i64> {
        match self.expression(times)? {
            Value::Integer(count) if count >= 0 => Ok(count),
            other => {
                let found = match other {
                    Value::Integer(count) => count.to_string(),
                    _ => other.kind().to_owned(),
                };
                let message = format!("expected a number of repeats, found {found}");
                let mistake = Mistake::new(Code::Type, message);
                let hint = "`/` makes a real number where it does not divide evenly";
                let is_quotient = matches!(other, Value::Real(_)) && divides(times);
                let mistake = if is_quotient { mistake.hint(hint) } else { mistake };
                self.fail(times.span, mistake)
            }
        }
    }

    /// `loss value`.
    fn state_loss(&mut self, value: &Expression, span: Span, home: Home) -> Known<()> {
        if !matches!(home, Home::Model | Home::Head) {
            let mistake = Mistake::new(Code::Syntax, "`loss` belongs in a model");
            return self.fail(span, mistake);
        }
        if let Some((_, first)) = self.loss {
            let mistake = Mistake::new(Code::Duplicate, "the model has a loss already");
            let mistake = mistake.hint("add them: `loss a + b`");
            let labels = vec![(first, "the first is here".to_owned())];
            return Err(self.report.error_with(span, mistake, labels));
        }
        match self.expression(value)? {
            Value::Tensor(tensor) => self.loss = Some((tensor, value.span)),
            other => {
                let message =
                    format!("expected a tensor as loss, found {}", other.kind());
                let mistake = Mistake::new(Code::Type, message);
                let hint = "a metric has no gradient; minimise `cross_entropy` or `mse`";
                let metric = matches!(other, Value::Metric(_));
                let mistake = if metric { mistake.hint(hint) } else { mistake };
                return self.fail(value.span, mistake);
            }
        }
        Ok(())
    }

    /// `metric value`.
    fn state_metric(&mut self, value: &Expression, span: Span, home: Home) -> Known<()> {
        if home != Home::Model {
            let mistake = Mistake::new(Code::Syntax, "`metric` belongs in a model");
            return self.fail(span, mistake);
        }
        let metric = match self.expression(value)? {
            Value::Metric(metric) => metric,
            other => {
                let message = format!("expected a metric, found {}", other.kind());
                let hint = format!("metrics are {}", spelled_metrics());
                let mistake = Mistake::new(Code::Type, message).hint(hint);
                return self.fail(value.span, mistake);
            }
        };
        let earlier = self.metrics.iter().find(|(known, _)| known.name == metric.name);
        if let Some((_, first)) = earlier {
            let message = format!("`{}` is a metric already", metric.name);
            let labels = vec![(*first, "the first is here".to_owned())];
            let mistake = Mistake::new(Code::Duplicate, message);
            return Err(self.report.error_with(span, mistake, labels));
        }
        self.metrics.push((metric, value.span));
        Ok(())
    }

    fn returned(
        &mut self,
        value: &Expression,
        span: Span,
        home: Home,
        after: &[Statement],
    ) -> Known<Value> {
        if home != Home::Block {
            let mistake =
                Mistake::new(Code::Syntax, "`return` belongs at the end of a block");
            return self.fail(span, mistake);
        }
        if let Some(statement) = after.first() {
            let mistake = Mistake::new(Code::Unused, "nothing can follow `return`");
            self.report.error(statement.span, mistake);
        }
        self.expression(value)
    }
}

/// Inside a repeat a name from outside keeps its shape, so that every pass fits.
fn changed_shape(name: &str, old: &Value, new: &Value) -> Option<Mistake> {
    let fits = match (old, new) {
        (Value::Tensor(old), Value::Tensor(new)) => {
            old.shape == new.shape && old.element == new.element
        }
        (Value::Integer(_) | Value::Real(_), Value::Integer(_) | Value::Real(_)) => true,
        _ => old.kind() == new.kind(),
    };
    let shown = |value: &Value| match value {
        Value::Tensor(tensor) => spelled(&tensor.shape),
        other => other.kind().to_owned(),
    };
    let [old, new] = [old, new].map(shown);
    let message = format!("`{name}` must keep its shape in a repeat: {old}, found {new}");
    let hint = "bind the result to another name";
    (!fits).then(|| Mistake::new(Code::Shape, message).hint(hint))
}
