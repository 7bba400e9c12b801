//! Why a combination of decisions is no plan, as data and as a sentence.

use crate::space::{cuts::Uncuttable, equal::Superior, family::Clash};
use roundelay_schedule::{
    Bytes, DeviceId, Endless, Kind, LANES_MAX, MICRO_BATCHES_MAX, Misfit, PlanFault,
    Violations,
};
use std::fmt;

/// The most micro-batches times stages in one period: 64 stages on 8192 micro-batches. That makes
/// two million actions, which are lowered, checked and clocked in a few seconds and a gigabyte
/// (`cargo bench --bench lowering`); the checker takes twice as many.
pub(crate) const PASSES_MAX: u64 = 1 << 19;

/// Why a combination is no plan to try.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Decisions of a family that do not go together.
    Clash(Clash),
    /// Decisions of one plan that do not.
    Plan(PlanFault),
    /// N does not divide the batch.
    Indivisible {
        /// Examples of one training step.
        batch: u32,
    },
    /// No schedule has so many micro-batches.
    ManyMicroBatches {
        /// N.
        micro_batches: u32,
    },
    /// No device has so many lanes, one for each micro-batch.
    ManyLanes {
        /// N.
        micro_batches: u32,
    },
    /// One period would hold too many passes to be worth a schedule.
    TooLong {
        /// N · S · k.
        passes: u64,
        /// How many it may hold.
        most: u64,
    },
    /// So many stages are tried with as many micro-batches, for nobody names them.
    NotAsMany {
        /// S.
        stages: u32,
    },
    /// The placement spreads over workers, and there is one.
    OneWorker,
    /// The order is not defined for these numbers.
    Misfit(Misfit),
    /// Replicas of two pipelines in opposite directions.
    MirroredReplicas,
    /// States that are split over replicas, and there is one.
    OneReplica,
    /// A micro-batch of an odd number of examples has no halves.
    OddHalves {
        /// Its examples.
        examples: u32,
    },
    /// Parameters are divided among another number of members than the program allows.
    OtherDepth {
        /// Their number.
        depth: u32,
    },
    /// The cluster has fewer devices than the plan takes.
    TooFewDevices {
        /// What it takes.
        needed: u32,
        /// What there is.
        available: u32,
    },
    /// The devices from a pinned first one on go past the last of the cluster.
    BehindTheLast {
        /// How many devices there would have to be.
        end: u32,
        /// What there is.
        available: u32,
    },
    /// The program allows other numbers of devices.
    DevicesNotAllowed {
        /// What it takes.
        needed: u32,
        /// What is allowed and nearest to that.
        nearest: u32,
        /// What there is.
        available: u32,
    },
    /// One update of delay does not suffice without a flush.
    DelayTooShort {
        /// The least N.
        least: u32,
    },
    /// The model has no such cuts.
    Uncuttable(Uncuttable),
    /// The pinned cuts are no cuts of this model.
    WrongCuts(String),
    /// The lists do not go with the numbers.
    WrongLists(String),
    /// Another plan of the space is the same or never worse; which, and why.
    Equal(Superior),
    /// A device or pool is too small.
    Memory(Shortfall),
    /// It takes longer than can be counted.
    Endless(Endless),
    /// A stage is pinned that the plan does not have.
    NoStage {
        /// The stage, counted from zero.
        stage: u32,
    },
    /// The compiler refuses it.
    Refused(String),
    /// The compiler made a schedule of it that the checker refuses for this.
    Unproven(Unproven),
}

/// What the checker finds in a schedule that the compiler made, which is a fault of the compiler. The message
/// ends with the hint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is a fault of Roundelay and of no program: the checker refuses the schedule that the \
     compiler made, for {found}; {}",
    Self::HINT
)]
pub struct Unproven {
    found: String,
}

impl Unproven {
    /// What to do about it.
    pub const HINT: &str = "please report it with the program and the command";

