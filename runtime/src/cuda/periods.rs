//! Periods as the device has them: given action by action, or recorded once as a graph and
//! launched again whenever everything has turned back to where it was.
//!
//! A period that is given runs beside its neighbours, as its waits allow. A graph begins when
//! everything before it is done, and whatever follows waits for its end; so events that were set
//! before such a fence need no waiting for. Both ways give the same launches in the same order on
//! every queue, and so the same bits. Inputs that are sent ahead are no part of a graph: it begins
//! when those of its period are there.

use super::{
    Graphs,
    driver::{DriverError, Event, Graph},
    lanes::Lanes,
    launches::Wanted,
    staging::{HALVES, Staging},
};
use crate::ranks::Seated;
use roundelay_schedule::{Action, Schedule, Segment, lcm};
use std::{collections::BTreeMap, ops::Range};

/// How a period gets to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Action by action.
    Given,
    /// Action by action into a graph, which is then launched.
    Recorded,
    /// By launching a graph that is there.
    Launched,
}

/// Why no period is recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ungraphed {
    /// Nobody asked for it.
    #[error("nobody asked for graphs of periods")]
    Unwanted,
    /// What goes between processes is not recorded.
    #[error("messages between ranks are given to the device anew in every period")]
    Ranks,
    /// Devices and slots turn so that more graphs would be needed than are kept.
    #[error(
        "devices and slots are back where they were after {graphs} periods, and no more than \
         {most} graphs are kept"
    )]
    Turns {
        /// How many.
        graphs: u64,
        /// The most that are kept.
        most: u64,
    },
}

impl Ungraphed {
    /// Why no period of a schedule is recorded, if none is, on one process or one rank of several.
    pub(super) fn of(
        schedule: &Schedule,
        graphs: Graphs,
        seated: Option<Seated>,
    ) -> Option<Self> {
        let cycle = cycle(schedule);
        match graphs {
            Graphs::Never | Graphs::Launches => Some(Self::Unwanted),
            Graphs::Periods if seated.is_some() => Some(Self::Ranks),
            Graphs::Periods if cycle > MOST_GRAPHS => {
                Some(Self::Turns { graphs: cycle, most: MOST_GRAPHS })
            }
            Graphs::Periods => None,
        }
    }
}

impl Graphs {
    /// Whether launches are recorded, of a schedule whose periods are, or why they are not.
    pub(super) fn of_launches(self, why_not: Option<&Ungraphed>) -> Wanted {
        match (self, why_not) {
            (Self::Launches, _) | (Self::Periods, Some(_)) => Wanted::Recorded,
            (Self::Never, _) | (Self::Periods, None) => Wanted::Given,
        }
    }
}

/// The periods of a machine.
pub(super) struct Periods {
    /// Graphs by the number of their period, modulo `cycle`.
    graphs: BTreeMap<u64, Graph>,
    /// Periods after which everything, host memory too, is where it was.
    cycle: u64,
    why_not: Option<Ungraphed>,
    /// Whether the segment's periods are graphs, where they can be.
    wanted: Graphs,
    /// The period that is open, and how.
    open: Option<(i64, Mode)>,
    /// Whether the last closed period was a graph.
    after_graph: bool,
    /// Periods in which every action executes.
    steady: Range<i64>,
    /// Numbers fences.
    fence: u64,
    /// Set when scalars are there, and when the periods of a half are done.
    begun: [Event; HALVES],
    ended: [Event; HALVES],
    forked: Event,
    /// The period of each half that is not known to be done, and how it got to the device.
    under_way: [Option<(i64, Mode)>; HALVES],
}

/// The most graphs that are kept.
const MOST_GRAPHS: u64 = 64;

impl Periods {
    /// No period yet.
    pub(super) fn new(
        schedule: &Schedule,
        why_not: Option<Ungraphed>,
    ) -> Result<Self, DriverError> {
        Ok(Self {
            graphs: BTreeMap::new(),
            cycle: cycle(schedule),
            why_not,
            wanted: Graphs::Periods,
            open: None,
            after_graph: false,
            steady: 0..0,
            fence: 0,
            begun: [Event::new()?, Event::new()?],
            ended: [Event::new()?, Event::new()?],
            forked: Event::new()?,
            under_way: [None; HALVES],
        })
    }

    /// A segment begins; its first steady period is given, so that whatever happens at a first
    /// use has happened before anything is recorded.
    pub(super) fn start(
        &mut self,
        schedule: &Schedule,
        segment: Segment,
        wanted: Graphs,
    ) {
        self.wanted = wanted;
        let Range { start, end } = steady(schedule, segment);
        let warm = if self.graphs.is_empty() { 1 } else { 0 };
        self.steady = start + warm..end;
    }

    /// From here on no period is steady.
    pub(super) fn stop(&mut self) {
        self.steady = 0..0;
    }

    /// Graphs that are kept.
    pub(super) fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// In words why no graph is kept, if none is.
    pub(super) fn none_kept(&self) -> Option<String> {
        match (&self.why_not, self.graphs.is_empty()) {
            (Some(why), _) => Some(why.to_string()),
            (None, true) => Some("no steady period came after the first one".to_owned()),
            (None, false) => None,
        }
    }

    /// Why no period is recorded.
    pub(super) fn why_not(&self) -> Option<&Ungraphed> {
        self.why_not.as_ref()
    }

    /// How the open period gets to the device, and its number.
    pub(super) fn open(&self) -> (i64, Mode) {
        self.open
            .expect("actions are issued between the beginning and the end of a period")
    }

