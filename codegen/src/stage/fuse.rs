//! Neighbouring calls that one kernel does in one pass over memory, or that need no more than one
//! exchange: the rules of [`crate::FORMS`], applied where a [`LoweringChoice`] says so and they fit.
//!
//! No rule changes a bit: what fused kernels compute is defined as the kernels one by one.
//! Nothing is kept that was not kept before; a tensor that only went from the one call to the
//! other is not made any more. A call that does two joins what stands before it in turn, so a
//! product grows into an affine map, and that into one with an activation. Two that read one
//! gradient are one call where both write sums, or both add to them.

use self::past::past_copies;
use super::{
    call::{Step, Tensor, Term},
    hashed::HashedMap,
};
use crate::{
    rewrite::{ArrayUse, CallPattern, FORMS, LoweringChoice, Neighbour, RewriteForm},
    tensor::Strand,
};
use roundelay_dsl::{NodeId, Source};
use roundelay_kernels::Kernel;
use roundelay_schedule::{
    Attribute, Attributes, Constants, Extents, Id, Rewrite, Rewrites,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::OnceLock,
};

/// Where rules are applied in the stages of a model, and where they were.
pub(crate) struct Rewriting<'a> {
    choice: &'a dyn LoweringChoice,
    /// The operation of the whole model that each of the graph belongs to; itself where none is
    /// said.
    origin: Option<&'a [NodeId]>,
    done: RefCell<Rewrites>,
}

impl<'a> Rewriting<'a> {
    pub(crate) fn new(
        choice: &'a dyn LoweringChoice,
        origin: Option<&'a [NodeId]>,
    ) -> Self {
        Self { choice, origin, done: RefCell::default() }
    }

    /// What was rewritten so far.
    pub(crate) fn all_done(&self) -> Rewrites {
        self.done.borrow().clone()
    }

    fn done(&self, rewrite: Rewrite, site: Option<u32>) {
        let site = site.expect("the second of two calls stands for an operation");
        self.done.borrow_mut().insert(rewrite, site);
    }

    /// The number of the operation of the whole model to which a call belongs.
    fn site(&self, step: &Step) -> Option<u32> {
        let whole =
            |node: NodeId| self.origin.map_or(node, |origin| origin[node.index()]);
        step.node.map(|node| whole(node).number())
    }
}

/// A call of a pass, and the node that it completes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Made<N> {
    /// The node.
    pub(crate) node: N,
    /// The call.
    pub(crate) step: Step,
    /// The calls of nodes before it that it does as well, each with those before.
    pub(crate) contains: Vec<(N, Step)>,
}

/// Rewrites a pass. `kept` says of a tensor that it outlives the pass.
pub(crate) fn fuse(
    steps: Vec<Step>,
    rewriting: &Rewriting<'_>,
    kept: impl Fn(Tensor) -> bool,
) -> Vec<Step> {
    let steps = steps.into_iter().map(|step| ((), step)).collect();
    let made = fuse_nodes(steps, rewriting, kept);
    made.into_iter().map(|made| made.step).collect()
}

/// As [`fuse`], and says which calls of which nodes went together.
pub(crate) fn fuse_nodes<N: Copy + PartialEq>(
    steps: Vec<(N, Step)>,
    rewriting: &Rewriting<'_>,
    kept: impl Fn(Tensor) -> bool,
) -> Vec<Made<N>> {
    let steps = past_copies(steps);
    let runs = runs(&steps);
    let mut touched = Touched::new(&steps, &runs);
    let chosen = chosen(&steps, runs, rewriting, &touched, &kept);
    let mut fused: Vec<Made<N>> = Vec::with_capacity(steps.len());
    for (place, (node, step)) in steps.into_iter().enumerate() {
        let wanted = chosen.get(&place).map(Vec::as_slice).unwrap_or_default();
        let site = rewriting.site(&step);
        let mut made = Made { node, step, contains: vec![] };
        while let Some(before) = fused.pop_if(|_| !wanted.is_empty()) {
            let pair = [&before.step, &made.step];
            let private = |tensor| !kept(tensor) && !touched.besides(tensor, &pair);
            let Some((rewrite, step)) = both(pair, wanted, &private) else {
                fused.push(before);
                break;
            };
            rewriting.done(rewrite, site);
            touched.replace(pair, &step);
            let mut contains = before.contains;
            if before.node != made.node {
                contains.push((before.node, before.step));
            }
            made = Made { node: made.node, step, contains };
        }
        fused.push(made);
    }
    fused
}