    /// A fault of the compiler, unless what it was told to make is beyond limits.
    pub fn of(violations: &Violations) -> Option<Self> {
        let first = violations.first();
        let found = match violations.total() - 1 {
            0 => first.to_string(),
            more => format!("{first}, and {more} more"),
        };
        (!violations.exceed_limits()).then_some(Self { found })
    }
}

/// How much memory is missing, at the place where most is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// What the plan takes there, at least.
    pub needed: Bytes,
    /// What there is.
    pub capacity: Bytes,
    /// Where.
    pub place: Shortage,
    /// The kind that takes most there.
    pub kind: Kind,
}

/// Where memory is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// On a device.
    Device(DeviceId, String),
    /// In a pool that devices share; its name.
    Pool(String),
}

impl From<PlanFault> for Reason {
    fn from(fault: PlanFault) -> Self {
        Self::Plan(fault)
    }
}

impl Reason {
    /// The compiler refuses it with these words.
    pub(crate) fn refused(words: impl fmt::Display) -> Self {
        Self::Refused(words.to_string())
    }

    /// The checker refuses the schedule that the compiler made.
    pub(crate) fn unproven(violations: &Violations) -> Self {
        match Unproven::of(violations) {
            Some(unproven) => Self::Unproven(unproven),
            None => Self::refused(format!("the checker finds: {}", violations.first())),
        }
    }

