//! The numbers of stages that are tried.

use super::{
    SMALL,
    numbers::{Fitting, Known, divisors_of, number, powers_of_two, sorted},
};
use crate::space::reason::Reason;
use roundelay_dsl::{Numbers, Program};
use roundelay_schedule::Hop;

/// Numbers of stages that are left open are at most this many, or one for each device, times the
/// chunks that are named.
const OPEN_STAGES: u64 = 64;
/// Numbers of stages that are left open keep N · S at or below this, or S at one per unit: more passes
/// in one period are tried only when the program asks for them.
const OPEN_PASSES: u64 = 8192;

/// What numbers of stages are chosen by.
#[derive(Clone, Copy)]
pub(super) struct Others<'a> {
    pub devices: u64,
    /// N to try.
    pub micro_batches: &'a [u32],
    /// Stages on one device that are named.
    pub chunks: &'a [u32],
}

/// Numbers of stages, the same with every N: what is listed is tried, or counted with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stages {
    Open {
        tried: Vec<u32>,
        /// Those among them that are numbers of micro-batches and nothing else.
        as_many: Vec<u32>,
        /// Units of a local rule are whole stages.
        units: u32,
    },
    Listed(Vec<u32>),
}

impl Stages {
    /// Those of a program whose other numbers are these.
    pub(super) fn new(program: &Program, others: Others<'_>) -> Self {
        let asked = program.search.stages_to_try();
        // Other stages than those that pinned cuts make are refused by the law of cuts.
        let made = program.search.cuts.as_ref().map(|cuts| cuts.len() as u64 + 1);
        match (made.filter(|made| asked.allows(*made)), asked) {
            (Some(made), _) => Self::Listed(vec![number(made)]),
            (None, Numbers::Open) => Self::open(program, others),
            (None, asked @ Numbers::Ranges(_)) => {
                Self::Listed(known(program, others).tried(&asked))
            }
        }
    }

    fn open(program: &Program, others: Others<'_>) -> Self {
        let usual = usual(program, others);
        let tried = known(program, others).open;
        let is_usual = |stages: &u32| usual.binary_search(stages).is_ok();
        let as_many = tried.iter().copied().filter(|s| !is_usual(s)).collect();
        Self::Open { tried, as_many, units: number(units(program)) }
    }

    pub(super) fn tried(&self) -> &[u32] {
        match self {
            Self::Listed(values) | Self::Open { tried: values, .. } => values,
        }
    }

    /// Whether this many stages are tried with N micro-batches, if they are at all.
    ///
    /// # Errors
    /// Why they are not.
    pub(super) fn check(&self, micro_batches: u32, stages: u32) -> Result<(), Reason> {
        let Self::Open { units, as_many, .. } = self else { return Ok(()) };
        let passes = u64::from(micro_batches) * u64::from(stages);
        if stages > *units && passes > OPEN_PASSES {
            return Err(Reason::TooLong { passes, most: OPEN_PASSES });
        }
        match stages != micro_batches && as_many.binary_search(&stages).is_ok() {
            true => Err(Reason::NotAsMany { stages }),
            false => Ok(()),
        }
    }
}

/// Units of the model, each of which is one stage at least.
fn units(program: &Program) -> u64 {
    program.model.boundaries().len() as u64 + 1
}

/// The most stages that a model has: one per node.
fn most(program: &Program) -> u64 {
    (program.model.cuttable() as u64).max(1)
}

/// What is known of numbers of stages; open ones are usual, or as many as micro-batches.
pub(super) fn known(program: &Program, others: Others<'_>) -> Known {
    let (least, most) = (units(program), most(program));
    let usual = usual(program, others).into_iter();
    let open = match program.model.hop() {
        Hop::None => usual.chain(others.micro_batches.iter().copied()).collect(),
        Hop::Added | Hop::Alone => usual.collect::<Vec<u32>>(),
    };
    let lawful = |stages: &u64| (least..=most).contains(stages) || *stages == least;
    let open = sorted(open.into_iter().map(u64::from).filter(lawful));
    Known { within: 1..=most, fitting: Fitting::All, open }
}

/// Numbers of stages that are tried with every N where nobody names any, from one per unit to one per
/// node at most. Replicas, rows and columns leave a part of the devices to stages, each of which may
/// have two of them.
fn usual(program: &Program, Others { devices, chunks, .. }: Others<'_>) -> Vec<u32> {
    let units = units(program);
    if program.model.hop() != Hop::None {
        return vec![number(units)];
    }
    let most_open = devices.max(OPEN_STAGES);
    let parts = || divisors_of(devices).flat_map(|part| [part, 2 * part]);
    let room = || beside(devices, program.train.batch.into());
    let plain = || powers_of_two(most_open).chain(parts()).chain(room());
    let plain = || plain().filter(|stages| *stages <= most_open);
    let multiples = |chunks: &u32| {
        let chunks = u64::from(*chunks);
        plain().map(move |stages| stages.saturating_mul(chunks))
    };
    let all = plain().chain(chunks.iter().flat_map(multiples));
    let lawful = |stages: &u64| (units..=most(program)).contains(stages);
    sorted(all.filter(lawful).chain([units]))
}

