//! What the exchanges between the parts of split tensors take: a collective of the devices of a
//! line, or messages between neighbours, by the clock's own forms. Lines that exchange at once are priced each as if alone, though
//! those that cross a node share its ports.

use crate::space::windows::Windows;
use roundelay_dsl::Program;
use roundelay_schedule::{
    DeviceId, Exchanged, Id, Line, LinkId, LinkSpan, Nanos, Target,
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// The links between parts.
#[derive(Debug)]
pub(crate) struct PartLinks {
    target: Target,
    firsts: Firsts,
    /// The ways in which some lines of a kind are joined, wherever plans begin.
    anywhere: Mutex<Spans>,
    /// Those of the lines of plans, by the devices of these.
    of_plans: Mutex<BTreeMap<Vec<DeviceId>, Spans>>,
}

/// For each kind of line the ways in which some of them are joined, each once.
type Spans = BTreeMap<Line, Vec<LinkSpan>>;

/// Where plans begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Firsts {
    /// With the first device of the cluster.
    First,
    /// With any.
    Any,
}

impl PartLinks {
    /// Of a program's cluster.
    pub(crate) fn new(program: &Program) -> Self {
        let firsts = match Windows::new(program).is_one() {
            true => Firsts::First,
            false => Firsts::Any,
        };
        let target = program.target.clone();
        Self { target, firsts, anywhere: Mutex::default(), of_plans: Mutex::default() }
    }

    /// No line of any plan takes less.
    pub(crate) fn least(&self, exchange: Exchanged) -> Nanos {
        let mut known = self.anywhere.lock().unwrap_or_else(PoisonError::into_inner);
        let spans = known.entry(exchange.line);
        let spans = spans.or_insert_with(|| self.spans_anywhere(exchange.line));
        let times = spans.iter().map(|span| self.target.exchange_time(span, exchange));
        times.min().unwrap_or_default()
    }

    /// The slowest line of a plan on these devices takes so long, and keeps a link busy: the last one of
    /// those that are outermost for some line of the kind, whatever the size, so that lines of one kind
    /// share it.
    pub(crate) fn most(
        &self,
        exchange: Exchanged,
        devices: &[DeviceId],
    ) -> (Nanos, LinkId) {
        let mut known = self.of_plans.lock().unwrap_or_else(PoisonError::into_inner);
        let own = match known.get_mut(devices) {
            Some(own) => own,
            None => known.entry(devices.to_vec()).or_default(),
        };
        let spans = own.entry(exchange.line);
        let spans = spans.or_insert_with(|| self.spans_of(exchange.line, devices));
        let times = spans.iter().map(|span| self.target.exchange_time(span, exchange));
        let links = spans.iter().filter_map(|span| Some(span.levels.last()?.link));
        (times.max().unwrap_or_default(), links.max().unwrap_or(Id::new(0)))
    }

    /// Those of the lines that lie in a cluster.
    fn spans_anywhere(&self, line: Line) -> Vec<LinkSpan> {
        let devices: Vec<DeviceId> = self.target.devices.ids().collect();
        match self.firsts {
            Firsts::First => self.spans_of(line, &devices),
            Firsts::Any => {
                let reach = (line.parts.max(1) - 1) as usize * line.stride as usize;
                let lines = devices.windows(reach + 1).map(|own| {
                    own.iter().copied().step_by(line.stride.max(1) as usize).collect()
                });
                self.joined(lines)
            }
        }
    }

    /// Those of the lines of grids that fill devices, side by side from the first one on.
    fn spans_of(&self, line: Line, devices: &[DeviceId]) -> Vec<LinkSpan> {
        let each = line.parts.max(1) as usize * line.stride.max(1) as usize;
        let whole = devices.len() / each * each;
        let firsts = (0..u32::try_from(whole).unwrap_or(u32::MAX))
            .filter(|device| line.place(*device) == 0);
        let members =
            |first| line.members(first).map(|own| devices[own as usize]).collect();
        self.joined(firsts.map(members))
    }

    fn joined(&self, lines: impl Iterator<Item = Vec<DeviceId>>) -> Vec<LinkSpan> {
        let mut spans: Vec<LinkSpan> = Vec::new();
        for group in lines {
            let ends = (group[0], group[group.len() - 1]);
            let Some(link) = self.target.link_between(ends.0, ends.1) else { continue };
            let span = match self.target.links[link].is_flat() {
                true => LinkSpan::flat(link, group.len() as u64),
                false => self.target.span(&group, link),
            };
            if !spans.contains(&span) {
                spans.push(span);
            }
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_dsl::Numbers;
    use roundelay_schedule::{
        Bytes, BytesPerSecond, Collective, Domain, Exchanging, Meanwhile,
    };

    /// Two devices behind slow links, then a node of four behind fast ones.
    fn uneven() -> Program {
        let mut program = sample::program(6, 8);
        let slow = program.target.domains[0].link;
        let mut link = program.target.links[slow].clone();
        link.bandwidth = BytesPerSecond(10 * link.bandwidth.0);
        let fast = program.target.links.push(link);
        let nodes =
            [Domain { link: slow, devices: 0..2 }, Domain { link: fast, devices: 2..6 }];
        let whole = program.target.domains.clone();
        program.target.domains = nodes.into_iter().chain(whole).collect();
        program
    }

    fn sum_of_four() -> Exchanged {
        Exchanged {
            kind: Exchanging::Collective(Collective::AllReduce),
            line: Line { parts: 4, stride: 1 },
            whole: Bytes(1 << 20),
            meanwhile: Meanwhile::Waits,
        }
    }

    #[test]
    fn a_plan_is_priced_by_the_links_of_its_own_devices() {
        let links = PartLinks::new(&uneven());
        let most = |first: usize| {
            let devices: Vec<DeviceId> = (first..first + 4).map(DeviceId::new).collect();
            links.most(sum_of_four(), &devices).0
        };
        let [slow, fast] = [most(0), most(2)];
        assert!(fast < slow, "{fast} {slow}");
        assert_eq!(links.least(sum_of_four()), fast, "of all that plans could be");
    }

    /// Where plans begin with the first device, lines lie as theirs do.
    #[test]
    fn no_line_is_cheaper_than_those_that_there_are() {
        let mut program = uneven();
        program.target.domains.remove(0);
        program.search.first_device = Numbers::Ranges(vec![(2, 2)]);
        let links = PartLinks::new(&program);
        let devices: Vec<DeviceId> = (2..6).map(DeviceId::new).collect();
        assert_eq!(links.least(sum_of_four()), links.most(sum_of_four(), &devices).0);
        let even = PartLinks::new(&sample::program(8, 8));
        assert_eq!(even.firsts, Firsts::First);
    }
}