    /// Its name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Reason::Clash(_) => "clash",
            Reason::Plan(fault) => fault.name(),
            Reason::Indivisible { .. } => "indivisible_batch",
            Reason::ManyMicroBatches { .. } => "too_many_micro_batches",
            Reason::ManyLanes { .. } => "too_many_lanes",
            Reason::TooLong { .. } => "too_many_passes",
            Reason::NotAsMany { .. } => "not_as_many_stages",
            Reason::OneWorker => "one_worker",
            Reason::Misfit(_) => "order_not_defined",
            Reason::MirroredReplicas => "mirrored_replicas",
            Reason::OneReplica => "one_replica",
            Reason::OtherDepth { .. } => "other_depth",
            Reason::OddHalves { .. } => "odd_halves",
            Reason::TooFewDevices { .. } => "too_few_devices",
            Reason::BehindTheLast { .. } => "behind_the_last_device",
            Reason::DevicesNotAllowed { .. } => "devices_not_allowed",
            Reason::DelayTooShort { .. } => "delay_too_short",
            Reason::Uncuttable(_) => "uncuttable",
            Reason::WrongCuts(_) => "wrong_cuts",
            Reason::WrongLists(_) => "wrong_lists",
            Reason::Equal(_) => "same_or_never_better",
            Reason::Memory(_) => "memory",
            Reason::Endless(_) => "endless",
            Reason::NoStage { .. } => "no_such_stage",
            Reason::Refused(_) => "refused",
            Reason::Unproven(_) => "unproven",
        }
    }

    /// How far a combination with this reason is from being a plan, beside others with the same;
    /// less is nearer.
    pub(crate) fn lacking(&self) -> u64 {
        match self {
            Reason::Memory(short) => short.missing().0,
            Reason::TooFewDevices { needed, available }
            | Reason::BehindTheLast { end: needed, available } => {
                needed.saturating_sub(*available).into()
            }
            Reason::DevicesNotAllowed { needed, nearest, .. } => {
                needed.abs_diff(*nearest).into()
            }
            Reason::DelayTooShort { least } => (*least).into(),
            Reason::ManyMicroBatches { micro_batches }
            | Reason::ManyLanes { micro_batches } => (*micro_batches).into(),
            Reason::TooLong { passes, .. } => *passes,
            // Further than any fault of one plan.
            Reason::Clash(_) => 1,
            Reason::Plan(_)
            | Reason::Indivisible { .. }
            | Reason::NotAsMany { .. }
            | Reason::OneWorker
            | Reason::Misfit(_)
            | Reason::MirroredReplicas
            | Reason::OneReplica
            | Reason::OddHalves { .. }
            | Reason::OtherDepth { .. }
            | Reason::Uncuttable(_)
            | Reason::WrongCuts(_)
            | Reason::WrongLists(_)
            | Reason::Equal(_)
            | Reason::Endless(_)
            | Reason::NoStage { .. }
            | Reason::Refused(_)
            | Reason::Unproven(_) => 0,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Clash(clash) => write!(f, "{clash}"),
            Reason::Plan(fault) => write!(f, "{fault}"),
            Reason::Indivisible { batch } => write!(
                f,
                "the batch of {batch} does not divide into micro-batches of one size"
            ),
            Reason::ManyMicroBatches { micro_batches } => write!(
                f,
                "{micro_batches} micro-batches of a replica, at most {MICRO_BATCHES_MAX} are \
                 planned"
            ),
            Reason::ManyLanes { micro_batches } => write!(
                f,
                "{micro_batches} micro-batches that take turns on one device, each in its own \
                 lane, at most {LANES_MAX} are planned"
            ),
            Reason::TooLong { passes, most } => too_long(f, *passes, *most),
            Reason::NotAsMany { stages } => {
                write!(
                    f,
                    "{stages} stages go with as many micro-batches unless `stages` is set"
                )
            }
            Reason::OneWorker => f.write_str(
                "placement data needs at least two workers, that is, micro-batches",
            ),
            Reason::Misfit(misfit) => write!(f, "{misfit}"),
            Reason::MirroredReplicas => {
                f.write_str("two pipelines in opposite directions have no replicas")
            }
            Reason::OneReplica => {
                f.write_str("with one replica nothing is split: use states replicated")
            }
            Reason::OddHalves { examples } => odd_halves(f, *examples),
            Reason::OtherDepth { depth } => write!(
                f,
                "parameters have a depth of {depth}, which the program does not allow: it is \
                 that of all replicas under states zero3, the number of shards under hsdp, else 1"
            ),
            Reason::TooFewDevices { needed, available } => {
                write!(f, "it needs {needed} devices, the cluster has {available}")
            }
            Reason::BehindTheLast { end, available } => write!(
                f,
                "its devices would end at number {end}, the cluster has {available}"
            ),
            Reason::DevicesNotAllowed { needed, nearest, available } => write!(
                f,
                "its number of devices is {needed}, the nearest that the program allows is \
                 {nearest}, and the cluster has {available}"
            ),
            Reason::DelayTooShort { least } => write!(
                f,
                "one update of delay needs at least {least} micro-batches in this pipeline"
            ),
            Reason::Uncuttable(uncuttable) => write!(f, "{uncuttable}"),
            Reason::NoStage { stage } => {
                write!(f, "the program pins stage {stage}, which is not there")
            }
            Reason::WrongCuts(text)
            | Reason::WrongLists(text)
            | Reason::Refused(text) => f.write_str(text),
            Reason::Equal(superior) => write!(f, "{superior}"),
            Reason::Memory(shortfall) => write!(f, "{shortfall}"),
            Reason::Endless(endless) => write!(f, "{endless}"),
            Reason::Unproven(unproven) => write!(f, "{unproven}"),
        }
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, capacity, place, kind } = self;
        let place = match place {
            Shortage::Device(_, name) => format!("device {name}"),
            Shortage::Pool(name) => format!("memory {name}"),
        };
        write!(
            f,
            "{place} needs at least {needed} of {capacity}: {} are missing, most is {kind}",
            self.missing()
        )
    }
}

fn odd_halves(f: &mut fmt::Formatter<'_>, examples: u32) -> fmt::Result {
    write!(
        f,
        "micro-batches of {examples} examples have no halves that take turns: let there be \
         fewer micro-batches or replicas, or set `tensor {{ overdecompose 1 }}`"
    )
}

fn too_long(f: &mut fmt::Formatter<'_>, passes: u64, most: u64) -> fmt::Result {
    write!(
        f,
        "micro-batches times stages times slices are {passes} passes in one period, at \
         most {most} are planned"
    )
}
