//! Optimizers, initialisers, and which parameters weight decay spares.

use super::constant::{Callee, learning_rate, one_of, place_of};
use crate::{
    Code, Mistake, Model, Pattern, Program, Span, limit,
    report::{Known, Report},
    signature::{Arguments, Fallback, Formal, both, optional, required},
    syntax::{Argument, Expression, ExpressionKind, Name, Operator},
};
use roundelay_schedule::{Initial, Method, Optimizer, Rate};
use std::collections::BTreeSet;

/// Patterns of parameter names that weight decay spares.
#[derive(Default)]
pub(super) struct NoDecay {
    patterns: Vec<Pattern>,
    /// Where the optimizer is written.
    pub(super) span: Span,
}

/// What is used when the program names no optimizer: AdamW with PyTorch's constants.
pub(super) fn usual() -> Optimizer {
    Optimizer {
        method: Method::Adamw { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 },
        rate: Rate::Constant(1e-3),
        weight_decay: 0.01,
        clip: 0.0,
    }
}

const SGD: &[Formal] = &[
    required("lr"),
    optional("momentum", Fallback::Number(0.0)),
    optional("nesterov", Fallback::Truth(false)),
    optional("weight_decay", Fallback::Number(0.0)),
    optional("clip", Fallback::Number(0.0)),
    optional("no_decay", Fallback::Empty),
];

const ADAMW: &[Formal] = &[
    required("lr"),
    optional("beta1", Fallback::Number(0.9)),
    optional("beta2", Fallback::Number(0.999)),
    optional("epsilon", Fallback::Number(1e-8)),
    optional("weight_decay", Fallback::Number(0.01)),
    optional("clip", Fallback::Number(0.0)),
    optional("no_decay", Fallback::Empty),
];

/// `sgd(lr, momentum, nesterov, weight_decay, clip, no_decay)`,
/// `adamw(lr, beta1, beta2, epsilon, weight_decay, clip, no_decay)`.
const OPTIMIZERS: [Callee<Written, Vec<Mistake>>; 2] =
    [("sgd", SGD, sgd), ("adamw", ADAMW, adamw)];

/// An optimizer, and the patterns of what its weight decay spares.
type Written = (Optimizer, Vec<Pattern>);

/// One of the optimizers.
pub(super) fn optimizer(
    expression: &Expression,
    report: &mut Report,
) -> Known<(Optimizer, NoDecay)> {
    let (name, given) = called(expression, "an optimizer such as `adamw(1e-3)`", report)?;
    let span = expression.span;
    let (optimizer, patterns) =
        one_of("optimizer", &OPTIMIZERS, (&name, given), span, report)?;
    Ok((optimizer, NoDecay { patterns, span }))
}

fn common(
    method: Result<Method, Vec<Mistake>>,
    arguments: &Arguments,
) -> Result<Written, Vec<Mistake>> {
    let at_least_zero = |name| arguments.real_in(name, 0.0, f64::MAX);
    let bounds = both(at_least_zero("weight_decay"), at_least_zero("clip"));
    let method = both(method, learning_rate(arguments, "lr"));
    let written = both(both(method, bounds), spared(arguments));
    let (((method, rate), (weight_decay, clip)), patterns) = written?;
    Ok((Optimizer { method, rate, weight_decay, clip }, patterns))
}

fn spared(arguments: &Arguments) -> Result<Vec<Pattern>, Mistake> {
    let patterns = arguments.texts("no_decay")?;
    if patterns.len() > limit::PATTERNS {
        let message = format!("at most {} patterns can be given", limit::PATTERNS);
        return Err(Mistake::new(Code::Limit, message).argument("no_decay"));
    }
    Ok(patterns.into_iter().map(Pattern::new).collect())
}

fn sgd(arguments: &Arguments) -> Result<Written, Vec<Mistake>> {
    let momentum = both(arguments.share("momentum"), arguments.truth("nesterov"));
    let method = momentum.and_then(|(momentum, nesterov)| {
        if nesterov && momentum == 0.0 {
            let mistake = Mistake::new(Code::Value, "`nesterov` needs a momentum");
            let mistake = mistake.hint("write `momentum = 0.9`").argument("nesterov");
            return Err(mistake.into());
        }
        Ok(Method::Sgd { momentum, nesterov })
    });
    common(method, arguments)
}

fn adamw(arguments: &Arguments) -> Result<Written, Vec<Mistake>> {
    let betas = both(arguments.share("beta1"), arguments.share("beta2"));
    let constants = both(betas, arguments.above_zero("epsilon"));
    let method = constants.map(|((beta1, beta2), epsilon)| Method::Adamw {
        beta1,
        beta2,
        epsilon,
    });
    common(method, arguments)
}

const NOTHING: &[Formal] = &[];
const VALUE: &[Formal] = &[required("value")];
const STD: &[Formal] = &[required("std")];
const BOUND: &[Formal] = &[required("bound")];

/// `zeros()`, `ones()`, `constant(value)`, `normal(std)`, `uniform(bound)`.
const INITIALISERS: [Callee<Initial>; 5] = [
    ("zeros", NOTHING, |_| Ok(Initial::Constant(0.0))),
    ("ones", NOTHING, |_| Ok(Initial::Constant(1.0))),
    ("constant", VALUE, |arguments| {
        arguments.real_in("value", f64::MIN, f64::MAX).map(Initial::Constant)
    }),
    ("normal", STD, |arguments| {
        arguments.real_in("std", 0.0, f64::MAX).map(Initial::Normal)
    }),
    ("uniform", BOUND, |arguments| {
        arguments.real_in("bound", 0.0, f64::MAX).map(Initial::Uniform)
    }),
];

