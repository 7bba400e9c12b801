//! From calls over symbolic tensors to a routine: every tensor gets a place in an argument,
//! tensors without a home one in workspace, or among what is kept while that holds nothing.

use super::{
    call::{Step, Term},
    layout::{Layout, SIZE_ALIGNMENT},
    lives::{Home, Lives},
    replace::{Places, shared},
};
use roundelay_schedule::{
    Access, Argument, Id, Nanos, Operand, Pass, Role, Routine, Stage,
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
    let homes: Vec<Option<Home>> = homes.collect();
    let lives = Lives::new(layout, steps, &homes, shared(pass));
    let places = Places::new(layout, steps, &lives, pass);
    let found = |(term, home): (&Term, Option<Home>)| {
        let home = home.or_else(|| places.home(term.tensor));
        home.expect("what has no home is scratch, which has a place")
    };
    let homes: Vec<Home> = terms.zip(homes).map(found).collect();
    let roles = homes.iter().map(|(role, _)| *role);
    let mut roles: Vec<Role> = roles.chain(always.iter().copied()).collect();
    roles.sort_unstable();
    roles.dedup();
    let arguments = roles.iter().map(|role| Argument {
        role: *role,
        access: match access(*role) {
            Access::Read if places.has_scratch_in(*role) => Access::Update,
            own => own,
        },
        size: match role {
            Role::Workspace => places.workspace.align_up(SIZE_ALIGNMENT),
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
