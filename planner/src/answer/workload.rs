//! What a training step asks for, whatever a plan decides: the numbers of the model, and arithmetic.

use crate::{
    rewrite::Algebra,
    search::{
        candidate::{Candidate, seconds},
        ranking::Ranking,
    },
};
use roundelay_codegen::{PassCost, StageError, node_costs};
use roundelay_dsl::Program;
use roundelay_kernels::Kernel;
use roundelay_schedule::{Call, Float, Tensor, counted};
use serde::Serialize;
use std::fmt;

/// The work of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// Numbers that the model trains, without what local rules add.
    pub parameters: u64,
    /// Examples of the step.
    #[serde(skip)]
    pub examples: u32,
    /// Its arithmetic; unknown where devices split what no kernel takes whole.
    #[serde(flatten)]
    pub arithmetic: Option<Arithmetic>,
}

/// The arithmetic of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Arithmetic {
    /// Floating-point operations of its forward and backward passes, as prices count them: nothing is
    /// computed again, and no update counts. Steps of the largest models have more than 64 bits hold.
    pub flops_per_step: f64,
    /// Their share of what the devices of the best plan could do in its step, where the peaks of all are
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_share: Option<f64>,
}

impl Workload {
    /// Of a program whose plans are ranked.
    pub fn new(program: &Program, ranking: &Ranking) -> Self {
        Self {
            parameters: program.model.trained_numbers(),
            examples: program.train.batch,
            arithmetic: Arithmetic::new(program, &ranking.plans[0]).ok(),
        }
    }
}

impl Arithmetic {
    /// Of a program in micro-batches as its best plan has.
    fn new(program: &Program, best: &Candidate) -> Result<Self, StageError> {
        let micro_batches = best.plan.all_micro_batches().max(1);
        let examples = program.train.batch / micro_batches;
        let flops = flops(program, examples.into())?;
        let flops_per_step = flops * f64::from(micro_batches);
        let peaks = best.plan.devices.iter();
        let peaks = peaks.map(|device| Some(program.peaks.get(device)?.0 as f64));
        let peak: Option<f64> = peaks.sum();
        let could = peak.map(|peak| peak * seconds(best.step_time));
        let peak_share = could.filter(|all| *all > 0.0).map(|all| flops_per_step / all);
        Ok(Self { flops_per_step, peak_share })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.parameters, "parameter"))?;
        let Some(Arithmetic { flops_per_step, peak_share }) = self.arithmetic else {
            return Ok(());
        };
        let examples = counted(self.examples.into(), "example");
        let (amount, unit) = scaled(flops_per_step);
        write!(f, "; {amount:.2} {unit} forward and backward in a step of {examples}")?;
        match peak_share {
            Some(share) => {
                let percent = 100.0 * share;
                write!(f, ", {percent:.1} % of the peak of the first plan's devices")
            }
            None => Ok(()),
        }
    }
}

/// A number of operations in the largest unit of which there is one.
fn scaled(flops: f64) -> (f64, &'static str) {
    let larger = ["kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP"];
    // What two decimals show as 1000 is one of the next unit.
    larger.into_iter().fold((flops, "FLOP"), |(amount, unit), next| match amount {
        many if many >= 999.995 => (many / 1000.0, next),
        few => (few, unit),
    })
}

/// The arithmetic of both passes of a micro-batch.
fn flops(program: &Program, examples: u64) -> Result<f64, StageError> {
    let dtype = program.train.dtype;
    let size = (examples, Tensor::WHOLE);
    let costs = node_costs(&program.model, size, dtype, &Algebra::default())?;
    let passes = costs.iter().flat_map(|cost| [&cost.forward, &cost.backward]);
    Ok(passes.map(|pass| of_pass(pass, dtype)).sum())
}