/// One of the initialisers.
pub(super) fn initial(expression: &Expression, report: &mut Report) -> Known<Initial> {
    let (name, given) =
        called(expression, "an initialiser such as `normal(0.02)`", report)?;
    one_of("initialiser", &INITIALISERS, (&name, given), expression.span, report)
}

/// The name and arguments of a call; a name alone is a call without arguments.
pub(super) fn called<'a>(
    expression: &'a Expression,
    expected: &str,
    report: &mut Report,
) -> Known<(Name, &'a [Argument])> {
    match &expression.kind {
        ExpressionKind::Call(name, given) => Ok((name.clone(), given)),
        ExpressionKind::Name(text) => {
            Ok((Name { text: text.clone(), span: expression.span }, &[]))
        }
        ExpressionKind::Chain(first, others) if is_hyphenated(first, others) => {
            let message = format!("expected {expected}; a `-` stands in none");
            let hint = format!("write `{}`", underscored(first, others));
            Err(report
                .error(expression.span, Mistake::new(Code::Type, message).hint(hint)))
        }
        ExpressionKind::Number(..)
        | ExpressionKind::Text(_)
        | ExpressionKind::Shape(_)
        | ExpressionKind::Index(..)
        | ExpressionKind::Negative(_)
        | ExpressionKind::Chain(..) => {
            let mistake = Mistake::new(Code::Type, format!("expected {expected}"));
            Err(report.error(expression.span, mistake))
        }
    }
}

/// Refuses arguments of a word that takes none.
pub(super) fn no_arguments(
    name: &Name,
    given: &[Argument],
    report: &mut Report,
) -> Known<()> {
    let Some(first) = given.first() else { return Ok(()) };
    let message = format!("`{}` takes no arguments", name.text);
    let mistake = Mistake::new(Code::Type, message);
    Err(report.error(place_of(first), mistake.hint(format!("write `{}`", name.text))))
}

/// Whether a difference is a name with `-` in place of `_`.
fn is_hyphenated(first: &Expression, others: &[(Operator, Expression)]) -> bool {
    let word = |one: &Expression| !written(one).is_empty();
    let joined =
        |(sign, one): &(Operator, Expression)| *sign == Operator::Subtract && word(one);
    matches!(first.kind, ExpressionKind::Name(_)) && others.iter().all(joined)
}

fn underscored(first: &Expression, others: &[(Operator, Expression)]) -> String {
    let others = others.iter().map(|(_, one)| written(one));
    [written(first)].into_iter().chain(others).collect::<Vec<_>>().join("_")
}

/// A name or a number as it is written; of others nothing.
fn written(expression: &Expression) -> &str {
    match &expression.kind {
        ExpressionKind::Name(text) | ExpressionKind::Number(text, None) => text,
        ExpressionKind::Number(_, Some(_))
        | ExpressionKind::Text(_)
        | ExpressionKind::Shape(_)
        | ExpressionKind::Call(..)
        | ExpressionKind::Index(..)
        | ExpressionKind::Negative(_)
        | ExpressionKind::Chain(..) => "",
    }
}

/// Spares the parameters that patterns name; those of heads when heads come to stand.
pub(super) fn spare(model: &mut Model, no_decay: &NoDecay) {
    model.parameters.iter_mut().for_each(|(_, own)| own.spare(&no_decay.patterns));
    model.spared.clone_from(&no_decay.patterns);
}

/// Refuses an optimizer that spares less than the one before: what a model spares by itself is not told
/// apart from what patterns named.
pub(super) fn keep_spared(
    model: &Model,
    no_decay: &NoDecay,
    report: &mut Report,
) -> Known<()> {
    let is_lost = |pattern: &&Pattern| !no_decay.patterns.contains(pattern);
    let Some(lost) = model.spared.iter().find(is_lost) else { return Ok(()) };
    let message = format!("weight decay would not spare `{lost}` any more");
    let all: Vec<String> =
        model.spared.iter().map(|pattern| format!("\"{pattern}\"")).collect();
    let hint = format!(
        "repeat `no_decay = [{}]`, or change the optimizer in the file",
        all.join(", ")
    );
    let mistake = Mistake::new(Code::Value, message);
    Err(report.error(no_decay.span, mistake.hint(hint)))
}

/// Every pattern names a parameter of the model under some rule that the program names, or that is
/// tried where it names none. Where no rule has a model, that is what is wrong.
pub(super) fn name_some(program: &Program, no_decay: &NoDecay, report: &mut Report) {
    for mistake in unnamed(program, &no_decay.patterns) {
        report.error(no_decay.span, mistake);
    }
}

/// The patterns that name nothing.
pub(super) fn unnamed(program: &Program, patterns: &[Pattern]) -> Vec<Mistake> {
    if patterns.is_empty() {
        return Vec::new();
    }
    let open = program.search.open_local_rules();
    let open = open.into_iter().map(|rule| program.under(rule));
    let models: Vec<_> = program.under_each().into_iter().chain(open).flatten().collect();
    if models.is_empty() {
        return Vec::new();
    }
    let parameters = models.iter().flat_map(|own| own.model.parameters.values());
    let names: BTreeSet<&str> =
        parameters.map(|parameter| parameter.name.as_str()).collect();
    let names_none = |pattern: &&Pattern| !names.iter().any(|name| pattern.matches(name));
    let mistake = |pattern: &Pattern| {
        let message = format!("no parameter matches `{pattern}`");
        let mistake = Mistake::new(Code::UnknownName, message);
        let mistake = mistake.near(&pattern.to_string(), names.iter().copied());
        mistake.hint("`*` stands for any text")
    };
    patterns.iter().filter(names_none).map(mistake).collect()
}
