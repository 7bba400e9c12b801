//! A replay that is asked to stop comes to rest after the steps that were begun, as if it had been
//! told so before, and goes on from there.

use crate::support::{
    models::mlp,
    runs::{all_plans, compile, machine, recursion, saved},
};
use roundelay_runtime::Timing;

const STEPS: u64 = 6;

#[test]
fn a_replay_that_is_asked_to_stop_rests_where_it_could_have_been_told_to() {
    let program = mlp(4, 12);
    for plan in all_plans(&program, (3, 3)) {
        let schedule = compile(&program, &plan);
        let whole = recursion(&schedule, STEPS);
        for deadline in [0, 1, 2, 4, 100] {
            let mut cpu = machine(&schedule, Timing::Natural);
            let mut found = vec![vec![0; 3]; STEPS as usize];
            let mut listen = |loss: roundelay_runtime::Loss| {
                found[loss.step as usize][loss.micro_batch as usize] =
                    loss.loss.to_bits();
            };
            let mut asked = 0;
            let mut goes_on = || {
                asked += 1;
                asked <= deadline
            };
            cpu.replay_while(STEPS, &mut listen, &mut goes_on).expect("nothing fails");
            let (step, name) = (cpu.step(), format!("{plan:?} after {deadline}"));
            assert!((1..=STEPS).contains(&step), "{name}");
            assert!(step <= 1 + deadline, "{name}: {step}");
            assert!(deadline < 100 || step == STEPS, "{name}: {step}");
            let part = recursion(&schedule, step);
            assert!(saved(&mut cpu) == part.state, "{name}");
            cpu.replay(STEPS, &mut listen).expect("nothing fails");
            assert!(saved(&mut cpu) == whole.state, "{name}");
            assert!(found == whole.losses, "{name}");
        }
    }
}
