//! Bodies that are never worked through, for no model calls their block, or their repeat has no pass
//! or an unknown number of them: the names in them are looked up all the same.

use super::{
    evaluate::Evaluator,
    optimizer,
    scope::{Binding, Scope},
};
use crate::{
    Span,
    report::Known,
    syntax::{Argument, Expression, ExpressionKind, Name, Statement, StatementKind},
};
use roundelay_schedule::Initial;

impl Evaluator<'_> {
    /// Looks up the names in all blocks that nothing called.
    pub(super) fn look_over_uncalled(&mut self) {
        let blocks = self.definitions.blocks.values().copied();
        let uncalled = blocks.filter(|block| !self.called.contains(&*block.name.text));
        for block in uncalled.collect::<Vec<_>>() {
            let outside = std::mem::replace(&mut self.scope, Scope::new());
            block.formals.iter().for_each(|formal| self.bind_unknown(formal));
            self.look_over(None, &block.body);
            self.scope = outside;
        }
    }

    /// Looks up the names in the body of a repeat or a block.
    pub(super) fn look_over(&mut self, counter: Option<&Name>, body: &[Statement]) {
        self.scope.push();
        counter.into_iter().for_each(|name| self.bind_unknown(name));
        for statement in body {
            if self.report.is_full() {
                break;
            }
            self.look_over_statement(statement);
        }
        self.scope.pop();
    }

    fn look_over_statement(&mut self, statement: &Statement) {
        match &statement.kind {
            StatementKind::Bind(name, value) => {
                self.look_up(value);
                self.bind_unknown(name);
            }
            StatementKind::Input(name, _, shape) => {
                shape.iter().for_each(|extent| self.look_up(extent));
                self.bind_unknown(name);
            }
            StatementKind::Parameter(name, shape, initial) => {
                shape.iter().for_each(|extent| self.look_up(extent));
                if let Some(initial) = initial {
                    let _: Known<Initial> = optimizer::initial(initial, self.report);
                }
                self.bind_unknown(name);
            }
            StatementKind::Repeat(times, counter, body) => {
                self.look_up(times);
                self.look_over(counter.as_ref(), body);
            }
            // It stands neither in blocks nor in repeats.
            StatementKind::Head(..) => {}
            StatementKind::Loss(value)
            | StatementKind::Metric(value)
            | StatementKind::Return(value) => self.look_up(value),
            StatementKind::Broken(name) => self.bind_unknown(name),
        }
    }

    fn bind_unknown(&mut self, name: &Name) {
        self.scope.bind_here(&name.text, Binding { value: None, span: name.span });
    }

    /// Looks up all names in an expression; a mistake is reported where it is found.
    fn look_up(&mut self, expression: &Expression) {
        match &expression.kind {
            ExpressionKind::Number(..) | ExpressionKind::Text(_) => {}
            ExpressionKind::Name(name) => {
                let _: Known<()> = self.known_name(name, expression.span);
            }
            ExpressionKind::Shape(items) => {
                items.iter().for_each(|item| self.look_up(item));
            }
            ExpressionKind::Call(name, arguments) => {
                let callee = self.callee(name);
                let _: Known<Vec<Option<usize>>> = callee.and_then(|callee| {
                    self.assigned(name, callee, arguments, expression.span)
                });
                arguments.iter().for_each(|Argument { value, .. }| self.look_up(value));
            }
            ExpressionKind::Index(base, index) => {
                self.look_up(base);
                self.look_up(index);
            }
            ExpressionKind::Negative(inner) => self.look_up(inner),
            ExpressionKind::Chain(first, others) => {
                self.look_up(first);
                others.iter().for_each(|(_, other)| self.look_up(other));
            }
        }
    }

    fn known_name(&mut self, name: &str, span: Span) -> Known<()> {
        let is_word = ["batch", "true", "false"].contains(&name);
        match is_word || self.scope.get(name).is_some() {
            true => Ok(()),
            false => self.unknown_name(name, span),
        }
    }
}
