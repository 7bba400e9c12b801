//! Expressions of models and blocks.

use super::{
    constant::number,
    definitions::Definitions,
    head::{Passes, Within},
    origins::Origins,
    scope::Scope,
};
use crate::{
    Code, Head, Measure, Mistake, Span, TensorValue, Value,
    graph::Graph,
    held::{self, Constant},
    limit, near, operators,
    parse::joined_unit,
    report::{Known, Report, not_yet},
    syntax::{Expression, ExpressionKind, Operator as Sign},
    value::{arithmetic, negative, zero_divisor},
};
use std::collections::BTreeSet;

/// Works through expressions and bodies, and builds the graph.
pub(super) struct Evaluator<'a> {
    /// All definitions.
    pub(super) definitions: &'a Definitions<'a>,
    /// Findings.
    pub(super) report: &'a mut Report,
    /// The model so far.
    pub(super) graph: Graph,
    /// Names in sight.
    pub(super) scope: Scope,
    /// Where inputs, parameters and nodes were written.
    pub(super) origins: Origins,
    /// The numbers that kernels compute with, and where each is written.
    pub(super) constants: Vec<(Span, Constant)>,
    /// The loss, once it is stated, and where.
    pub(super) loss: Option<(TensorValue, Span)>,
    /// The metrics so far, and where each is stated.
    pub(super) metrics: Vec<(Measure, Span)>,
    /// The heads so far, and where each is stated.
    pub(super) heads: Vec<(Head, Span)>,
    /// What passes of outermost repeats bound again.
    pub(super) passes: Passes,
    /// Where the statements stand that are looked at.
    pub(super) within: Within,
    /// Blocks that were worked through.
    pub(super) called: BTreeSet<&'a str>,
    /// How many repeats and heads are being worked through.
    pub(super) nested: u32,
    depth: u32,
    steps: u64,
    stopped: bool,
}

impl<'a> Evaluator<'a> {
    /// An evaluator for one model.
    pub(super) fn new(
        name: &str,
        definitions: &'a Definitions<'a>,
        report: &'a mut Report,
    ) -> Self {
        Self {
            definitions,
            report,
            graph: Graph::new(name),
            scope: Scope::new(),
            origins: Origins::default(),
            constants: Vec::new(),
            loss: None,
            metrics: Vec::new(),
            heads: Vec::new(),
            passes: Passes::new(),
            within: Within::Model,
            called: BTreeSet::new(),
            nested: 0,
            depth: 0,
            steps: 0,
            stopped: false,
        }
    }

    /// Reports a mistake.
    pub(super) fn fail<T>(&mut self, span: Span, mistake: Mistake) -> Known<T> {
        Err(self.report.error(span, mistake))
    }

    /// Counts work, so that no program takes forever.
    pub(super) fn charge(&mut self, span: Span, steps: usize) -> Known<()> {
        self.steps = self.steps.saturating_add(steps as u64);
        self.foresee(span, 0)
    }

    /// Refuses work that would exceed the limit, before any of it is done.
    pub(super) fn foresee(&mut self, span: Span, steps: u64) -> Known<()> {
        if self.steps.saturating_add(steps) <= limit::STEPS {
            return Ok(());
        }
        let message =
            format!("expanding the model takes more than {} steps", limit::STEPS);
        self.stop(span, Mistake::new(Code::Limit, message))
    }

    /// Does something one level deeper.
    pub(super) fn deeper<T>(
        &mut self,
        span: Span,
        body: impl FnOnce(&mut Self) -> Known<T>,
    ) -> Known<T> {
        if self.depth >= limit::CALLS {
            let message =
                format!("calls and expressions nest more than {} deep", limit::CALLS);
            let mistake = Mistake::new(Code::Limit, message);
            return self.stop(span, mistake.hint("a block cannot call itself"));
        }
        self.depth += 1;
        let result = body(self);
        self.depth -= 1;
        result
    }

    /// A limit is reached: says so once, and from then on every step fails.
    fn stop<T>(&mut self, span: Span, mistake: Mistake) -> Known<T> {
        if !self.stopped {
            self.stopped = true;
            self.steps = u64::MAX;
            return self.fail(span, mistake);
        }
        Err(self.report.earlier())
    }

    /// The value of an expression.
    pub(super) fn expression(&mut self, expression: &Expression) -> Known<Value> {
        let span = expression.span;
        self.charge(span, 1)?;
        self.deeper(span, |this| match &expression.kind {
            ExpressionKind::Number(digits, unit) => number(digits, unit.as_deref())
                .or_else(|mistake| this.fail(span, mistake)),
            ExpressionKind::Text(text) => Ok(Value::Text(text.clone())),
            ExpressionKind::Name(name) => this.name(name, span),
            ExpressionKind::Shape(items) => this.list(items),
            ExpressionKind::Call(name, arguments) => {
                this.call(name, arguments, span, None)
            }
            ExpressionKind::Index(base, index) => this.index(base, index, span),
            ExpressionKind::Negative(inner) => this.negative(inner, span),
            ExpressionKind::Chain(first, others) => this.chain(first, others, span),
        })
    }

