//! Parts of an update against the updates of stages.

use super::*;
use crate::{
    costs::stages::{Cell, KnownStages},
    sample,
};
use roundelay_codegen::StageForm;

#[test]
fn a_part_of_the_update_takes_no_more_than_its_stage() {
    let mut program = sample::program(4, 4);
    program.model = sample::gpt(14, 32, 16, false);
    let (costs, core) = (Costs::new(&program), Core::whole(&program));
    let seating = Seating::default();
    let counts = |tensor| {
        let grain = Grain { micro_batches: 2, tensor };
        let users = Users::Together;
        (1..=9).map(move |stages| CutKey { grain, stages, users, seating })
    };
    let wanted: BTreeSet<CutKey> = sample::SPLITS.into_iter().flat_map(counts).collect();
    let room = &Room::new(&program);
    let basis = Basis { program: &program, core: &core, costs: &costs, room };
    let cuttings = Cuttings::new(basis, &wanted);
    let mut known = KnownStages::new(&program, &costs, core, &cuttings.nodes);
    let mut compared = 0;
    for count in wanted {
        let Ok(cutting) = cuttings.get(count) else { continue };
        let CutKey { grain: Grain { micro_batches, tensor }, stages, .. } = count;
        let examples = program.train.batch / micro_batches;
        let forms = vec![StageForm::default(); stages as usize];
        let cell = Cell { examples, tensor, cuts: &cutting.cuts, forms, kinds: &[] };
        for (stage, load) in known.load_of(cell).unwrap().iter().enumerate() {
            let part = cutting.updates[stage];
            assert!(part <= load.update, "{part} {load:?}");
            compared += usize::from(part > Nanos(0));
        }
    }
    assert!(compared > 100, "only {compared} stages were compared");
}
