//! Parameters and inputs as a closed formula, the same as in `benches/pytorch_losses.py`.

use roundelay::{
    Checked,
    parts::{
        runtime::{Feed, ParameterState, State},
        schedule::{Element, Float, Id, InputId, Job, Native},
    },
};

/// Series of the first input; those of parameters count from zero.
const INPUTS: u64 = 1000;

/// 64 bits that look random (splitmix64): number `element` of a series.
fn bits(series: u64, element: u64) -> u64 {
    let z = ((series << 32) + element + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// In [−1/2, 1/2), a multiple of 2⁻⁵³.
fn number(series: u64, element: u64) -> f64 {
    (bits(series, element) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
}

/// Place `place` of a sequence below `bound` that starts anywhere and goes on by x → 5 x + 3.
fn token(example: u64, place: u64, bound: u64) -> u64 {
    let first = bits(INPUTS, example) % bound;
    (0..place).fold(first, |token, _| (5 * token + 3) % bound)
}

/// Half a number for each parameter, around one for gains and variances and zero for all others;
/// the series is the parameter's place in the order of names. Optimizer state is zero.
pub(crate) fn state(job: &Job) -> State {
    let mut state = State::initial(job);
    for (series, (name, tensor)) in (0..).zip(&mut state.tensors) {
        let one = name.ends_with("gain") || name.ends_with("variance");
        let centre = if one { 1.0 } else { 0.0 };
        fill(tensor, job.dtype, |element| centre + 0.5 * number(series, element));
    }
    state
}

fn fill(tensor: &mut ParameterState, dtype: Float, value: impl Fn(u64) -> f64) {
    let newest = &mut tensor.versions[0];
    for (element, bytes) in (0..).zip(newest.chunks_exact_mut(dtype.size() as usize)) {
        write(dtype, bytes, value(element));
    }
}

fn write(dtype: Float, bytes: &mut [u8], value: f64) {
    match dtype.native().expect("the CPU runs it") {
        Native::F32 => bytes.copy_from_slice(&(value as f32).to_ne_bytes()),
        Native::F64 => bytes.copy_from_slice(&value.to_ne_bytes()),
    }
}

/// Inputs of every example e of step t, which is number t · batch + e of the run. Real inputs
/// are numbers of a series each; integer ones are sequences, each input a place further.
pub(crate) struct Examples {
    dtype: Float,
    batch: u64,
    inputs: Vec<Rows>,
}

/// The rows of an input: how many a micro-batch has, how long they are, and what is in them.
struct Rows {
    element: Element,
    examples: u64,
    length: u64,
    bound: u64,
}

impl Examples {
    /// The inputs of a schedule's job.
    pub(crate) fn of(schedule: &Checked) -> Self {
        let Job { dtype, batch, inputs, .. } = &schedule.job;
        let inputs = inputs.values().map(|input| Rows {
            element: input.element,
            examples: input.shape[0],
            length: input.shape[1..].iter().product(),
            bound: input.bound,
        });
        Self { dtype: *dtype, batch: u64::from(*batch), inputs: inputs.collect() }
    }
}

impl Feed for Examples {
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]) {
        let number_of_input = input.index() as u64;
        let Rows { element, examples, length, bound } = self.inputs[input.index()];
        let first = t * self.batch + micro_batch * examples;
        let size = element.size(self.dtype) as usize;
        for (place, bytes) in (first * length..).zip(bytes.chunks_exact_mut(size)) {
            match element {
                Element::Real | Element::Wide => {
                    write(self.dtype, bytes, number(INPUTS + number_of_input, place));
                }
                Element::I32 => {
                    let place_in_row = place % length + number_of_input;
                    let token = token(place / length, place_in_row, bound);
                    bytes.copy_from_slice(&(token as i32).to_ne_bytes());
                }
            }
        }
    }
}
