//! The same hunt on as many processes as a plan has devices: they train the bits of one process, on
//! CPUs, and on stand-ins for GPUs through one for NCCL.

use crate::{
    bench::Bench,
    judge::Verdict,
    on_gpus::compiled,
    program::Program,
    world::{LIBRARIES, World},
};
use std::fs;

/// More processes than these show nothing new.
const RANKS_MAX: u32 = 8;

/// # Errors
/// What does not hold.
///
/// # Panics
/// Where a run fails.
pub(crate) fn judge(program: &Program) -> Result<Verdict, String> {
    let whole = Bench::with("hunt-whole", &LIBRARIES);
    let dtype = program.training.dtype;
    let text = program.with(dtype, &program.planning.text());
    let Some(schedule) = compiled(&whole, &text)? else { return Ok(Verdict::Refused) };
    let written = fs::read_to_string(&schedule).expect("it was written");
    let proven = roundelay::read(&written).map_err(|wrong| wrong.to_string())?;
    let ranks = proven.plan.devices.len() as u32;
    if !(2..=RANKS_MAX).contains(&ranks) {
        return Ok(Verdict::Refused);
    }
    for device in devices(dtype) {
        let words = format!("--device {device}");
        let one = whole.run(&words, &schedule, &[]);
        let many = World::new("hunt", ranks).train(&words, &schedule);
        if !many.is(&one) {
            let (own, other) = (&many.losses, &one.losses);
            return Err(format!("{device}: {own:?}, of one process {other:?}"));
        }
    }
    Ok(Verdict::Trained)
}

/// Where programs in these numbers are trained.
fn devices(dtype: &str) -> &'static [&'static str] {
    match dtype {
        "f64" => &["cpu"],
        "f32" => &["cpu", "cuda"],
        _ => &["cuda"],
    }
}
