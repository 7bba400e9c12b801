//! When nothing fits: the binding constraint, and the smallest changes that make a plan fit.

use crate::{
    answer::{
        blame::blamed,
        repair::{Changes, Repair, changes},
    },
    search::ranking::{Options, Ranking},
    space::{
        Space,
        cuts::Messages,
        excluded::{Excluded, Sizes},
        outline::Outline,
        reason::Reason,
    },
};
use roundelay_dsl::{Mistake, Numbers, Program, Search};
use roundelay_schedule::{Exactness, PlanFault, Recompute, States};
use std::fmt;

/// Why no plan of the space fits, and what would make one fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// The constraint that the plans that came furthest do not meet.
    pub binding: String,
    /// Changes, each of which was planned with and suffices, the smallest first.
    pub repairs: Vec<Repair>,
    /// Changes that were not tried, because the search for them was cut short.
    pub untried: Box<[String]>,
    /// Changes whose lines cannot be set, each with the reason.
    pub mistaken: Box<[String]>,
    /// What was searched.
    pub searched: Searched,
    /// The keys of the lines of `plan` that may be to blame, the likeliest first.
    pub blamed: Box<[String]>,
}

/// How far a search went that found no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    /// Nothing was searched.
    Nothing,
    /// All was looked at: that no plan fits is proven.
    All,
    /// The limit was met before.
    Part {
        /// Plans that were clocked.
        clocked: usize,
        /// Plans that nobody looked at.
        unseen: usize,
    },
    /// The compiler made a schedule of a plan that the checker refuses, so the plan may fit.
    Unproven,
}

impl Refusal {
    /// The refusal of a program that does not say what its objective needs.
    pub(crate) fn lacking(mistake: &Mistake) -> Self {
        let said: Vec<&str> = [&mistake.message]
            .into_iter()
            .chain(&mistake.hints)
            .map(String::as_str)
            .collect();
        let blamed = ["minimize", "result"].map(str::to_owned).into();
        Self { blamed, ..Self::plain(said.join("; "), Searched::Nothing) }
    }

