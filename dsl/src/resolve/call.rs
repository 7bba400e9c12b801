//! Calls in models and blocks: what is called, which argument is which, and what comes of it.

use super::{
    constant::{assigned, place},
    evaluate::Evaluator,
    head::Within,
    model::Home,
    scope::{Binding, Scope},
};
use crate::{
    Code, Measure, Mistake, Span, Value, near,
    operators::{self, METRICS, OPERATORS, Operator, metric, operator},
    report::Known,
    signature::{Arguments, Formal, Slot},
    syntax::{Argument, Block, Name},
};

/// What can be called.
#[derive(Clone, Copy)]
pub(super) enum Callee<'a> {
    Block(&'a Block),
    Operator(&'static Operator),
    Metric(&'static Operator<Measure>),
}

impl<'a> Callee<'a> {
    /// The arguments that it takes.
    fn slots(self) -> Vec<Slot<'a>> {
        let of_operator =
            |formals: &'static [Formal]| formals.iter().map(Formal::slot).collect();
        match self {
            Callee::Block(block) => block.formals.iter().map(needed).collect(),
            Callee::Operator(operator) => of_operator(operator.formals),
            Callee::Metric(metric) => of_operator(metric.formals),
        }
    }
}

/// Arguments of blocks have no defaults.
fn needed(formal: &Name) -> Slot<'_> {
    Slot { name: &formal.text, needed: true }
}

impl<'a> Evaluator<'a> {
    /// `name(arguments)`: a block or an operator, under the wanted name, else under its own. Arguments
    /// that it does not know are told whether or not their values can be computed.
    pub(super) fn call(
        &mut self,
        name: &Name,
        given: &[Argument],
        span: Span,
        wanted: Option<&str>,
    ) -> Known<Value> {
        let callee = self.callee(name);
        let taken = callee.and_then(|callee| self.assigned(name, callee, given, span));
        let values: Vec<Known<Value>> =
            given.iter().map(|argument| self.expression(&argument.value)).collect();
        let values = values.into_iter().collect::<Known<Vec<Value>>>();
        let (callee, taken, values) = (callee?, taken?, values?);
        let wanted = wanted.unwrap_or(&name.text);
        match callee {
            Callee::Block(block) => {
                let arguments = arguments_of(block, &taken, &values);
                self.deeper(span, |this| this.block(block, arguments, span, wanted))
            }
            Callee::Operator(operator) => {
                let Operator { name, formals, .. } = operator;
                let arguments = Arguments::placed(name, formals, &taken, &values);
                let made = operator.apply(wanted, &arguments, &mut self.graph);
                self.made(made.map(Value::Tensor), (formals, given), span)
            }
            Callee::Metric(metric) => {
                let Operator { name, formals, .. } = metric;
                let arguments = Arguments::placed(name, formals, &taken, &values);
                let made = metric.measure(wanted, &arguments, &mut self.graph);
                self.made(made.map(Value::Metric), (formals, given), span)
            }
        }
    }

    /// What a name calls.
    pub(super) fn callee(&mut self, name: &Name) -> Known<Callee<'a>> {
        let text = name.text.as_str();
        if let Some(block) = self.definitions.blocks.get(text).copied() {
            return Ok(Callee::Block(block));
        }
        let operator = operator(text).map(Callee::Operator);
        let found = operator.or_else(|| metric(text).map(Callee::Metric));
        found.map_or_else(|| self.unknown_call(name), Ok)
    }

    fn unknown_call<T>(&mut self, name: &Name) -> Known<T> {
        self.definitions.only_if_whole(self.report)?;
        let blocks = self.definitions.blocks.keys().copied();
        let operators = OPERATORS.iter().map(|operator| operator.name);
        let metrics = METRICS.iter().map(|metric| metric.name);
        let known = operators.chain(metrics).chain(blocks);
        let mistake = operators::absent(&name.text)
            .unwrap_or_else(|| near::unknown("operator or block", &name.text, known));
        self.fail(name.span, mistake)
    }

    /// Which given argument each one of the callee is.
    pub(super) fn assigned(
        &mut self,
        name: &Name,
        callee: Callee<'_>,
        given: &[Argument],
        span: Span,
    ) -> Known<Vec<Option<usize>>> {
        assigned(&name.text, &callee.slots(), given, span, self.report)
    }

    /// What an operator made, or its mistake at the argument that it names.
    fn made(
        &mut self,
        made: Result<Value, Mistake>,
        (formals, given): (&[Formal], &[Argument]),
        span: Span,
    ) -> Known<Value> {
        match made {
            Ok(value) => self.built(Ok(value), span),
            Err(mistake) => self.fail(place(&mistake, formals, given, span), mistake),
        }
    }

    /// `name(arguments)` for a block: its body with its arguments alone in sight. What is wrong in the
    /// body is told with the place of the call, for it may be wrong for these arguments only.
    fn block(
        &mut self,
        block: &'a Block,
        arguments: Scope,
        span: Span,
        wanted: &str,
    ) -> Known<Value> {
        self.called.insert(&block.name.text);
        let outside = std::mem::replace(&mut self.scope, arguments);
        let name = self.graph.claim(wanted);
        self.graph.descend(name);
        let within = std::mem::replace(&mut self.within, Within::Block);
        let call = self.origins.enter(span);
        self.report.enter(span, "called here".to_owned());
        let returned = self.body(&block.body, Home::Block);
        self.report.leave();
        let value = returned.as_ref().and_then(|returned| returned.as_ref().ok());
        self.origins.leave(call, value);
        self.within = within;
        self.graph.ascend();
        self.scope = outside;
        returned.unwrap_or_else(|| {
            let message = format!("block `{}` returns nothing", block.name.text);
            let mistake = Mistake::new(Code::Missing, message);
            self.fail(block.name.span, mistake.hint("end it with `return …`"))
        })
    }
}

/// The names that the body of a block begins with.
fn arguments_of(block: &Block, taken: &[Option<usize>], values: &[Value]) -> Scope {
    let mut scope = Scope::new();
    for (formal, slot) in block.formals.iter().zip(taken) {
        let value = slot.map(|index| values[index].clone());
        scope.bind_here(&formal.text, Binding { value, span: formal.span });
    }
    scope
}
