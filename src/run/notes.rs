//! What a run says besides its progress: what it does otherwise than it might have, and why.

use super::RunEvent;
use roundelay_runtime::{AnyMachine, AttentionCounts, Makers, NotFinite, Ungraphed};
use roundelay_schedule::{Checked, Id};
use std::path::Path;

/// Names parameters that hold NaN or infinity at the start or the end; losses may not show it, if no
/// example drawn uses them.
pub(super) fn tell_not_finite(
    file: &Path,
    found: &[NotFinite],
    listener: &mut impl FnMut(RunEvent),
) {
    const NAMED: usize = 8;
    let named = found.iter().take(NAMED).map(|NotFinite { name, count, all }| {
        format!("{count} of {all} numbers of `{name}`")
    });
    let further = match found.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and some of {more} further parameters"),
    };
    if !found.is_empty() {
        let named = named.collect::<Vec<_>>().join(", ");
        let file = file.display();
        let text = format!("`{file}` holds NaN or infinity: {named}{further}");
        listener(RunEvent::Note(text));
    }
}

/// Says why a GPU replays without graphs, unless nobody asked for them.
pub(super) fn tell_ungraphed(machine: &AnyMachine, listener: &mut impl FnMut(RunEvent)) {
    let AnyMachine::Cuda(cuda) = machine else { return };
    match cuda.ungraphed() {
        Some(why @ (Ungraphed::Turns { .. } | Ungraphed::Ranks)) => {
            listener(RunEvent::Note(format!("replays without graphs: {why}")));
        }
        Some(Ungraphed::Unwanted) | None => {}
    }
}

/// Says why matrix products are not the library's, or not all that goes with them.
pub(super) fn tell_own_products(
    machine: &AnyMachine,
    listener: &mut impl FnMut(RunEvent),
) {
    let AnyMachine::Cuda(cuda) = machine else { return };
    let Makers { library, own, why_own, wrong } = cuda.products();
    if let Some(why) = why_own {
        let all = library + own;
        listener(RunEvent::Note(format!(
            "own functions make {own} of {all} matrix products: {why}"
        )));
    }
    if let Some(wrong) = wrong {
        listener(RunEvent::Note(format!(
            "own functions make the sums beside products, because cuBLASLt makes other numbers: {wrong}"
        )));
    }
}

/// Says what was found to make other numbers than own functions for every GPU: an engine of cuDNN, or own
/// functions for one kind of GPU. Elsewhere whoever is faster makes them, of which
/// nothing needs to be said.
pub(super) fn tell_wrong(machine: &AnyMachine, listener: &mut impl FnMut(RunEvent)) {
    let AnyMachine::Cuda(cuda) = machine else { return };
    let Makers { library, own, wrong, .. } = cuda.convolutions();
    if let Some(wrong) = wrong {
        let all = library + own;
        listener(RunEvent::Note(format!(
            "an engine of cuDNN is left out: {wrong}; own functions make {own} of {all} convolutions"
        )));
    }
    let AttentionCounts { library, sm90, usual, wrong, .. } = cuda.attention();
    if let Some(wrong) = wrong {
        let all = library + sm90 + usual;
        listener(RunEvent::Note(format!(
            "what makes other numbers is left out: {wrong}; functions for every device make {usual} of \
             {all} calls of attention"
        )));
    }
}

/// Says what cannot be part of a graph, and was left out for it.
pub(super) fn tell_unrecorded(machine: &AnyMachine, listener: &mut impl FnMut(RunEvent)) {
    let AnyMachine::Cuda(cuda) = machine else { return };
    if let Some(reason) = cuda.unrecorded() {
        listener(RunEvent::Note(format!(
            "left out, because it cannot be part of a graph: {reason}"
        )));
    }
}

/// Says who has which device, where a plan leaves out the first ones of its cluster: launchers begin at
/// the first host.
pub(super) fn tell_first_device(
    schedule: &Checked,
    ranks: u32,
    listener: &mut impl FnMut(RunEvent),
) {
    if let Some(id) = schedule.plan.devices.iter().copied().min()
        && ranks > 1
        && id.index() > 0
    {
        let (first, device) = (id.index(), &schedule.target.devices[id].name);
        let text = format!(
            "the plan begins at device {first} of its cluster: rank 0 has `{device}`, and each \
             further rank the device behind it; start the processes on the hosts of those"
        );
        listener(RunEvent::Note(text));
    }
}

/// Says that halves of a micro-batch hide nothing on a GPU, whose streams make exchanges in their turn.
pub(super) fn tell_unhidden(
    machine: &AnyMachine,
    schedule: &Checked,
    listener: &mut impl FnMut(RunEvent),
) {
    if matches!(machine, AnyMachine::Cuda(_)) && schedule.plan.tensor.overdecompose > 1 {
        let text = "exchanges between parts of tensors are made one call after another on GPUs: \
                    `overdecompose` changes no number there, and hides nothing";
        listener(RunEvent::Note(text.to_owned()));
    }
}
