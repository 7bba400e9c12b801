//! From calls over symbolic tensors to a routine: every tensor gets a place in an argument,
//! tensors without a home one in workspace.

use super::{
    call::{Step, Tensor, Term},
    hashed::HashedMap,
    interleave::{done, goes_on},
    layout::{Layout, SIZE_ALIGNMENT},
    memory::{Life, Packing},
};
use roundelay_schedule::{
    Access, Argument, Bytes, Id, Nanos, Operand, Pass, Role, Routine, Stage,
};

/// The routine that makes the calls of `steps`. Its arguments are the homes of their tensors and
/// the roles of `always`, in the order of the roles.
pub(crate) fn assemble(
    layout: &Layout<'_>,
    name: String,
    (pass, stage): (Pass, Stage),
    steps: &[Step],
    always: &[Role],
    access: impl Fn(Role) -> Access,
) -> Routine {
    let terms = steps.iter().flat_map(|step| &step.terms);
    let homes = terms.clone().map(|term| layout.home(term.tensor, (pass, stage)));
    let homes: Vec<Option<(Role, Bytes)>> = homes.collect();
    let workspace = workspace(layout, steps, &homes);
    let scratch = |term: &Term| (Role::Workspace, workspace.offsets[&term.tensor]);
    let homes =
        terms.zip(homes).map(|(term, home)| home.unwrap_or_else(|| scratch(term)));
    let homes: Vec<(Role, Bytes)> = homes.collect();
    let roles = homes.iter().map(|(role, _)| *role);
    let mut roles: Vec<Role> = roles.chain(always.iter().copied()).collect();
    roles.sort_unstable();
    roles.dedup();
    let arguments = roles.iter().map(|role| Argument {
        role: *role,
        access: access(*role),
        size: match role {
            Role::Workspace => workspace.size.align_up(SIZE_ALIGNMENT),
            role => layout.size(*role, stage),
        },
    });
    let mut homes = homes.into_iter();
    let mut operand = |term: &Term| {
        let (role, offset) = homes.next().expect("every term has its home");
        let argument = roles.partition_point(|other| *other < role);
        let argument = u32::try_from(argument).expect("a routine has few arguments");
        let element = layout.element(term);
        Operand { argument, offset, element, shape: term.shape.clone() }
    };
    Routine {
        name,
        pass,
        stage,
        arguments: arguments.collect(),
        calls: steps.iter().map(|step| step.placed(&mut operand)).collect(),
        predicted: Nanos(0),
    }
}

/// `F2`: a pass and its stage.
pub(crate) fn name(pass: Pass, stage: Stage) -> String {
    format!("{pass}{}", stage.index())
}

/// Where the tensors lie that have no home; `homes` are those of the terms of all steps.
fn workspace(
    layout: &Layout<'_>,
    steps: &[Step],
    homes: &[Option<(Role, Bytes)>],
) -> Packing {
    let mut lives: Vec<Life> = Vec::new();
    let mut places: HashedMap<Tensor, usize> = HashedMap::default();
    let numbered = steps.iter().enumerate();
    let terms =
        numbered.flat_map(|(index, step)| step.terms.iter().map(move |t| (index, t)));
    for ((index, term), _) in terms.zip(homes).filter(|(_, home)| home.is_none()) {
        let width = layout.element(term).size(layout.dtype);
        let size = Bytes(term.elements()) * width;
        let place = *places.get_or_insert(term.tensor, lives.len());
        if place == lives.len() {
            let tensor = term.tensor;
            lives.push(Life { tensor, size, first: index, last: index });
        }
        lives[place].last = index;
    }
    // What is exchanged beside other calls stays as it is until the exchange is done.
    for (index, step) in steps.iter().enumerate().filter(|(_, step)| goes_on(step)) {
        let end = done(steps, index);
        for term in &step.terms {
            if let Some(place) = places.get(&term.tensor) {
                lives[*place].last = lives[*place].last.max(end);
            }
        }
    }
    Packing::by_liveness(lives)
}