/// The rules that are wanted, by the place of the call that comes second.
fn chosen<N>(
    steps: &[(N, Step)],
    runs: Vec<Range<usize>>,
    rewriting: &Rewriting<'_>,
    touched: &Touched,
    kept: &impl Fn(Tensor) -> bool,
) -> BTreeMap<usize, Vec<Rewrite>> {
    let mut chosen: BTreeMap<usize, Vec<Rewrite>> = BTreeMap::new();
    for run in runs {
        let own: Vec<&Step> = steps[run.clone()].iter().map(|(_, step)| step).collect();
        let neighbours = neighbours(&own, rewriting, touched, kept);
        for (place, rewrite) in rewriting.choice.choose(&neighbours) {
            chosen.entry(run.start + place).or_default().push(rewrite);
        }
    }
    chosen
}

/// The calls that rules may join: from the second on each stands for an operation, and reads or
/// writes a tensor of the one before.
fn runs<N>(steps: &[(N, Step)]) -> Vec<Range<usize>> {
    let Kernels { first, second } = kernels();
    let step = |place: usize| &steps[place].1;
    let joins = |place: usize| {
        let [before, step] = [step(place - 1), step(place)];
        let mut terms = step.terms.iter();
        step.node.is_some()
            && second.contains(&step.kernel)
            && terms.any(|term| touches(before, term.tensor))
    };
    let mut runs = Vec::new();
    let mut start = 0;
    while start < steps.len() {
        let mut end = start + 1;
        if first.contains(&step(start).kernel) {
            while end < steps.len() && joins(end) {
                end += 1;
            }
        }
        if end > start + 1 {
            runs.push(start..end);
        }
        start = end;
    }
    runs
}

/// The kernels of the calls that come first and second in rules.
struct Kernels {
    first: BTreeSet<&'static str>,
    second: BTreeSet<&'static str>,
}

fn kernels() -> &'static Kernels {
    static KERNELS: OnceLock<Kernels> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let of =
            |place: usize| FORMS.iter().map(|form| form.before[place].kernel).collect();
        Kernels { first: of(0), second: of(1) }
    })
}

fn touches(step: &Step, tensor: Tensor) -> bool {
    step.terms.iter().any(|term| term.tensor == tensor)
}

fn neighbours<'a>(
    steps: &[&'a Step],
    rewriting: &Rewriting<'_>,
    touched: &Touched,
    kept: &impl Fn(Tensor) -> bool,
) -> Vec<Neighbour<'a>> {
    let mut arrays: Vec<(Tensor, bool)> = Vec::new();
    let mut place = |term: &'a Term| {
        let known = arrays.iter().position(|(tensor, _)| *tensor == term.tensor);
        let number = known.unwrap_or_else(|| {
            let is_shared = kept(term.tensor) || touched.besides(term.tensor, steps);
            arrays.push((term.tensor, is_shared));
            arrays.len() - 1
        });
        let array = u32::try_from(number).expect("a few calls work on few arrays");
        ArrayUse { array, shape: &term.shape, is_shared: arrays[number].1 }
    };
    let mut neighbour = |step: &&'a Step| Neighbour {
        site: rewriting.site(step),
        kernel: step.kernel,
        attributes: &step.attributes,
        operands: step.terms.iter().map(&mut place).collect(),
    };
    steps.iter().map(&mut neighbour).collect()
}

/// How many calls of a pass touch each tensor that calls touch which rules may join.
struct Touched(HashedMap<Tensor, usize>);

impl Touched {
    fn new<N>(steps: &[(N, Step)], runs: &[Range<usize>]) -> Self {
        let joined = runs.iter().flat_map(|run| &steps[run.clone()]);
        let terms = joined.flat_map(|(_, step)| &step.terms);
        let mut touched = Self(terms.map(|term| (term.tensor, 0)).collect());
        if !touched.0.is_empty() {
            steps.iter().for_each(|(_, step)| touched.count(step, |count| count + 1));
        }
        touched
    }