    /// The open period, if it gets to the device as all do in the long run: by launching a graph
    /// where there are any, and otherwise action by action.
    pub(super) fn steady(&self) -> Option<i64> {
        let (period, mode) = self.open?;
        let usual = if self.records() { Mode::Launched } else { Mode::Given };
        (self.steady.contains(&period) && mode == usual).then_some(period)
    }

    /// The number of the last fence.
    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    /// The half of the host's memory that a period uses.
    pub(super) fn half(period: i64) -> usize {
        period.rem_euclid(HALVES as i64) as usize
    }

    /// The period that must be done before `period` may begin, because they share a half.
    pub(super) fn before(&self, period: i64) -> Option<i64> {
        self.under_way[Self::half(period)].map(|(before, _)| before)
    }

    /// The oldest period that is not known to be done.
    pub(super) fn oldest(&self) -> Option<i64> {
        self.under_way.iter().flatten().map(|(period, _)| *period).min()
    }

    /// The newest period that is closed and not known to be done.
    pub(super) fn newest(&self) -> Option<i64> {
        self.under_way.iter().flatten().map(|(period, _)| *period).max()
    }

    /// The oldest period that is not known to be done, the open one too.
    pub(super) fn current(&self) -> Option<i64> {
        self.oldest().or(self.open.map(|(period, _)| period))
    }

    /// Whether a period under way, or the open one, shows how far it is: only the end of a graph is
    /// seen, and nothing at all while one is recorded.
    pub(super) fn is_shown(&self, period: i64) -> bool {
        let given = |(own, mode): (i64, Mode)| own == period && mode == Mode::Given;
        let records = self.open.is_some_and(|(_, mode)| mode == Mode::Recorded);
        !records && self.under_way.into_iter().chain([self.open]).flatten().any(given)
    }

    /// Passes when a period under way is done.
    pub(super) fn ended(&self, period: i64) -> &Event {
        &self.ended[Self::half(period)]
    }

    /// A period under way is done.
    pub(super) fn finished(&mut self, period: i64) {
        self.under_way[Self::half(period)] = None;
    }

    /// Opens a period whose half is free and whose scalars are in host memory.
    pub(super) fn begin(
        &mut self,
        period: i64,
        lanes: &Lanes,
        staging: &Staging,
    ) -> Result<(), DriverError> {
        let mode = self.mode(period);
        self.open = Some((period, mode));
        let half = Self::half(period);
        match mode {
            Mode::Launched => return Ok(()),
            Mode::Recorded => {
                self.fence += 1;
                lanes.origin.begin_capture()?;
                lanes.origin.record(&self.forked)?;
                lanes.fork(&self.forked)?;
            }
            Mode::Given if self.after_graph => {
                self.fence += 1;
                lanes.fork(&self.ended[Self::half(period - 1)])?;
            }
            Mode::Given => {}
        }
        staging.upload_scalars(half, &lanes.courier)?;
        lanes.courier.record(&self.begun[half])?;
        lanes.fork(&self.begun[half])
    }

    fn mode(&self, period: i64) -> Mode {
        let steady = self.records() && self.steady.contains(&period);
        match (steady, self.graphs.contains_key(&self.phase(period))) {
            (false, _) => Mode::Given,
            (true, false) => Mode::Recorded,
            (true, true) => Mode::Launched,
        }
    }

    /// Whether steady periods are graphs.
    fn records(&self) -> bool {
        self.why_not.is_none() && self.wanted == Graphs::Periods
    }

    fn phase(&self, period: i64) -> u64 {
        period.rem_euclid(self.cycle as i64) as u64
    }

    /// Closes the open period: launches its graph, and notes when all of it is done; a moment that
    /// is to be kept comes before that, so that it has passed for whoever waits for the period.
    pub(super) fn end(
        &mut self,
        lanes: &Lanes,
        moment: Option<&Event>,
    ) -> Result<(), DriverError> {
        let Some((period, mode)) = self.open.take() else { return Ok(()) };
        match mode {
            Mode::Given => lanes.join()?,
            Mode::Recorded => {
                lanes.join()?;
                let graph = lanes.origin.end_capture()?;
                lanes.wait_for_inputs(&lanes.origin)?;
                lanes.origin.launch_graph(&graph)?;
                self.graphs.insert(self.phase(period), graph);
            }
            Mode::Launched => {
                lanes.wait_for_inputs(&lanes.origin)?;
                lanes.origin.launch_graph(&self.graphs[&self.phase(period)])?;
            }
        }
        self.after_graph = mode != Mode::Given;
        let half = Self::half(period);
        if let Some(moment) = moment {
            lanes.origin.record(moment)?;
        }
        lanes.origin.record(&self.ended[half])?;
        self.under_way[half] = Some((period, mode));
        Ok(())
    }
}

/// Periods after which everything, host memory too, is where it was.
fn cycle(schedule: &Schedule) -> u64 {
    lcm(schedule.cycle(), HALVES as u64)
}

/// The periods of a segment in which every action executes.
fn steady(schedule: &Schedule, segment: Segment) -> Range<i64> {
    let signed = |step: u64| i64::try_from(step).unwrap_or(i64::MAX / 2);
    let lags = || schedule.actions.values().map(|action| i64::from(action.lag));
    let late = |action: &Action| i64::from(action.lag) - i64::from(action.reach);
    let first = schedule.actions.values().map(late).max().unwrap_or(0);
    let last = lags().min().unwrap_or(0);
    signed(segment.first) + first..signed(segment.end) + last
}
