//! Several machines, one for each part of split tensors, that make every call of a routine together.

use super::machine::Machine;
use roundelay_codegen::Stages;
use roundelay_kernels::{Context, Kernel, Real};
use roundelay_schedule::{Role, Routine};
use std::collections::BTreeMap;

/// The rows of one stage cell.
pub(crate) struct Lockstep<'a> {
    rows: Vec<Machine<'a>>,
    stages: &'a Stages,
}

impl<'a> Lockstep<'a> {
    /// So many rows, whose parameters are the parts of those of a machine with whole ones.
    pub(crate) fn new<R: Real>(
        stages: &'a Stages,
        whole: &Machine<'_>,
        rows: u32,
    ) -> Self {
        let values = whole.named::<R>(Role::Parameter);
        let row = |row| {
            let mut machine = Machine::new::<R>(stages, 0);
            for parameter in &stages.parameters {
                let bytes: Vec<u8> = values[&parameter.name]
                    .iter()
                    .flat_map(|x| x.to_ne_bytes())
                    .collect();
                let part = parameter.part_of(row, &bytes, 8);
                for (k, bits) in (0..).zip(part.chunks_exact(8)) {
                    let bits = u64::from_ne_bytes(bits.try_into().expect("eight bytes"));
                    let place = parameter.offset + k;
                    machine.set::<R>(parameter.stage, place, f64::from_bits(bits));
                }
            }
            machine
        };
        Self { rows: (0..rows).map(row).collect(), stages }
    }

    /// Forward and backward of one micro-batch; its loss, which every row must have.
    pub(crate) fn pass<R: Real>(&mut self, context: &Context, seed: u64) -> f64 {
        let stages = self.stages;
        self.rows.iter_mut().for_each(|row| row.feed::<R>(seed));
        for code in stages.stages.values() {
            self.launch::<R>(&code.forward, context);
        }
        let losses: Vec<f64> =
            self.rows.iter().map(|row| row.loss::<R>().widen()).collect();
        assert!(losses.iter().all(|loss| loss.to_bits() == losses[0].to_bits()));
        for code in stages.stages.values().rev() {
            let first = context.micro_batch == 0;
            let routines =
                if first { code.backward.first() } else { code.backward.next() };
            routines.iter().for_each(|routine| self.launch::<R>(routine, context));
        }
        losses[0]
    }

    /// The gradients of whole parameters, by name; parts that hold the same must have the same.
    pub(crate) fn gradients<R: Real>(&self) -> BTreeMap<String, Vec<f64>> {
        let named: Vec<BTreeMap<String, Vec<u64>>> =
            self.rows.iter().map(|row| row.named::<R>(Role::Gradient)).collect();
        let one = |parameter: &roundelay_schedule::Parameter| {
            let mut whole = vec![0; parameter.whole_elements() as usize * 8];
            let own = |its: &BTreeMap<String, Vec<u64>>| -> Vec<u8> {
                let bits = its[&parameter.name].iter();
                bits.flat_map(|bits| bits.to_ne_bytes()).collect()
            };
            for (part, its) in (0..).zip(&named) {
                parameter.put_part(part, &own(its), &mut whole, 8);
            }
            for (part, its) in (0..).zip(&named) {
                let mut again = whole.clone();
                parameter.put_part(part, &own(its), &mut again, 8);
                assert!(again == whole, "{} differs between parts", parameter.name);
            }
            let numbers = whole.chunks_exact(8).map(|bits| {
                let bits = bits.try_into().expect("eight bytes");
                f64::from_bits(u64::from_ne_bytes(bits))
            });
            (parameter.name.clone(), numbers.collect())
        };
        self.stages.parameters.iter().map(one).collect()
    }

    fn launch<R: Real>(&mut self, routine: &Routine, context: &Context) {
        self.rows.iter_mut().for_each(|row| row.bind_all(routine));
        for call in &routine.calls {
            let kernel = Kernel::parse(call).expect("stages admits calls");
            let Some(exchange) = kernel.exchange() else {
                for (part, row) in (0..).zip(&mut self.rows) {
                    row.call::<R>(routine, call, &Context { part, ..*context });
                }
                continue;
            };
            let brought: Vec<Vec<R>> = self
                .rows
                .iter_mut()
                .map(|row| row.operand::<R>(routine, call, 0))
                .collect();
            for (part, row) in (0..).zip(&mut self.rows) {
                let line = exchange.line.members(part);
                let brought: Vec<&[R]> =
                    line.map(|member| brought[member as usize].as_slice()).collect();
                let mut out = row.operand::<R>(routine, call, 1);
                exchange.join(&brought, exchange.line.place(part) as usize, &mut out);
                row.put_operand::<R>(routine, call, 1, &out);
            }
        }
    }
}
