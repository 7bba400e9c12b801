//! When events were: by the clock of the system, or by one of the stand-in, on which the environment
//! says what takes how long, for the host and for the device.
//!
//! On that clock the host goes on with every call, and the device does one piece after another, none
//! before it was given. A graph costs the host one call, whatever is in it.

use crate::work::Work;
use std::time::Instant;

/// What something takes of which nothing is said, in nanoseconds: of the device, and of the host.
const USUAL: [u64; 2] = [100_000, 1_000];

/// What costs call a moment that is kept.
const EVENT: &str = "event";

/// What the launch of a graph takes of the host.
const GRAPH: u64 = 10_000;

/// Work of the device after which a rising clock rises, in the midst of the rounds of a first trial of four
/// ways that does not wait for that; and how many times as long it takes at first.
const RISEN: f64 = 3.2e6;
const COLD: f64 = 3.0;

/// Work of the device in which a swaying clock comes to take e times as long, or as short, and work until it
/// turns.
const SWAYED: f64 = 50e6;
const TURNS: f64 = 500e6;

/// How the device gets faster or slower as it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drift {
    Steady,
    /// Slow at first.
    Rising,
    /// Slower and slower for a long time, and then faster and faster.
    Swaying,
}

impl Drift {
    /// The one that a text names.
    pub(crate) fn named(text: Option<String>) -> Self {
        match text.as_deref() {
            Some("rising") => Self::Rising,
            Some("swaying") => Self::Swaying,
            Some(_) | None => Self::Steady,
        }
    }

    /// How many times as long everything takes after so much work.
    fn factor(self, worked: u64) -> f64 {
        let worked = worked as f64;
        match self {
            Self::Steady => 1.0,
            Self::Rising if worked < RISEN => COLD,
            Self::Rising => 1.0,
            Self::Swaying => {
                let since = worked % (2.0 * TURNS);
                (since.min(2.0 * TURNS - since) / SWAYED).exp()
            }
        }
    }
}

/// What things take, by names, as the environment has it.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    named: Vec<(String, [u64; 2])>,
    drift: Drift,
}

impl Costs {
    /// `NAME=DEVICE/HOST` in microseconds, separated by commas.
    pub(crate) fn named(text: &str, drift: Drift) -> Self {
        let number = |text: &str| Some(text.parse::<u64>().ok()? * 1_000);
        let cost = |text: &str| {
            let (name, cost) = text.split_once('=')?;
            let (device, host) = cost.split_once('/')?;
            Some((name.to_owned(), [number(device)?, number(host)?]))
        };
        Self { named: text.split(',').filter_map(cost).collect(), drift }
    }

    /// Of the device and of the host. Copies and messages cost nothing, and moments that are kept
    /// what is said of `event`.
    fn of(&self, work: &Work) -> [u64; 2] {
        let named = |is: &dyn Fn(&str) -> bool| {
            let known = self.named.iter().find(|(own, _)| is(own));
            known.map(|(_, cost)| *cost)
        };
        match (work, work.name()) {
            (Work::Stamp(_), _) => named(&|own| own == EVENT).unwrap_or_default(),
            (_, Some(name)) => named(&|own| name.contains(own)).unwrap_or(USUAL),
            (_, None) => [0; 2],
        }
    }
}

/// A clock.
pub(crate) enum Clock {
    /// The system's, since a moment.
    System(Instant),
    /// Where the host and the device are, in nanoseconds, and how much the device has worked.
    Own { costs: Costs, host: u64, device: u64, worked: u64 },
}

impl Clock {
    pub(crate) fn new(costs: Option<Costs>) -> Self {
        match costs {
            None => Self::System(Instant::now()),
            Some(costs) => Self::Own { costs, host: 0, device: 0, worked: 0 },
        }
    }

    /// The host gives something to a stream or to a capture.
    pub(crate) fn call(&mut self, work: &Work) {
        if let Self::Own { costs, host, .. } = self {
            *host += costs.of(work)[1];
        }
    }

    /// The host launches a graph.
    pub(crate) fn launch(&mut self) {
        if let Self::Own { host, .. } = self {
            *host += GRAPH;
        }
    }

    /// Where the host is.
    pub(crate) fn host(&self) -> u64 {
        match self {
            Self::System(_) => 0,
            Self::Own { host, .. } => *host,
        }
    }

    /// The device does something that the host had given at a time; returns when that is done.
    pub(crate) fn done(&mut self, work: &Work, given: u64) -> u64 {
        match self {
            Self::System(start) => start.elapsed().as_nanos() as u64,
            Self::Own { costs, device, worked, .. } => {
                let cost = costs.of(work)[0];
                let takes = cost as f64 * costs.drift.factor(*worked);
                *device = given.max(*device) + takes as u64;
                *worked += cost;
                *device
            }
        }
    }

    /// The host has seen that the device is done.
    pub(crate) fn seen(&mut self) {
        if let Self::Own { host, device, .. } = self {
            *host = (*host).max(*device);
        }
    }
}
