//! Captures: work that is recorded instead of done, and the rules for it.

use crate::{
    work::Work,
    world::{
        CAPTURE_INVALIDATED, CAPTURE_UNJOINED, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED,
        INVALID_HANDLE, OUT_OF_MEMORY, World,
    },
};
use std::thread::{self, ThreadId};

/// A recorded piece of work; `after` counts pieces of the same capture.
#[derive(Clone)]
pub(crate) struct Recorded {
    work: Work,
    after: Vec<usize>,
}

/// A capture under way.
pub(crate) struct Capture {
    /// The stream on which it began.
    origin: u64,
    recorded: Vec<Recorded>,
    /// The thread that began it.
    thread: ThreadId,
    /// Whether something was called that cannot be recorded.
    pub(crate) spoiled: bool,
}

impl Capture {
    /// Records a piece of work after others.
    pub(crate) fn add(&mut self, work: Work, after: &[usize]) -> usize {
        self.recorded.push(Recorded { work, after: after.to_vec() });
        self.recorded.len() - 1
    }

    /// Whether everything recorded comes before one of these.
    fn is_joined(&self, ends: &[usize]) -> bool {
        let mut seen = vec![false; self.recorded.len()];
        let mut open = ends.to_vec();
        while let Some(piece) = open.pop() {
            if !std::mem::replace(&mut seen[piece], true) {
                open.extend(&self.recorded[piece].after);
            }
        }
        seen.into_iter().all(|seen| seen)
    }
}

impl World {
    /// A stream begins to record.
    pub(crate) fn begin_capture(&mut self, stream: u64) -> i32 {
        if let Some(failure) = self.heard() {
            return failure;
        }
        let number = self.number();
        let Some(own) = self.streams.get_mut(&stream) else { return INVALID_HANDLE };
        if own.captured.is_some() {
            return CAPTURE_UNMATCHED;
        }
        own.captured = Some((number, Vec::new()));
        let capture = Capture {
            origin: stream,
            recorded: Vec::new(),
            thread: thread::current().id(),
            spoiled: false,
        };
        self.captures.insert(number, capture);
        0
    }

    /// Spoils what the calling thread captures: it called what may not be called meanwhile.
    pub(crate) fn spoil_own(&mut self) -> Option<i32> {
        let own = thread::current().id();
        let mut refusal = None;
        for capture in self.captures.values_mut().filter(|other| other.thread == own) {
            capture.spoiled = true;
            refusal = Some(CAPTURE_UNSUPPORTED);
        }
        refusal
    }

    /// The graph that a stream recorded.
    pub(crate) fn end_capture(&mut self, stream: u64) -> Result<u64, i32> {
        let own = self.streams.get(&stream).and_then(|own| own.captured.clone());
        let (number, place) = own.ok_or(CAPTURE_UNMATCHED)?;
        let capture = self.captures.remove(&number).ok_or(CAPTURE_INVALIDATED)?;
        for other in self.streams.values_mut() {
            if other.captured.as_ref().is_some_and(|(capture, _)| *capture == number) {
                other.captured = None;
            }
        }
        match &capture {
            Capture { spoiled: true, .. } => Err(CAPTURE_INVALIDATED),
            Capture { origin, .. } if *origin != stream => Err(CAPTURE_UNMATCHED),
            _ if !capture.is_joined(&place) => Err(CAPTURE_UNJOINED),
            _ => {
                let graph = self.number();
                self.make(graph, "a graph")?;
                self.graphs.insert(graph, capture.recorded);
                self.counts.graphs += 1;
                Ok(graph)
            }
        }
    }

    /// Gives all that was recorded to a stream.
    pub(crate) fn launch_graph(&mut self, graph: u64, stream: u64) -> i32 {
        if let Some(failure) = self.heard() {
            return failure;
        }
        let Some(recorded) = self.graphs.get(&graph).cloned() else {
            return INVALID_HANDLE;
        };
        if !self.contexts.are_of_one([graph, stream]) {
            return INVALID_HANDLE;
        }
        for Recorded { work, .. } in &recorded {
            self.hold(work);
        }
        let Some(own) = self.streams.get_mut(&stream) else { return INVALID_HANDLE };
        self.counts.graph_launches += 1;
        if self.settings.refuse == Some(self.counts.graph_launches) {
            return OUT_OF_MEMORY;
        }
        let before = std::mem::take(&mut own.tail);
        self.clock.launch();
        let mut numbers = Vec::with_capacity(recorded.len());
        for Recorded { work, after } in recorded {
            let mut waits: Vec<u64> = after.iter().map(|piece| numbers[*piece]).collect();
            waits.extend(&before);
            numbers.push(self.add(work, waits));
        }
        let end = self.add(Work::Nothing, numbers.into_iter().chain(before).collect());
        if let Some(own) = self.streams.get_mut(&stream) {
            own.tail = vec![end];
        }
        self.early();
        0
    }
}