    fn name(&mut self, name: &str, span: Span) -> Known<Value> {
        if let Some(binding) = self.scope.get(name) {
            let value = binding.value.clone();
            if let Some(Value::List(items)) = &value {
                self.charge(span, items.len())?;
            }
            return value.ok_or_else(|| self.report.earlier());
        }
        match name {
            "batch" => Ok(Value::Examples(1)),
            "true" => Ok(Value::Truth(true)),
            "false" => Ok(Value::Truth(false)),
            _ => self.unknown_name(name, span),
        }
    }

    pub(super) fn unknown_name<T>(&mut self, name: &str, span: Span) -> Known<T> {
        let known = self.scope.names().chain(["batch", "true", "false"]);
        let mistake =
            joined_unit(name).unwrap_or_else(|| near::unknown("name", name, known));
        self.fail(span, mistake)
    }

    fn list(&mut self, items: &[Expression]) -> Known<Value> {
        let mut values = Vec::new();
        for item in items {
            match self.expression(item)? {
                Value::List(_) => {
                    let mistake = Mistake::new(Code::Type, "a list cannot hold a list");
                    return self.fail(item.span, mistake);
                }
                value => values.push(value),
            }
        }
        Ok(Value::List(values))
    }

    fn index(&mut self, base: &Expression, at: &Expression, span: Span) -> Known<Value> {
        let (base, at) = (self.expression(base), self.expression(at));
        match (base?, at?) {
            (Value::List(items), Value::Integer(at)) => {
                let item = usize::try_from(at).ok().and_then(|at| items.get(at).cloned());
                let message =
                    format!("index {at} is outside of a list of {}", items.len());
                item.map_or_else(
                    || self.fail(span, Mistake::new(Code::Value, message)),
                    Ok,
                )
            }
            (Value::Tensor(_), _) => self.fail(span, not_yet("indexing a tensor")),
            (base, _) => {
                let message =
                    format!("expected a list before `[`, found {}", base.kind());
                self.fail(span, Mistake::new(Code::Type, message))
            }
        }
    }

    fn negative(&mut self, inner: &Expression, span: Span) -> Known<Value> {
        let value = self.expression(inner)?;
        let result = match &value {
            Value::Tensor(tensor) => {
                operators::negate(&mut self.graph, tensor).map(Value::Tensor)
            }
            other => negative(other),
        };
        self.built(result, span)
    }

    fn chain(
        &mut self,
        first: &Expression,
        others: &[(Sign, Expression)],
        span: Span,
    ) -> Known<Value> {
        let first_value = self.expression(first);
        let values: Vec<(Sign, Known<Value>)> =
            others.iter().map(|(sign, other)| (*sign, self.expression(other))).collect();
        let mut value = first_value?;
        for (sign, other) in values {
            let result = combined(&mut self.graph, sign, &value, &other?);
            value = self.built(result, span)?;
        }
        Ok(value)
    }

    /// Notes where new rows of the graph and their numbers were written.
    pub(super) fn built<T>(
        &mut self,
        result: Result<T, Mistake>,
        span: Span,
    ) -> Known<T> {
        let [_, parameters, nodes] = self.origins.sizes();
        let constants = held::of_model(self.graph.model(), [parameters, nodes]);
        self.constants.extend(constants.map(|constant| (span, constant)));
        self.origins.grow(self.graph.sizes(), span);
        result.or_else(|mistake| self.fail(span, mistake))
    }
}

/// `a SIGN b`, with tensors among them or not.
fn combined(
    graph: &mut Graph,
    sign: Sign,
    one: &Value,
    other: &Value,
) -> Result<Value, Mistake> {
    let made = match (one, other) {
        (Value::Tensor(a), Value::Tensor(b)) => match sign {
            Sign::Add => operators::add(graph, a, b),
            Sign::Subtract => operators::subtract(graph, a, b),
            Sign::Multiply => operators::multiply(graph, a, b),
            Sign::Divide => Err(divided_by_tensor()),
        },
        (Value::Tensor(_), number)
            if sign == Sign::Divide && number.real() == Some(0.0) =>
        {
            Err(zero_divisor())
        }
        (Value::Tensor(tensor), number) => scaled(graph, sign, tensor, number),
        (_, Value::Tensor(_)) if sign == Sign::Divide => Err(divided_by_tensor()),
        (number, Value::Tensor(tensor)) => scaled(graph, sign, tensor, number),
        _ => return arithmetic(sign, one, other),
    };
    made.map(Value::Tensor)
}

fn divided_by_tensor() -> Mistake {
    let hint = "a tensor can be divided by a number: `x / 2`; `layer_norm`, `rms_norm` and \
                `softmax` divide by what they find in it";
    not_yet("dividing by a tensor").hint(hint)
}

/// `tensor * number`, `tensor / number`.
fn scaled(
    graph: &mut Graph,
    sign: Sign,
    tensor: &TensorValue,
    number: &Value,
) -> Result<TensorValue, Mistake> {
    let Some(factor) = number.real() else {
        let message = format!("`{sign}` does not fit a tensor and {}", number.kind());
        return Err(Mistake::new(Code::Type, message));
    };
    match sign {
        Sign::Multiply => operators::scale(graph, tensor, factor),
        Sign::Divide => operators::scale(graph, tensor, 1.0 / factor),
        Sign::Add | Sign::Subtract => {
            let hint = format!(
                "a tensor can be multiplied or divided by a number; what can be added is another \
                 tensor, or a parameter that begins at the number and is then trained: `param \
                 shift: [] = constant({factor})`"
            );
            Err(not_yet("adding a number to a tensor").hint(hint))
        }
    }
}