    /// A refusal for which no change was tried.
    fn plain(binding: String, searched: Searched) -> Self {
        Self {
            binding,
            repairs: Vec::new(),
            untried: Box::default(),
            mistaken: Box::default(),
            searched,
            blamed: Box::default(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binding = &self.binding;
        match self.searched {
            Searched::Unproven => return f.write_str(binding),
            Searched::Nothing => return write!(f, "no plan is looked for: {binding}"),
            Searched::All => write!(f, "no plan fits: {binding}")?,
            Searched::Part { clocked, unseen } => write!(
                f,
                "no plan was found that fits: {clocked} were clocked and {unseen} were not looked \
                 at, some of which may fit; of the others, {binding}"
            )?,
        }
        if !self.repairs.is_empty() {
            write!(
                f,
                "\n  each of these makes one fit, the smallest change first; the lines go into \
                 `plan {{ … }}` or behind `--set`, dotted ones behind `--set` only, each in \
                 place of what sets the same:"
            )?;
        }
        self.repairs.iter().try_for_each(|repair| write!(f, "\n  - {repair}"))?;
        let mut mistaken = self.mistaken.iter();
        mistaken.try_for_each(|change| write!(f, "\n  cannot be set: {change}"))?;
        match &self.untried[..] {
            [] if self.repairs.is_empty() => {
                write!(f, "\n  no change that was tried helps")
            }
            [] => Ok(()),
            untried => {
                write!(f, "\n  cut short before trying {}", untried.join(", "))
            }
        }
    }
}

/// The refusal of a program whose search came out empty.
pub(crate) fn refuse(program: &Program, options: &Options, ranking: &Ranking) -> Refusal {
    if let Some(unproven) = unproven(ranking) {
        return Refusal::plain(unproven, Searched::Unproven);
    }
    let Changes { repairs, mut untried, mistaken } = changes(program, options, ranking);
    let searched = match ranking.is_optimal() {
        true => Searched::All,
        false => {
            let limit = options.clocked_max;
            untried
                .insert(0, format!("every plan: {limit} of a class are clocked at most"));
            Searched::Part { clocked: ranking.clocked, unseen: ranking.left_open() }
        }
    };
    let furthest = furthest(program, ranking, &repairs);
    let reason = furthest.map(|excluded| &excluded.reason);
    let binding = binding(program, ranking, furthest)
        + &possible_depths(program)
        + &uncut(ranking, reason);
    let blamed = blamed(program, ranking, (reason, &repairs)).into();
    let (untried, mistaken) = (untried.into(), mistaken.into());
    Refusal { binding, repairs, untried, mistaken, searched, blamed }
}

/// What leaves few stages, where memory is what binds.
fn uncut(ranking: &Ranking, reason: Option<&Reason>) -> String {
    let tied = ranking.space.tied.as_ref();
    let tied = tied.filter(|_| matches!(reason, Some(Reason::Memory(_))));
    tied.map_or_else(String::new, |tied| format!("; {tied}"))
}

/// The depths that go with all other decisions, where the program allows none of them.
fn possible_depths(program: &Program) -> String {
    if program.search.depth == Numbers::Open {
        return String::new();
    }
    let mut open = program.clone();
    open.search.depth = Numbers::Open;
    let space = Space::new(&open);
    let depths = space.decisions.into_iter().find(|(name, _)| *name == "tensor.depth");
    let depth = &program.search.depth;
    let is_allowed = |own: &String| own.parse().is_ok_and(|own| depth.allows(own));
    match depths {
        Some((_, depths)) if !depths.is_empty() && !depths.iter().any(is_allowed) => {
            format!(
                "; values of tensor.depth that go with the rest: {}",
                depths.join(", ")
            )
        }
        _ => String::new(),
    }
}

/// What holds back the plans that came furthest.
fn binding(program: &Program, ranking: &Ranking, furthest: Option<&Excluded>) -> String {
    if let Some(outside) = outside(program) {
        return outside;
    }
    if let Some(weaker) = ranking.weaker.first() {
        return format!(
            "exactness: what fits is {}, the program allows {}",
            weaker.exactness, ranking.allowed
        );
    }
    match furthest {
        Some(excluded) => told(excluded),
        None if program.target.devices.is_empty() => {
            "devices: the cluster has none".to_owned()
        }
        None => "decisions: together they leave nothing to try, as `states hsdp` does where no \
                 number of shards splits the members into several groups"
            .to_owned(),
    }
}

/// What asks for more than the cluster has, whatever else is decided.
fn outside(program: &Program) -> Option<String> {
    let available = program.target.devices.len() as u64;
    let least = |numbers: &Numbers| match numbers {
        Numbers::Open => None,
        Numbers::Ranges(ranges) => ranges.iter().map(|(least, _)| *least).min(),
    };
    let Search { devices, first_device, .. } = &program.search;
    let many = least(devices).filter(|least| *least > available);
    let late = least(first_device).filter(|least| *least >= available);
    match (many, late) {
        _ if available == 0 => None,
        (Some(least), _) => Some(format!(
            "devices: the least that the program allows is {least}, the cluster has {available}"
        )),
        (None, Some(least)) => Some(format!(
            "first_device: the least that the program allows is {least}, the last of the \
             cluster is {}",
            available - 1
        )),
        (None, None) => None,
    }
}

/// Some plans that were excluded, and why.
fn told(Excluded { family, sizes, reason, .. }: &Excluded) -> String {
    let constraint = constraint(reason);
    match sizes {
        Sizes::All => format!("{constraint}: {family}: {reason}"),
        Sizes::One(counts) => format!("{constraint}: {family}, {counts}: {reason}"),
    }
}

/// A plan whose schedule the checker refuses, where there is one: of the others nobody knows what they
/// would have been.
pub(super) fn unproven(ranking: &Ranking) -> Option<String> {
    let is_unproven = |own: &&Excluded| matches!(own.reason, Reason::Unproven(_));
    ranking.space.excluded.iter().find(is_unproven).map(told)
}

/// Of the plans that were excluded one that came furthest; of those that came equally far one whose
/// exactness is allowed, for no memory would help another.
fn furthest<'a>(
    program: &Program,
    ranking: &'a Ranking,
    repairs: &[Repair],
) -> Option<&'a Excluded> {
    let Search { states, lists, .. } = &program.search;
    let divided = [States::Zero3, States::Hsdp].iter().any(|own| states.allows(own));
    let devices_help = repairs.iter().any(Repair::changes_devices);
    let way_off = |excluded: &&Excluded| match (&excluded.reason, excluded.sizes) {
        // Where other devices do not help, what has them and is refused says why; of several plans
        // the one on fewest devices has least that nobody asked for.
        (Reason::Refused(_), Sizes::One(counts)) if !devices_help => {
            (1, counts.devices(excluded.family, lists.len()).into())
        }
        // Nor do they give depth to states that have none.
        (Reason::OtherDepth { .. }, _) if !divided => (1, 0),
        (reason, _) => (phase(reason), reason.lacking()),
    };
    // Of plans that are equally far off, one on as many devices as the program asks for.
    let is_other = |excluded: &&Excluded| {
        matches!(excluded.reason, Reason::DevicesNotAllowed { .. })
    };
    let rank = |excluded: &&Excluded| {
        let (phase, missing) = way_off(excluded);
        let is_weaker = exactness(program, excluded) > ranking.allowed;
        (phase, is_weaker, missing, is_other(excluded))
    };
    ranking.space.excluded.iter().min_by_key(rank)
}