/// What is contained in calls of a node is counted where its own node is.
fn of_pass(pass: &PassCost, dtype: Float) -> f64 {
    let flops = |call: &Call| {
        let kernel = Kernel::parse(call);
        kernel.map_or(0.0, |kernel| kernel.footprint(dtype).flops.0 as f64)
    };
    let [all, contained] =
        [&pass.calls, &pass.contained].map(|calls| calls.iter().map(flops).sum::<f64>());
    all - contained
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, plan, sample};
    use roundelay_schedule::FlopsPerSecond;

    fn workload(program: &Program) -> Workload {
        let ranking = plan(program, &Options::default());
        Workload::new(program, &ranking.unwrap_or_else(|refused| panic!("{refused}")))
    }

    fn arithmetic(workload: &Workload) -> Arithmetic {
        workload.arithmetic.expect("kernels take it whole")
    }

    /// Products are nearly all of it: two operations per weight and example forward, and four backward, but two
    /// in the first layer, whose input nobody trains.
    #[test]
    fn a_step_has_the_arithmetic_of_its_products() {
        for batch in [4, 8, 64] {
            let found = workload(&sample::program(2, batch));
            let weights = 4 * 16 * 16;
            assert_eq!((found.parameters, found.examples), (weights, batch));
            let products = f64::from(batch) * 16.0 * 16.0 * (4.0 * 6.0 - 2.0);
            let more = arithmetic(&found).flops_per_step / products - 1.0;
            assert!((0.0..0.1).contains(&more), "{more}");
        }
    }

    #[test]
    fn nothing_that_a_plan_decides_changes_it() {
        let program = sample::program(2, 8);
        let expected = workload(&program);
        for line in ["micro_batches = 4", "recompute = full", "rule = cyclic_v1"] {
            let mut other = program.clone();
            other.set_all(&[line, "exactness = delayed"]).expect(line);
            let found = workload(&other);
            assert_eq!(found.parameters, expected.parameters, "{line}");
            let [found, expected] = [found, expected].map(|own| arithmetic(&own));
            let ratio = found.flops_per_step / expected.flops_per_step;
            assert!((ratio - 1.0).abs() < 1e-3, "{line}: {ratio}");
        }
    }

    #[test]
    fn the_share_of_the_peak_needs_the_peaks_of_all_devices() {
        let mut program = sample::program(2, 8);
        program.set_all(&["placement = pipeline"]).expect("it is a decision");
        assert_eq!(arithmetic(&workload(&program)).peak_share, None);
        let peak = FlopsPerSecond(5_000_000_000);
        let ids: Vec<_> = program.target.devices.ids().collect();
        program.peaks.insert(ids[0], peak);
        assert_eq!(arithmetic(&workload(&program)).peak_share, None);
        program.peaks.insert(ids[1], peak);
        let ranking = plan(&program, &Options::default()).expect("it fits");
        let found = Workload::new(&program, &ranking);
        let time = ranking.plans[0].step_time.0 as f64 / 1e9;
        let Arithmetic { flops_per_step, peak_share } = arithmetic(&found);
        let share = flops_per_step / time / 1e10;
        assert!((peak_share.expect("both are known") / share - 1.0).abs() < 1e-9);
        let text =
            format!("{:.1} % of the peak of the first plan's devices", 100.0 * share);
        assert!(found.to_string().ends_with(&text), "{found}");
    }

    #[test]
    fn large_steps_have_large_units() {
        let told = |flops_per_step| {
            let arithmetic = Some(Arithmetic { flops_per_step, peak_share: None });
            let all = Workload { parameters: 1, examples: 1, arithmetic };
            let text = all.to_string();
            assert!(text.starts_with("1 parameter; ") && text.ends_with(" of 1 example"));
            text["1 parameter; ".len()..].split(" forward").next().unwrap().to_owned()
        };
        assert_eq!(told(0.0), "0.00 FLOP");
        assert_eq!(told(999.0), "999.00 FLOP");
        assert_eq!(told(21.07e9), "21.07 GFLOP");
        assert_eq!(told(999.996e9), "1.00 TFLOP");
        assert_eq!(told(3.8e19), "38.00 EFLOP");
        assert_eq!(told(5e30), "5000000000.00 ZFLOP");
    }
}
