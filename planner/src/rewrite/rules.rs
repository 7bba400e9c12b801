//! The rules of lowering as equations between terms.
//!
//! A call is a term over the arrays that it reads; its operator is the kernel with its flags. A
//! call that makes several arrays is a term too, and each array a `result` of it. What moves
//! arrays between rows reads one more: along which extents.

use super::{Term, Terms};
use egg::{Applier, Id, MultiPattern, PatternAst, SearchMatches, Subst, Symbol, Var};
use roundelay_codegen::{CallPattern, FORMS, RewriteForm};

/// An equation, and the form of a rule that it is.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) form: &'static RewriteForm,
    pub(super) rewrite: egg::Rewrite<Term, ()>,
}

/// All rules.
pub(super) fn rules() -> Vec<Rule> {
    FORMS.iter().enumerate().map(rule).collect()
}

fn rule((number, form): (usize, &'static RewriteForm)) -> Rule {
    let [first, second] = &form.before;
    let left = format!("{}, {}", equations(first, "first"), equations(second, "second"));
    let right = equations(&form.after, "after");
    let [left, right] = [left, right].map(|text| {
        let parsed: MultiPattern<Term> = text.parse().expect("a rule is a pattern");
        parsed
    });
    let name = format!("{} {number}", form.rewrite);
    let rewrite = egg::Rewrite::new(name, left, Say(right));
    Rule { form, rewrite: rewrite.expect("a rule makes nothing from nowhere") }
}

/// Adds what a rule says. Patterns of several equations call every match news; here it is only
/// what the graph did not know, or it would never be saturated.
struct Say(MultiPattern<Term>);

impl Applier<Term, ()> for Say {
    fn apply_matches(
        &self,
        terms: &mut Terms,
        matches: &[SearchMatches<'_, Term>],
        name: Symbol,
    ) -> Vec<Id> {
        let size = |terms: &Terms| (terms.total_size(), terms.number_of_classes());
        let news = |found: &SearchMatches<'_, Term>| {
            let before = size(terms);
            self.0.apply_matches(terms, std::slice::from_ref(found), name);
            (size(terms) != before).then_some(found.eclass)
        };
        matches.iter().filter_map(news).collect()
    }

    fn apply_one(
        &self,
        terms: &mut Terms,
        class: Id,
        names: &Subst,
        left: Option<&PatternAst<Term>>,
        name: Symbol,
    ) -> Vec<Id> {
        self.0.apply_one(terms, class, names, left, name)
    }

    fn vars(&self) -> Vec<Var> {
        Applier::<Term, ()>::vars(&self.0)
    }
}

/// The kernels that move arrays between rows.
pub(super) const MOVES: [&str; 4] =
    ["all_gather", "all_reduce", "part", "reduce_scatter"];

/// The operator of a kernel with flags.
pub(super) fn operator<'a>(
    kernel: &str,
    flags: impl IntoIterator<Item = &'a str>,
) -> String {
    let mut flags: Vec<&str> = flags.into_iter().collect();
    flags.sort_unstable();
    [kernel].into_iter().chain(flags).collect::<Vec<_>>().join(".")
}

/// The operator of a line.
pub(super) fn operator_of(line: &CallPattern) -> String {
    operator(line.kernel, line.flags.iter().copied())
}

/// How many arrays calls with an operator make.
pub(super) fn results(operator: &str) -> usize {
    line_of(operator).map_or(1, |line| line.made.len())
}

/// Whether calls with an operator make their array where the last one lay that they read.
pub(super) fn is_in_place(operator: &str) -> bool {
    line_of(operator).is_some_and(CallPattern::is_in_place)
}

fn line_of(operator: &str) -> Option<&'static CallPattern> {
    let mut lines = FORMS.iter().flat_map(|form| form.before.iter().chain([&form.after]));
    lines.find(|line| operator_of(line) == operator)
}

/// How the operator begins that takes one of several results.
const RESULT: &str = "result";

/// The operator that takes one of several results.
pub(super) fn result(number: usize) -> String {
    format!("{RESULT}{number}")
}

/// Whether an operator takes one of several results.
pub(super) fn is_result(operator: &str) -> bool {
    operator.starts_with(RESULT)
}

fn equations(line: &CallPattern, call: &str) -> String {
    let read = line.read.iter().map(|name| format!("?{name}"));
    let along = MOVES.contains(&line.kernel).then(|| "?along".to_owned());
    let operands: Vec<String> = along.into_iter().chain(read).collect();
    let term = format!("({} {})", operator_of(line), operands.join(" "));
    match line.made {
        [one] => format!("?{one} = {term}"),
        several => {
            let each = several.iter().enumerate().map(|(number, name)| {
                format!(", ?{name} = ({} ?{call})", result(number))
            });
            format!("?{call} = {term}{}", each.collect::<String>())
        }
    }
}
