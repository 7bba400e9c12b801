//! What a run says besides its progress: what it does otherwise than it might have, and why.

use super::RunEvent;
use roundelay_runtime::{
    AnyMachine, AttentionCounts, CheckpointError, Cuda, Makers, NotFinite, Ungraphed,
};
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

/// Says that the last parameters are there though the last checkpoint is not.
pub(super) fn tell_saved(file: &Path, listener: &mut impl FnMut(RunEvent)) {
    let text = format!("the last parameters are in `{}` all the same", file.display());
    listener(RunEvent::Note(text));
}

/// Says what lies in the folder of checkpoints besides the one that is taken.
pub(super) fn tell_passed_over(
    ignored: &[CheckpointError],
    listener: &mut impl FnMut(RunEvent),
) {
    let lines = CheckpointError::lines(ignored).into_iter();
    lines.for_each(|line| listener(RunEvent::PassedOver(line)));
}

/// Says which parameters of heads of units training begins with as they are drawn.
pub(super) fn tell_drawn_heads(
    file: &Path,
    drawn: &[String],
    listener: &mut impl FnMut(RunEvent),
) {
    if let [first, rest @ ..] = drawn {
        let further = if rest.is_empty() { "" } else { ", …" };
        let file = file.display();
        listener(RunEvent::Note(format!(
            "`{file}` has not all heads of units (`{first}`{further}): these begin as they are drawn"
        )));
    }
}

/// Says before a run begins what it does otherwise than it might have.
pub(super) fn tell(
    machine: &AnyMachine,
    schedule: &Checked,
    ranks: u32,
    listener: &mut impl FnMut(RunEvent),
) {
    let on_gpu = match machine {
        AnyMachine::Cuda(cuda) => Some(on_gpu(cuda, schedule)),
        AnyMachine::Cpu(_) => None,
    };
    let first = first_device(schedule, ranks);
    let all = [first].into_iter().chain(on_gpu.into_iter().flatten());
    all.flatten().for_each(|text| listener(RunEvent::Note(text)));
}

/// All that a GPU does so.
fn on_gpu(cuda: &Cuda, schedule: &Checked) -> [Option<String>; 8] {
    [
        ungraphed(cuda),
        own_products(cuda),
        wrong_sums(cuda),
        wrong_engine(cuda),
        wrong_attention(cuda),
        unrecorded(cuda),
        untried(cuda),
        unhidden(schedule),
    ]
}

/// Why a GPU replays without graphs of whole periods, unless nobody asked for them.
fn ungraphed(cuda: &Cuda) -> Option<String> {
    match cuda.ungraphed()? {
        why @ (Ungraphed::Turns { .. } | Ungraphed::Ranks) => {
            Some(format!("only launches are replayed as graphs: {why}"))
        }
        Ungraphed::Unwanted => None,
    }
}

/// Why matrix products are not the library's.
fn own_products(cuda: &Cuda) -> Option<String> {
    let Makers { library, own, why_own, .. } = cuda.products();
    let (why, all) = (why_own.as_ref()?, library + own);
    Some(format!("own functions make {own} of {all} matrix products: {why}"))
}

/// Why what goes with them is not the library's.
fn wrong_sums(cuda: &Cuda) -> Option<String> {
    let wrong = cuda.products().wrong.as_ref()?;
    Some(format!(
        "own functions make the sums beside products, because cuBLASLt makes other numbers: {wrong}"
    ))
}

/// Which engine of cuDNN was found to make other numbers than own functions. Elsewhere whoever is faster
/// makes convolutions, of which nothing needs to be said.
fn wrong_engine(cuda: &Cuda) -> Option<String> {
    let Makers { library, own, wrong, .. } = cuda.convolutions();
    let (wrong, all) = (wrong.as_ref()?, library + own);
    Some(format!(
        "an engine of cuDNN is left out: {wrong}; own functions make {own} of {all} convolutions"
    ))
}

/// What was found to make other numbers than own functions for every GPU: an engine of cuDNN, or own
/// functions for one kind of GPU. Elsewhere whoever is faster makes attention.
fn wrong_attention(cuda: &Cuda) -> Option<String> {
    let AttentionCounts { library, sm90, usual, wrong, .. } = cuda.attention();
    let (wrong, all) = (wrong.as_ref()?, library + sm90 + usual);
    Some(format!(
        "what makes other numbers is left out: {wrong}; functions for every device make {usual} of \
         {all} calls of attention"
    ))
}

/// What cannot be part of a graph, and was left out for it.
fn unrecorded(cuda: &Cuda) -> Option<String> {
    let reason = cuda.unrecorded()?;
    Some(format!("left out, because it cannot be part of a graph: {reason}"))
}

/// What might be faster in another way, which nobody knows.
fn untried(cuda: &Cuda) -> Option<String> {
    let reason = cuda.untried()?;
    Some(format!(
        "made in the first of several ways, which may not be the fastest: {reason}"
    ))
}

/// That halves of a micro-batch hide nothing on a GPU, whose streams make exchanges in their turn.
fn unhidden(schedule: &Checked) -> Option<String> {
    let text = "exchanges between parts of tensors are made one call after another on GPUs: \
                `overdecompose` changes no number there, and hides nothing";
    (schedule.plan.tensor.overdecompose > 1).then(|| text.to_owned())
}

/// Who has which device, where a plan leaves out the first ones of its cluster: launchers begin at the
/// first host.
fn first_device(schedule: &Checked, ranks: u32) -> Option<String> {
    let id = schedule.plan.devices.iter().copied().min()?;
    let (first, device) = (id.index(), &schedule.target.devices[id].name);
    (ranks > 1 && first > 0).then(|| {
        format!(
            "the plan begins at device {first} of its cluster: rank 0 has `{device}`, and each \
             further rank the device behind it; start the processes on the hosts of those"
        )
    })
}
