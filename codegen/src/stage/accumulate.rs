//! Gradient sums: the first contribution writes, later ones add, in the order of the calls.

use super::{
    call::{Step, Tensor, Term, call},
    halves::{Made, is_parameter, made},
    hashed::{HashedMap, HashedSet},
};
use roundelay_dsl::{NodeId, Source};
use roundelay_kernels::Kernel;
use roundelay_schedule::Access;

/// The state of all gradient sums while the calls of a backward pass are laid down.
pub(crate) struct Accumulation {
    written: HashedSet<Source>,
    added: HashedSet<Source>,
    fixed: HashedSet<Source>,
    kept: HashedSet<NodeId>,
    holders: HashedMap<Source, Source>,
    detours: u32,
}

/// Where a gradient is kept that is whole.
pub(crate) enum Kept {
    /// Where its sum lies.
    InPlace(Tensor),
    /// Here, where it must be copied: its sum stands in a place of its own.
    Copied(Tensor),
}

impl Accumulation {
    /// Begins with the sums in `written` holding contributions from elsewhere. Sums in `fixed`
    /// have a place of their own, in an argument; all others live in workspace.
    pub(crate) fn new(written: HashedSet<Source>, fixed: HashedSet<Source>) -> Self {
        Self {
            written,
            added: HashedSet::default(),
            fixed,
            kept: HashedSet::default(),
            holders: HashedMap::default(),
            detours: 0,
        }
    }

    /// Lays down the backward calls of one node: every contribution becomes a write of a
    /// gradient or an addition to it.
    pub(crate) fn lay(&mut self, node: NodeId, steps: Vec<Step>) -> Vec<Step> {
        let last = steps.len().saturating_sub(1);
        let terms = steps.iter().flat_map(|step| &step.terms);
        self.added.extend(terms.filter_map(Term::contribution));
        let mut laid = Vec::with_capacity(steps.len());
        for (index, one) in made(steps).enumerate() {
            match index == last && self.hands_over(node, one.step()) {
                true => {}
                false => self.settle(node, one, &mut laid),
            }
        }
        laid
    }

    /// Keeps the gradient of a node, which is whole by now, as it is: its memory is not handed
    /// over.
    pub(crate) fn keep(&mut self, node: NodeId) -> Kept {
        let holder = self.holder(Source::Node(node));
        if self.fixed.contains(&holder) {
            return Kept::Copied(Tensor::Adjoint(node));
        }
        self.kept.insert(node);
        Kept::InPlace(Tensor::Gradient(holder))
    }

    /// Takes a sum as if nothing were in it.
    pub(crate) fn renew(&mut self, source: Source) {
        self.written.remove(&source);
    }

    /// Whether a contribution to this sum was laid down.
    pub(crate) fn added(&self, source: Source) -> bool {
        self.added.contains(&source)
    }

    /// A node's last call, if it only copies the node's gradient to a fresh sum in workspace,
    /// is not made: the sum goes on in the memory of the gradient, which nobody reads again.
    fn hands_over(&mut self, node: NodeId, step: &Step) -> bool {
        let own = Source::Node(node);
        let [Term { tensor: Tensor::Gradient(from), .. }, to] = &step.terms[..] else {
            return false;
        };
        let Tensor::Contribution(target) = to.tensor else { return false };
        let free = |source| !self.fixed.contains(&source);
        let fresh = !self.written.contains(&target);
        let kept = self.kept.contains(&node);
        let hands = step.kernel == "copy" && *from == own && free(own) && free(target);
        let hands = hands && !kept;
        if hands && fresh {
            self.written.insert(target);
            self.holders.insert(target, self.holder(own));
        }
        hands && fresh
    }

    fn holder(&self, source: Source) -> Source {
        self.holders.get(&source).copied().unwrap_or(source)
    }

    /// Contributions to sums that hold others are added by the kernel where it can do so, and
    /// take a detour through scratch where it cannot.
    fn settle(&mut self, node: NodeId, made: Made, laid: &mut Vec<Step>) {
        let again: Vec<bool> =
            made.step().terms.iter().map(|t| self.is_again(t)).collect();
        if made.step().kernel == "copy" && again.contains(&true) {
            laid.push(self.located(Step { kernel: "accumulate", ..made.into_step() }));
            return;
        }
        let (step, left) = adding(made, again);
        laid.extend(self.detoured(node, step, &left));
    }