    /// Counts each tensor of a call once.
    fn count(&mut self, step: &Step, change: impl Fn(usize) -> usize) {
        for (place, term) in step.terms.iter().enumerate() {
            let again = step.terms[..place].iter().any(|t| t.tensor == term.tensor);
            if let (false, Some(count)) = (again, self.0.get_mut(&term.tensor)) {
                *count = change(*count);
            }
        }
    }

    /// Whether any call besides some touches a tensor.
    fn besides(&self, tensor: Tensor, steps: &[&Step]) -> bool {
        let own = steps.iter().filter(|step| touches(step, tensor)).count();
        self.0.get(&tensor).is_some_and(|all| *all > own)
    }

    /// One call takes the place of two.
    fn replace(&mut self, pair: [&Step; 2], step: &Step) {
        pair.into_iter().for_each(|one| self.count(one, |count| count - 1));
        self.count(step, |count| count + 1);
    }
}

/// The one call for two neighbours, if a rule that is wanted fits.
fn both(
    pair: [&Step; 2],
    wanted: &[Rewrite],
    private: &dyn Fn(Tensor) -> bool,
) -> Option<(Rewrite, Step)> {
    let kernels = pair.map(|step| step.kernel);
    let known =
        FORMS.iter().filter(|form| form.before.map(|line| line.kernel) == kernels);
    let mut forms = known.filter(|form| wanted.contains(&form.rewrite));
    forms.find_map(|form| Some((form.rewrite, apply(form, pair, private)?)))
}

/// The tensors that go by the names of a rule.
type Names = BTreeMap<&'static str, Term>;

/// The call that a rule has for two.
fn apply(
    form: &RewriteForm,
    [first, second]: [&Step; 2],
    private: &dyn Fn(Tensor) -> bool,
) -> Option<Step> {
    let mut names = Names::new();
    let own = bind(&form.before[0], first, &mut names)?;
    let more = bind(&form.before[1], second, &mut names)?;
    let Some(between) = form.between() else {
        let fits = own == more
            && read_alike([first, second], &names)
            && are_of_one_type(&form.after, &names);
        let both = after(&form.after, &names, more, second.strand);
        return (fits && is_call(&both)).then_some(both);
    };
    let both_cut = [first, second].iter().all(|step| CUT.contains(&step.kernel));
    if more.contains_key(ACCUMULATE) && WRITING.contains(&form.after.kernel) {
        return None;
    }
    let constants = |all: &Attributes| {
        let mut rest = all.clone();
        rest.retain(|name, _| !ADDING.contains(&&**name));
        rest.retain(|name, _| both_cut || name != INNER);
        rest
    };
    if own.contains_key(ACCUMULATE) || constants(&own) != constants(&more) {
        return None;
    }
    let between = names[between].clone();
    if !own.is_empty() && seen(&between, second) != Some(&between.shape) {
        return None;
    }
    if !hands_over(form, &between, &names) {
        return None;
    }
    let made = |name: &&str| names.get(name).map(|term| term.tensor);
    let still = form.after.made.iter().filter_map(made).any(|t| t == between.tensor);
    if !still && !private(between.tensor) {
        return None;
    }
    reshape(form, (&between, second), &mut names)?;
    let both = after(&form.after, &names, more, second.strand);
    // A view between the two may leave other rows than the one call takes.
    is_call(&both).then_some(both)
}

/// Whether nothing else that the calls of a rule touch is the tensor that goes from one to the other.
fn hands_over(form: &RewriteForm, between: &Term, names: &Names) -> bool {
    let own_names = 1 + usize::from(form.before[1].is_in_place());
    let all = names.values().filter(|term| term.tensor == between.tensor);
    all.count() == own_names
}

