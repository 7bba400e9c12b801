//! `show --as trace`: every span of the clock, arrows between spans, and live memory.

use crate::support::{Scratch, printed, roundelay};
use roundelay::{
    Checked, SearchOptions, SourceFile,
    parts::schedule::{Entry, Id, Kind, simulate},
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const PROGRAM: &str = r#"
model ladder {
    input x: real[batch, 16]
    input y: real[batch, 16]
    h = x
    repeat 4 as rung {
        h = h + relu(linear(layer_norm(h), 16))
    }
    loss mse(linear(h, 16), y)
}
device core { memory 1 GB, compute 10 GFLOP/s, bandwidth 10 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
cluster two { 2 x core joined by bus }
train {
    data synthetic, batch 16, steps 8, seed 5
    optimizer adamw(lr = 1e-3)
}
plan { exactness delayed, rule RULE, placement PLACEMENT, replicas 1, micro_batches 2, stages 2 }
"#;

const STEPS: u64 = 6;

pub(crate) fn compiled(rule: &str, placement: &str) -> Checked {
    let text = PROGRAM.replace("RULE", rule).replace("PLACEMENT", placement);
    let source = SourceFile::new("ladder.rdl".to_owned(), text);
    let program = roundelay::parse(&source).expect("the program is right");
    let ranking =
        roundelay::plan(&program, &SearchOptions::default()).expect("a plan fits");
    roundelay::compile(&program, ranking.best()).expect("the plan is sound")
}

/// The events of a trace by kind.
struct Events(BTreeMap<String, Vec<Value>>);

impl Events {
    fn of(trace: &Value) -> Self {
        let mut kinds: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for event in trace["traceEvents"].as_array().expect("a list") {
            let kind = event["ph"].as_str().expect("text").to_owned();
            kinds.entry(kind).or_default().push(event.clone());
        }
        Self(kinds)
    }

    fn kind(&self, kind: &str) -> &[Value] {
        self.0.get(kind).map_or(&[], Vec::as_slice)
    }

    /// Begin and end of all spans of a track, in nanoseconds.
    fn spans(&self) -> BTreeMap<(u64, u64), Vec<(u64, u64)>> {
        let mut tracks: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for span in self.kind("X") {
            let start = nanos(&span["ts"]);
            let spans = tracks.entry(track(span)).or_default();
            spans.push((start, start + nanos(&span["dur"])));
        }
        tracks.values_mut().for_each(|spans| spans.sort_unstable());
        tracks
    }
}

fn nanos(microseconds: &Value) -> u64 {
    (microseconds.as_f64().expect("a time") * 1e3).round() as u64
}

fn track(event: &Value) -> (u64, u64) {
    (event["pid"].as_u64().expect("a number"), event["tid"].as_u64().expect("a number"))
}

fn traced(schedule: &Checked) -> Events {
    let simulation = simulate(schedule, STEPS);
    Events::of(
        &serde_json::to_value(roundelay::trace(&simulation))
            .expect("all numbers are finite"),
    )
}

#[test]
fn every_span_of_the_clock_is_drawn() {
    for (rule, placement) in [("sync", "pipeline"), ("cyclic_v2", "data")] {
        let schedule = compiled(rule, placement);
        let (events, simulation) = (traced(&schedule), simulate(&schedule, STEPS));
        let drawn = |span: &Value| {
            let text = |name: &str| span["args"][name].as_i64().expect("a number");
            let action = span["args"]["action"].as_str().expect("text").to_owned();
            let start = nanos(&span["ts"]);
            (action, text("period"), text("step"), start, start + nanos(&span["dur"]))
        };
        let clocked = |entry: &Entry| {
            let &Entry { action, period, step, start, end, .. } = entry;
            (action.to_string(), period, step, start.0, end.0)
        };
        let seen = simulation.entries().iter().filter(|entry| entry.start < entry.end);
        let expected: BTreeSet<_> = seen.map(clocked).collect();
        assert_eq!(events.kind("X").iter().map(drawn).collect::<BTreeSet<_>>(), expected);
        for spans in events.spans().values() {
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
        }
        let named: BTreeSet<_> = events.kind("M").iter().map(track).collect();
        assert_eq!(named, events.spans().into_keys().collect());
    }
}

#[test]
fn arrows_join_spans_of_two_tracks() {
    let events = traced(&compiled("sync", "pipeline"));
    let (departures, arrivals) = (events.kind("s"), events.kind("f"));
    let spans = events.spans();
    let reached: BTreeSet<_> =
        arrivals.iter().map(|end| (track(end), nanos(&end["ts"]))).collect();
    let transfers = events.kind("X").iter().filter(|span| span["name"] == "transfer");
    // One that follows another on its track may wait for what that one waited for.
    let follows =
        |(at, time): &((u64, u64), u64)| spans[at].iter().any(|(_, end)| end == time);
    let starts = transfers.map(|span| (track(span), nanos(&span["ts"])));
    let first: Vec<_> = starts.filter(|start| !follows(start)).collect();
    assert!(!first.is_empty() && first.iter().all(|start| reached.contains(start)));
    assert_eq!(departures.len(), arrivals.len());
    for (departure, arrival) in departures.iter().zip(arrivals) {
        assert_eq!(departure["id"], arrival["id"]);
        assert_ne!(track(departure), track(arrival));
        let (from, to) = (nanos(&departure["ts"]), nanos(&arrival["ts"]));
        assert!(
            spans[&track(departure)]
                .iter()
                .any(|(start, end)| (*start..*end).contains(&from))
        );
        assert!(spans[&track(arrival)].iter().any(|(start, _)| *start == to));
        assert!(from < to);
    }
}

#[test]
fn processes_have_the_names_of_their_devices() {
    let schedule = compiled("sync", "pipeline");
    let events = traced(&schedule);
    let of = |name: &str| -> BTreeSet<String> {
        let named = events.kind("M").iter().filter(|event| event["name"] == name);
        let said = named.map(|event| event["args"]["name"].as_str().expect("text"));
        said.map(str::to_owned).collect()
    };
    let mut devices =
        schedule.plan.devices.iter().map(|d| schedule.target.devices[*d].name.as_str());
    let processes = of("process_name");
    assert!(devices.all(|name| processes.contains(name)), "{processes:?}");
    let tracks = of("thread_name").into_iter().collect::<Vec<_>>();
    assert_eq!(tracks, ["arrivals", "lane 0"], "one of each on either device");
}

/// On the clock messages overlap with passes, which the order of the list does not know of.
#[test]
fn counters_never_exceed_the_arena() {
    for (rule, placement) in
        [("sync", "pipeline"), ("cyclic_v2", "data"), ("cyclic_v2", "pipeline")]
    {
        let schedule = compiled(rule, placement);
        let events = traced(&schedule);
        assert!(!events.kind("C").is_empty(), "memory is counted");
        for event in events.kind("C") {
            assert_eq!(event["name"], "live bytes on the clock");
            let kinds = event["args"].as_object().expect("bytes by kind");
            let all: u64 = kinds.values().filter_map(Value::as_u64).sum();
            let number = event["pid"].as_u64().expect("a number") - 1;
            let mut arenas = schedule.facts().device_arena.iter();
            let (device, arena) = arenas
                .find(|(device, _)| device.index() as u64 == number)
                .expect("a device of the cell");
            assert!(all <= arena.0, "{rule} {placement}, {device}: {all} of {arena}");
        }
    }
}

/// Launches keep the checker's order on a device, so the clock sees the same activations at most.
#[test]
fn counters_reach_the_peak_that_was_proven() {
    for (rule, placement) in [("sync", "pipeline"), ("cyclic_v2", "concurrent")] {
        let schedule = compiled(rule, placement);
        let events = traced(&schedule);
        let kind = Kind::Activation;
        for device in schedule.plan.devices.clone() {
            let own = |event: &&Value| event["pid"] == device.index() + 1;
            let counters = events.kind("C").iter().filter(own);
            let seen = counters.map(|event| event["args"][kind.to_string()].as_u64());
            let peak = schedule.facts().live_peak[&(device, kind)];
            assert_eq!(seen.max(), Some(Some(peak.0)), "{rule} {placement}, {device}");
        }
    }
}

#[test]
fn the_command_prints_the_same_trace() {
    let scratch = Scratch::new("trace");
    let text = PROGRAM.replace("RULE", "sync").replace("PLACEMENT", "pipeline");
    let source = scratch.file("ladder.rdl", &text);
    let file = scratch.path("ladder.schedule");
    printed(roundelay("compile").arg(source).arg("-o").arg(&file));
    let shown = printed(roundelay("show --as trace --steps 6").arg(&file));
    let events = Events::of(&serde_json::from_str(&shown).expect("it is JSON"));
    assert_eq!(events.0, traced(&compiled("sync", "pipeline")).0);
}