/// The class of an excluded plan; of several the strictest that its rule has.
fn exactness(program: &Program, excluded: &Excluded) -> Exactness {
    let family = excluded.family;
    match (&excluded.reason, excluded.sizes) {
        (Reason::Memory(_) | Reason::Endless(_), Sizes::One(counts)) => {
            let devices = counts.devices(family, program.search.lists.len());
            let recompute = Recompute::None;
            let messages = Messages::default();
            let outline = Outline { family, counts, messages, recompute, devices };
            outline.exactness(program)
        }
        _ => family.rule.exactness(),
    }
}

/// How many phases a plan that was excluded for this reason did not reach.
fn phase(reason: &Reason) -> u32 {
    match reason {
        Reason::Endless(_) | Reason::Memory(_) | Reason::Unproven(_) => 0,
        Reason::TooFewDevices { .. }
        | Reason::BehindTheLast { .. }
        | Reason::DevicesNotAllowed { .. } => 2,
        Reason::DelayTooShort { .. } => 3,
        Reason::Refused(_) | Reason::WrongLists(_) => 4,
        Reason::WrongCuts(_) | Reason::Uncuttable(_) | Reason::NoStage { .. } => 5,
        Reason::Indivisible { .. }
        | Reason::ManyMicroBatches { .. }
        | Reason::ManyLanes { .. }
        | Reason::TooLong { .. } => 6,
        Reason::Plan(PlanFault::SlicedTensor(_)) | Reason::Clash(_) => 8,
        Reason::Plan(_)
        | Reason::NotAsMany { .. }
        | Reason::OneWorker
        | Reason::OneReplica
        | Reason::MirroredReplicas
        | Reason::Misfit(_)
        | Reason::OtherDepth { .. }
        | Reason::OddHalves { .. } => 7,
        Reason::Equal(_) => 9,
    }
}

/// The constraint that a reason belongs to.
fn constraint(reason: &Reason) -> &'static str {
    match reason {
        Reason::Memory(_) => "memory",
        Reason::Endless(_) => "time",
        Reason::TooFewDevices { .. }
        | Reason::BehindTheLast { .. }
        | Reason::DevicesNotAllowed { .. } => "devices",
        Reason::DelayTooShort { .. }
        | Reason::Indivisible { .. }
        | Reason::ManyMicroBatches { .. }
        | Reason::ManyLanes { .. }
        | Reason::TooLong { .. }
        | Reason::OneWorker => "micro_batches",
        Reason::OneReplica | Reason::MirroredReplicas => "replicas",
        Reason::Misfit(_) | Reason::WrongLists(_) => "order",
        Reason::Plan(fault) => fault.decision(),
        Reason::OddHalves { .. } | Reason::OtherDepth { .. } => "tensor",
        Reason::WrongCuts(_) => "cuts",
        Reason::Uncuttable(_) | Reason::NoStage { .. } | Reason::NotAsMany { .. } => {
            "stages"
        }
        Reason::Clash(_) => "decisions that do not go together",
        Reason::Refused(_) | Reason::Equal(_) => "the model",
        Reason::Unproven(_) => "the compiler",
    }
}
