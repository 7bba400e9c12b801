//! Rule 1 for inputs that data does not bring: what they are made of is there, and fits.

use super::{Culprit, faults::Faults};
use crate::{Element, Input, Origin, Schedule, profile::spelled};

/// Checks all shares of targets.
pub(super) fn check(schedule: &Schedule, faults: &mut Faults) {
    let culprit = Culprit::Header("job");
    let inputs = &schedule.job.inputs;
    let is_sorted = inputs.values().is_sorted_by_key(|input| !input.origin.is_data());
    faults.require(is_sorted, culprit, || {
        "inputs that data does not bring must come behind those that it does".into()
    });
    for input in inputs.values() {
        let Origin::Shares { of, mask: _ } = &input.origin else { continue };
        let name = &input.name;
        let targets = schedule.job.data_inputs().find(|(_, own)| own.name == *of);
        let Some((_, targets)) = targets else {
            faults.malformed(
                culprit,
                format!(
                    "`{name}` has shares of `{of}`, which is not an input that data brings"
                ),
            );
            continue;
        };
        faults.require(targets.element == Element::I32, culprit, || {
            format!(
                "`{name}` has shares of `{of}`; only those of an i32 input are counted"
            )
        });
        let wide = schedule.job.dtype.spelled(Element::Wide);
        let fits = input.element == wide && input.shape == examples(targets);
        faults.require(fits && input.bound == 0, culprit, || {
            let expected = spelled(wide, examples(targets));
            format!("`{name}` has a share for each example of `{of}`: write {expected} below 0")
        });
    }
}

/// One extent for the examples.
fn examples(targets: &Input) -> &[u64] {
    targets.shape.get(..1).unwrap_or_default()
}