/// As many as fill the devices where each stage has one for each of this many replicas or parts of
/// tensors; these are divisors of the batch, and powers of two.
fn beside(devices: u64, batch: u64) -> impl Iterator<Item = u64> {
    let others = (1..=SMALL.min(devices))
        .filter(move |all| all.is_power_of_two() || batch.is_multiple_of(*all));
    others.map(move |all| devices / all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample,
        space::values::{Values, left_out},
    };

    /// No device is left over because replicas or rows take some, or because each has two stages.
    #[test]
    fn stages_divide_the_devices() {
        let tried = |devices, stages: &[u32]| {
            let mut program = sample::program(devices, 64);
            program.model = sample::gpt(12, 32, 16, false);
            let values = Values::new(&program);
            stages.iter().all(|s| values.tries_stages(1, *s))
        };
        assert!(tried(5, &[5, 10]) && tried(6, &[2, 3, 6, 12]));
        assert!(tried(12, &[3, 4, 6, 12, 24]) && tried(48, &[3, 12, 24, 48]));
        assert!(!tried(5, &[15]) && !tried(48, &[96]));
    }

    /// What is listed is tried with every N but where it stands for as many micro-batches, or known to
    /// make too long a period.
    #[test]
    fn open_stages_go_down_to_nodes_and_have_the_chunks_that_are_named() {
        let mut program = sample::program(6, 1 << 12);
        program.model = sample::gpt(3, 32, 16, false);
        let nodes = program.model.cuttable() as u32;
        let values = Values::new(&program);
        let (most, known) = (values.stages().last().copied(), values.stages());
        assert!(most <= Some(nodes) && most > Some(nodes / 2), "{known:?} of {nodes}");
        assert!(known.contains(&12) && !known.contains(&18), "{known:?}");
        assert_eq!(values.check_stages(4096, 1), Ok(()));
        assert_eq!(values.check_stages(4096, 2), Ok(()));
        let long = Reason::TooLong { passes: 4 << 12, most: OPEN_PASSES };
        assert_eq!(values.check_stages(4096, 4), Err(long));
        program.search.chunks = Numbers::Ranges(vec![(3, 3)]);
        let values = Values::new(&program);
        assert!([3, 6, 12, 18, 24].iter().all(|s| values.tries_stages(4, *s)));
        // Two stages on each of 48 devices.
        let mut program = sample::program(48, 64);
        program.model = sample::gpt(30, 32, 16, false);
        program.search.chunks = Numbers::Ranges(vec![(2, 2)]);
        assert!(Values::new(&program).tries_stages(4, 96));
    }

    /// Five stages with four replicas fill 20 of 22 devices, three with seven 21.
    #[test]
    fn stages_fill_the_devices_beside_others() {
        let mut program = sample::program(22, 48);
        program.model = sample::gpt(12, 32, 16, false);
        let values = Values::new(&program);
        assert!([2, 3, 5, 7, 11, 22].iter().all(|s| values.tries_stages(1, *s)));
        assert!(!values.tries_stages(1, 10));
        program.search.stages = Numbers::Ranges(vec![(3, 40)]);
        let named = Values::new(&program);
        let open = values.stages().iter().filter(|s| (3..=40).contains(*s));
        assert!(open.clone().all(|s| named.tries_stages(3, *s)));
        assert!((3..19).chain([40]).all(|s| named.tries_stages(3, s)));
        assert!(!named.tries_stages(3, 21));
        let told = left_out(&program).expect("some are left out");
        assert!(told.contains("the ranges of `stages` is tried"), "{told}");
    }

    #[test]
    fn cuts_say_how_many_stages_there_are_unless_stages_say_otherwise() {
        let mut program = sample::program(4, 8);
        program.search.cuts = Some(vec![2, 5]);
        for (stages, tried) in [
            (Numbers::Open, &[3][..]),
            (Numbers::Ranges(vec![(1, 4)]), &[3]),
            (Numbers::Ranges(vec![(2, 2), (4, 4)]), &[2, 4]),
        ] {
            program.search.stages = stages;
            assert_eq!(Values::new(&program).stages(), tried);
        }
        let refused = crate::plan(&program, &crate::Options::default());
        let refused = refused.expect_err("no stages are both").to_string();
        assert!(refused.contains("2 cuts make 3 stages"), "{refused}");
    }
}