/// Whether two calls see what both touch in one shape, and nothing else that has a name of its own is
/// the same tensor: so neither touches what the other makes.
fn read_alike([first, second]: [&Step; 2], names: &Names) -> bool {
    let alike = |term: &Term| seen(term, second).is_none_or(|shape| *shape == term.shape);
    let tensors: BTreeSet<Tensor> = names.values().map(|term| term.tensor).collect();
    first.terms.iter().all(alike) && tensors.len() == names.len()
}

/// Whether all that a line makes are gradients of parameters, which are kept in a type of their own, or
/// nothing is.
fn are_of_one_type(line: &CallPattern, names: &Names) -> bool {
    let is_sum = |name: &&str| {
        matches!(
            names[*name].tensor,
            Tensor::Gradient(Source::Parameter(_))
                | Tensor::Aside(..)
                | Tensor::ParameterDetour(..)
        )
    };
    let sums = line.made.iter().filter(|name| is_sum(name)).count();
    sums == 0 || sums == line.made.len()
}

/// Whether the catalogue has a call.
fn is_call(step: &Step) -> bool {
    Kernel::parse(&step.unplaced(|term| term.element)).is_ok()
}

const ACCUMULATE: &str = "accumulate";

/// What says of a call that it adds to something.
const ADDING: [&str; 2] = [ACCUMULATE, "accumulate_sums"];

/// Kernels of rules that cannot add what they make to what is there.
const WRITING: [&str; 1] = ["matmul_gelu_tanh_backward"];

/// How many columns stay together where an array is cut into parts, and the kernels that cut.
const INNER: &str = "inner";
const CUT: [&str; 3] = ["all_gather", "part", "reduce_scatter"];

/// Gives the tensors of a call the names of a line; what it has besides the line's flags.
fn bind(line: &CallPattern, step: &Step, names: &mut Names) -> Option<Attributes> {
    let mut rest = (*step.attributes).clone();
    for flag in line.flags {
        rest.remove(*flag).filter(|value| *value == Attribute::Flag(true))?;
    }
    let operands: Vec<&str> = line.operands().collect();
    if operands.len() != step.terms.len() {
        return None;
    }
    for (name, term) in operands.into_iter().zip(&step.terms) {
        let bound = names.entry(name).or_insert_with(|| term.clone());
        if bound.tensor != term.tensor {
            return None;
        }
    }
    if line.is_in_place() {
        let place = step.terms.last()?;
        names.extend(line.made.iter().map(|name| (*name, place.clone())));
    }
    Some(rest)
}

/// The shape in which a call sees a tensor.
fn seen<'a>(term: &Term, step: &'a Step) -> Option<&'a Extents> {
    let found = step.terms.iter().find(|other| other.tensor == term.tensor);
    found.map(|term| &term.shape)
}

/// Gives what must be alike the shape of the tensor between the calls, as a matrix where one of
/// them sees it so.
fn reshape(
    form: &RewriteForm,
    (between, second): (&Term, &Step),
    names: &mut Names,
) -> Option<()> {
    let shapes = [Some(&between.shape), seen(between, second)].into_iter().flatten();
    let shape = shapes.min_by_key(|shape| shape.len())?.clone();
    for name in form.alike {
        let term = names.get_mut(name)?;
        if term.elements() != between.elements() {
            return None;
        }
        term.shape.clone_from(&shape);
    }
    Some(())
}

/// The call of a line; `rest` is what it has besides the line's flags.
fn after(line: &CallPattern, names: &Names, rest: Attributes, strand: Strand) -> Step {
    let terms = line.operands().map(|name| names[name].clone()).collect();
    let mut attributes = rest;
    let flags = line.flags.iter().map(|flag| ((*flag).into(), Attribute::Flag(true)));
    attributes.extend(flags);
    if !CUT.contains(&line.kernel) {
        attributes.remove(INNER);
    }
    if line.kernel != "copy" {
        let attributes = Constants::from(attributes);
        return Step { kernel: line.kernel, attributes, terms, node: None, strand };
    }
    // What is there already needs no other rows.
    let kernel = match attributes.contains_key(ACCUMULATE) {
        true => "accumulate",
        false => "copy",
    };
    Step { kernel, attributes: Constants::default(), terms, node: None, strand }
}

mod past;
#[cfg(test)]
mod tests;
