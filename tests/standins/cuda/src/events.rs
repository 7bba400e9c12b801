//! `libcuda`: streams, events and graphs.

use crate::{
    forbid,
    work::Work,
    world::{
        CAPTURE_ISOLATION, CAPTURED_EVENT, Event, INVALID_HANDLE, NOT_READY, SUCCESS,
        Stream, World, world,
    },
};
use std::{
    ffi::{c_int, c_uint},
    sync::Arc,
};

/// A flag of events.
const DISABLE_TIMING: c_uint = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut u64, _: c_uint) -> c_int {
    let mut world = world();
    let number = world.number();
    if let Err(refusal) = world.make(number, "a stream") {
        return refusal;
    }
    world.streams.insert(number, Stream::default());
    // SAFETY: the caller gives room for a handle.
    unsafe { *stream = number };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: u64) -> c_int {
    let mut world = world();
    world.contexts.end(stream);
    world.streams.remove(&stream).map_or(INVALID_HANDLE, |_| SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut u64, flags: c_uint) -> c_int {
    let mut world = world();
    let number = world.number();
    if let Err(refusal) = world.make(number, "an event") {
        return refusal;
    }
    world.events.insert(number, Event::default());
    if flags & DISABLE_TIMING == 0 {
        world.stamps.insert(number, Arc::default());
    }
    // SAFETY: the caller gives room for a handle.
    unsafe { *event = number };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: u64) -> c_int {
    let mut world = world();
    world.stamps.remove(&event);
    world.contexts.end(event);
    world.events.remove(&event).map_or(INVALID_HANDLE, |_| SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: u64,
    end: u64,
) -> c_int {
    let world = world();
    let stamps = [start, end].map(|event| world.stamps.get(&event));
    let [Some(start), Some(end)] = stamps else { return INVALID_HANDLE };
    let (Some(start), Some(end)) = (start.get(), end.get()) else { return NOT_READY };
    // SAFETY: the caller gives room for a number.
    unsafe { *milliseconds = (end.saturating_sub(*start) as f64 / 1e6) as f32 };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: u64, stream: u64) -> c_int {
    let mut world = world();
    if let Some(failure) = world.heard() {
        return failure;
    }
    if !world.contexts.are_of_one([event, stream]) {
        return INVALID_HANDLE;
    }
    if let Some(stamp) = world.stamps.get_mut(&event) {
        *stamp = Arc::default();
        let stamp = Arc::clone(stamp);
        let given = world.give(stream, Work::Stamp(stamp));
        if given != SUCCESS {
            return given;
        }
    }
    let Some(own) = world.streams.get(&stream) else { return INVALID_HANDLE };
    let moment = match &own.captured {
        Some((capture, place)) => Event::Captured(*capture, place.clone()),
        None => Event::Set(own.tail.clone()),
    };
    match world.events.get_mut(&event) {
        Some(event) => {
            *event = moment;
            SUCCESS
        }
        None => INVALID_HANDLE,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: u64) -> c_int {
    let mut world = world();
    // Not while this thread captures, unless the capture is a relaxed one.
    if let Some(refusal) = world.spoil_own() {
        return refusal;
    }
    let Some(moment) = world.events.get(&event).cloned() else { return INVALID_HANDLE };
    let done = match moment {
        Event::Unset => true,
        Event::Set(pieces) => world.ask(&pieces),
        Event::Captured(..) => return world.spoil().unwrap_or(CAPTURED_EVENT),
    };
    match (world.heard(), done) {
        (Some(failure), _) => failure,
        (None, true) => SUCCESS,
        (None, false) => NOT_READY,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, _: c_uint) -> c_int {
    let mut world = world();
    if let Some(failure) = world.heard() {
        return failure;
    }
    world.counts.waits += 1;
    let forgotten = world.settings.forget == Some(world.counts.waits);
    let Some(moment) = world.events.get(&event).cloned() else { return INVALID_HANDLE };
    match moment {
        Event::Unset => SUCCESS,
        Event::Set(_) if forgotten => SUCCESS,
        Event::Set(pieces) => world.wait_for(stream, &pieces),
        Event::Captured(capture, place) => {
            world.wait_captured(stream, (capture, &place), forgotten)
        }
    }
}

impl World {
    fn wait_for(&mut self, stream: u64, pieces: &[u64]) -> c_int {
        let Some(own) = self.streams.get_mut(&stream) else { return INVALID_HANDLE };
        if own.captured.is_some() {
            self.captures.values_mut().for_each(|capture| capture.spoiled = true);
            return CAPTURE_ISOLATION;
        }
        let mut after = std::mem::take(&mut own.tail);
        after.extend(pieces);
        let number = self.add(Work::Nothing, after);
        if let Some(own) = self.streams.get_mut(&stream) {
            own.tail = vec![number];
        }
        SUCCESS
    }

    /// A stream that waits for a moment of a capture takes part in it from there on.
    fn wait_captured(
        &mut self,
        stream: u64,
        (capture, place): (u64, &[usize]),
        forgotten: bool,
    ) -> c_int {
        if !self.captures.contains_key(&capture) {
            return CAPTURED_EVENT;
        }
        let Some(own) = self.streams.get_mut(&stream) else { return INVALID_HANDLE };
        match &mut own.captured {
            Some((other, _)) if *other != capture => return CAPTURE_ISOLATION,
            Some(_) if forgotten => {}
            Some((_, own)) => {
                own.extend(place);
                own.sort_unstable();
                own.dedup();
            }
            None => own.captured = Some((capture, place.to_vec())),
        }
        SUCCESS
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: u64, mode: c_uint) -> c_int {
    if mode != 1 {
        forbid("a capture must be local to its thread");
    }
    world().begin_capture(stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> c_int {
    match world().end_capture(stream) {
        Ok(number) => {
            // SAFETY: the caller gives room for a handle.
            unsafe { *graph = number };
            SUCCESS
        }
        Err(refusal) => refusal,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut u64,
    graph: u64,
    _: u64,
) -> c_int {
    if let Some(failure) = world().heard() {
        return failure;
    }
    // SAFETY: the caller gives room for a handle.
    unsafe { *executable = graph };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(graph: u64, stream: u64) -> c_int {
    world().launch_graph(graph, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(_: u64) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: u64) -> c_int {
    let mut world = world();
    world.contexts.end(graph);
    world.graphs.remove(&graph).map_or(INVALID_HANDLE, |_| SUCCESS)
}
