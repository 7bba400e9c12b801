//! Training from a file of weights is the recursion from the same parameters, under every plan.

use crate::{
    models::gpt,
    plans::kinds,
    support::{compiled, plan, saved},
};
use roundelay::{
    Checked, OutputFile, Weights,
    parts::runtime::{Cpu, CpuOptions, Dataset, Fill, Oracle, State},
};
use std::{env, fs, process};

const STEPS: u64 = 3;

fn trained(schedule: &Checked, data: &Dataset, state: &State) -> State {
    let options = CpuOptions { fill: Fill::Poison, ..CpuOptions::default() };
    let mut cpu = Cpu::new(schedule, Box::new(data.clone()), options).unwrap();
    cpu.load(state).unwrap();
    cpu.replay(STEPS, &mut |_| {}).unwrap();
    saved(&mut cpu)
}

fn recursion(schedule: &Checked, data: &Dataset, state: &State) -> State {
    let mut oracle = Oracle::new(schedule, state).unwrap();
    (0..STEPS).for_each(|_| drop(oracle.advance(&mut data.clone())));
    oracle.state()
}

#[test]
fn a_run_from_weights_is_the_recursion_from_them() {
    let program = gpt(2, 6);
    let name = format!("roundelay-whole-weights-{}.safetensors", process::id());
    let path = env::temp_dir().join(name);
    for kind in kinds(3, 3) {
        let schedule = compiled(&program, &plan(&program, kind, 3, 3));
        let data = Dataset::open(&schedule.job, None).unwrap();
        let first = trained(&schedule, &data, &State::initial(&schedule.job));
        let file = OutputFile::new(&path).unwrap();
        first.write_weights(&schedule.job, &file).unwrap();
        let start =
            Weights::open(&path).unwrap().state(&schedule.job).unwrap().held().unwrap();
        for (name, tensor) in &start.tensors {
            let known = &first.tensors[name];
            assert_eq!(tensor.versions, known.versions[..1], "{name}");
            assert!(tensor.optimizer.iter().flatten().all(|byte| *byte == 0), "{name}");
        }
        assert_eq!((start.step, start.origin), (0, 0));
        let found = trained(&schedule, &data, &start);
        assert!(found == recursion(&schedule, &data, &start), "{kind:?}");
        assert!(found != first, "{kind:?}");
    }
    fs::remove_file(&path).unwrap();
}
