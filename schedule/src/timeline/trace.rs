//! A simulated run as a Chrome trace, which Perfetto and `chrome://tracing` open: a process per
//! device with a track per queue, an arrow for every wait across queues, and a counter of live
//! memory on the clock. The live peak of the checker follows the order of the list instead: there
//! nothing overlaps, so on the clock a device may hold more at one time, though never more than its
//! arena.

use super::{
    memory::live,
    span::{Told, spans, told},
};
use crate::{
    ActionId, Bytes, DeviceId, Entry, Id, Kind, Nanos, PhysicalQueue, Simulation,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A trace; serialised as JSON it is the file. Times are microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    display_time_unit: &'static str,
    trace_events: Vec<Event>,
}

/// One event of the format.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "ph")]
enum Event {
    /// The name of a process or of a track.
    #[serde(rename = "M")]
    Name { name: &'static str, pid: usize, tid: usize, args: Name },
    /// Something that takes time.
    #[serde(rename = "X")]
    Span {
        name: String,
        cat: &'static str,
        pid: usize,
        tid: usize,
        ts: f64,
        dur: f64,
        args: Details,
    },
    /// Where an arrow begins.
    #[serde(rename = "s")]
    Departure(Tip),
    /// Where it ends: at the span that begins there.
    #[serde(rename = "f")]
    Arrival {
        #[serde(flatten)]
        tip: Tip,
        bp: &'static str,
    },
    /// Numbers that hold from now on.
    #[serde(rename = "C")]
    Counter { name: &'static str, pid: usize, ts: f64, args: BTreeMap<String, u64> },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Name {
    name: String,
}

/// One end of an arrow.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Tip {
    name: &'static str,
    cat: &'static str,
    id: usize,
    pid: usize,
    tid: usize,
    ts: f64,
}

/// What a span says of itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Details {
    action: String,
    step: i64,
    period: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    micro_batch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

/// The trace of a run. What takes no time is left out.
pub fn trace(simulation: &Simulation<'_>) -> Trace {
    let mut trace_events = names(simulation);
    trace_events.extend(spans(simulation).map(|entry| span(simulation, entry)));
    trace_events.extend(arrows(simulation));
    trace_events.extend(counters(simulation));
    Trace { display_time_unit: "ms", trace_events }
}

fn microseconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

/// Process and track of a queue. Devices count from one; collectives and the host, which no
/// device owns, share process zero.
fn track(simulation: &Simulation<'_>, queue: PhysicalQueue) -> [usize; 2] {
    match queue {
        PhysicalQueue::Lane(device, lane) => [device.index() + 1, lane as usize],
        PhysicalQueue::Arrival(device) => {
            let lanes = simulation.schedule().rings.values().map(|ring| ring.lanes);
            [device.index() + 1, lanes.max().unwrap_or(1) as usize]
        }
        PhysicalQueue::Host(device) => [0, device.index()],
        PhysicalQueue::Group(group) => {
            [0, simulation.schedule().target.devices.len() + group.index()]
        }
    }
}

/// Whose a queue is, and what it is called there.
fn called(simulation: &Simulation<'_>, queue: PhysicalQueue) -> [String; 2] {
    let devices = &simulation.schedule().target.devices;
    let name = |device: DeviceId| devices[device].name.clone();
    let shared = "shared".to_owned();
    match queue {
        PhysicalQueue::Lane(device, lane) => [name(device), format!("lane {lane}")],
        PhysicalQueue::Arrival(device) => [name(device), "arrivals".to_owned()],
        PhysicalQueue::Host(device) => [shared, format!("host for {}", name(device))],
        PhysicalQueue::Group(group) => [shared, format!("group {group}")],
    }
}

fn names(simulation: &Simulation<'_>) -> Vec<Event> {
    let queues: BTreeSet<PhysicalQueue> =
        spans(simulation).map(|entry| entry.queue).collect();
    let both = queues.iter().flat_map(|queue| {
        let [pid, tid] = track(simulation, *queue);
        let [process, thread] = called(simulation, *queue);
        [
            Event::Name { name: "process_name", pid, tid, args: Name { name: process } },
            Event::Name { name: "thread_name", pid, tid, args: Name { name: thread } },
        ]
    });
    both.collect()
}

fn span(simulation: &Simulation<'_>, entry: &Entry) -> Event {
    let Told { name, sort, micro_batch, bytes } = told(simulation, entry);
    let cat = sort.name();
    let [pid, tid] = track(simulation, entry.queue);
    let &Entry { action, step, period, start, end, .. } = entry;
    let micro_batch = micro_batch.map(|micro_batch| micro_batch.to_string());
    let bytes = bytes.map(|bytes| bytes.0);
    let args = Details { action: action.to_string(), step, period, micro_batch, bytes };
    let (ts, dur) = (microseconds(start), microseconds(end - start));
    Event::Span { name, cat, pid, tid, ts, dur, args }
}

/// An arrow from the end of what is waited for to the start of what waits in another queue.
fn arrows(simulation: &Simulation<'_>) -> Vec<Event> {
    let key = |entry: &Entry| (entry.action, entry.period);
    let sources: BTreeMap<(ActionId, i64), &Entry> =
        spans(simulation).map(|entry| (key(entry), entry)).collect();
    let pairs = spans(simulation).flat_map(|entry| {
        let waits = simulation.schedule().actions[entry.action].after.iter();
        let source = |wait: &crate::Wait| {
            let period = entry.period - i64::from(wait.distance);
            sources.get(&(wait.action, period)).map(|source| (*source, entry))
        };
        waits.filter_map(source).collect::<Vec<_>>()
    });
    let crossing = pairs.filter(|(source, entry)| source.queue != entry.queue);
    crossing.enumerate().flat_map(|(id, pair)| arrow(simulation, id, pair)).collect()
}

fn arrow(
    simulation: &Simulation<'_>,
    id: usize,
    (source, entry): (&Entry, &Entry),
) -> [Event; 2] {
    let tip = |queue: PhysicalQueue, time: Nanos| {
        let [pid, tid] = track(simulation, queue);
        Tip { name: "wait", cat: "wait", id, pid, tid, ts: microseconds(time) }
    };
    // The last nanosecond of the span: its end may belong to the next one already.
    let departure = tip(source.queue, source.end - Nanos(1));
    let arrival = Event::Arrival { tip: tip(entry.queue, entry.start), bp: "e" };
    [Event::Departure(departure), arrival]
}

fn counters(simulation: &Simulation<'_>) -> impl Iterator<Item = Event> {
    let counter = |pid: usize, (time, live): (Nanos, BTreeMap<Kind, Bytes>)| {
        let args = live.into_iter().map(|(kind, bytes)| (kind.to_string(), bytes.0));
        let (name, ts) = ("live bytes on the clock", microseconds(time));
        Event::Counter { name, pid, ts, args: args.collect() }
    };
    let devices = live(simulation).into_iter();
    devices.flat_map(move |(device, rows)| {
        rows.into_iter().map(move |row| counter(device.index() + 1, row))
    })
}