    /// Whether a contribution finds others in its sum, which holds it from now on.
    fn is_again(&mut self, term: &Term) -> bool {
        term.contribution().is_some_and(|source| !self.written.insert(source))
    }

    /// A call whose contributions at some places are added behind it.
    fn detoured(&mut self, node: NodeId, mut step: Step, again: &[bool]) -> Vec<Step> {
        let mut additions = Vec::new();
        let terms = step.terms.iter_mut().zip(again);
        for (term, _) in terms.filter(|(_, again)| **again) {
            let detour = match term.contribution() {
                Some(Source::Node(value)) => Tensor::Detour(value, self.detours),
                _ => Tensor::ParameterDetour(node, self.detours),
            };
            self.detours += 1;
            let on_its_way = Term { tensor: detour, ..term.clone() };
            let target = std::mem::replace(term, on_its_way.clone());
            let addition = call("accumulate", [on_its_way, target]);
            additions.push(self.located(addition.of(step.strand)));
        }
        let mut steps = vec![self.located(step)];
        steps.append(&mut additions);
        steps
    }

    /// With every gradient and contribution named by the sum whose memory holds it.
    fn located(&self, step: Step) -> Step {
        let mut step = step;
        for term in &mut step.terms {
            if let Tensor::Gradient(source) | Tensor::Contribution(source) = term.tensor {
                term.tensor = Tensor::Gradient(self.holder(source));
            }
        }
        step
    }
}

/// A way in which kernels add to what stands in their results.
struct Adding {
    flag: &'static str,
    /// Whether what is added was whole and rounded before.
    is_whole: bool,
}

const WAYS: [Adding; 2] = [
    Adding { flag: "accumulate", is_whole: false },
    Adding { flag: "accumulate_sums", is_whole: true },
];

/// The call that adds to what stands in its sums, in each way in which all that the catalogue then
/// lets it add to are sums that hold something; and which of these are left. What is made aside is
/// whole before it is added, whoever adds it.
fn adding(made: Made, mut again: Vec<bool>) -> (Step, Vec<bool>) {
    let is_aside = matches!(made, Made::Aside(_));
    let mut step = made.into_step();
    let targets: Vec<Source> = step.terms.iter().filter_map(Term::contribution).collect();
    let is_alone = |source| targets.iter().filter(|other| **other == source).count() == 1;
    let mut added = Vec::new();
    for Adding { flag, is_whole } in WAYS {
        let adds = |place: &usize| {
            let term = &step.terms[*place];
            let splits = is_aside && !is_whole && is_parameter(term);
            again[*place] && !splits && term.contribution().is_some_and(is_alone)
        };
        let adding = again.contains(&true).then(|| step.clone().flag(flag));
        let Some((adding, mut places)) = adding.and_then(with_updated) else { continue };
        places.retain(|place| !added.contains(place));
        if places.iter().all(adds) {
            places.iter().for_each(|place| again[*place] = false);
            added.extend(places);
            step = adding;
        }
    }
    (step, again)
}

/// A call that the catalogue has, and at which places it updates what it is given.
fn with_updated(step: Step) -> Option<(Step, Vec<usize>)> {
    let kernel = Kernel::parse(&step.unplaced(|term| term.element)).ok()?;
    let accesses = kernel.accesses().iter().enumerate();
    let updated = accesses.filter(|(_, access)| **access == Access::Update);
    let places = updated.map(|(place, _)| place).collect();
    Some((step, places))
}

impl Term {
    fn contribution(&self) -> Option<Source> {
        match self.tensor {
            Tensor::Contribution(source) => Some(source),
            Tensor::Source(_)
            | Tensor::Auxiliary(..)
            | Tensor::Scratch(..)
            | Tensor::Unwanted(..)
            | Tensor::Aside(..)
            | Tensor::Adjoint(_)
            | Tensor::Again(..)
            | Tensor::Detour(..)
            | Tensor::ParameterDetour(..)
            | Tensor::Gradient(_)
            | Tensor::Gradients(..)
            | Tensor::Metric(_) => None,
        }
    }
}
