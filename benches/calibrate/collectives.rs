//! Links: collectives and point-to-point messages.

use crate::{
    data::{self, Row},
    fit::{Pair, fit, head, loss, report},
    record::Record,
};
use roundelay::parts::schedule::{
    Bytes, BytesPerSecond, Collective, Form, Id, Level, Link, LinkId, LinkSpan, Nanos,
    Protocol, Target, Way,
};
use std::error::Error;

/// Devices of one node.
const NODE: u64 = 8;

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Collective(Collective),
    Message,
}

/// One measured message; time in nanoseconds.
#[derive(Clone, Debug)]
struct Measured {
    source: String,
    gpu: String,
    kind: Kind,
    members: u64,
    per_node: u64,
    whole: Bytes,
    time: f64,
}

/// The constants of one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    bandwidth: f64,
    latency: f64,
    startup: f64,
    short: [f64; 2],
}

impl Constants {
    fn of([bandwidth, latency, startup, short, short_startup]: [f64; 5]) -> Self {
        Self { bandwidth, latency, startup, short: [short, short_startup] }
    }

    /// The link, with the forms that its collectives take.
    pub(crate) fn link(&self, forms: &[Form]) -> Link {
        let rate = |rate: f64| BytesPerSecond(rate.max(1.0) as u64);
        let time = |nanos: f64| Nanos(nanos.max(0.0) as u64);
        let [short, startup] = self.short;
        let short = Protocol { bandwidth: rate(short), startup: time(startup) };
        let forms = forms.iter().map(|form| Way::Form(*form));
        let ways = forms.chain([Way::Short(short)]).collect();
        let plain = Link::plain("link", rate(self.bandwidth), time(self.latency));
        Link { startup: time(self.startup), ways, ..plain }
    }

    fn record(&self, key: &str, record: &mut Record) {
        record.rate(&format!("{key}.bandwidth"), self.bandwidth);
        record.time(&format!("{key}.latency"), self.latency);
        record.time(&format!("{key}.startup"), self.startup);
        record.rate(&format!("{key}.short.bandwidth"), self.short[0]);
        record.time(&format!("{key}.short.startup"), self.short[1]);
    }
}

/// The two levels of links of a cluster of nodes.
pub(crate) fn target(inner: Link, outer: Link) -> Target {
    Target { links: [inner, outer].into_iter().collect(), ..Target::default() }
}

/// The levels that join `members` devices that fill nodes.
pub(crate) fn span(members: u64) -> LinkSpan {
    let level = |link, members| Level { link: LinkId::new(link), members };
    let levels = match members <= NODE {
        true => vec![level(0, members)],
        false => vec![level(0, NODE), level(1, members / NODE)],
    };
    LinkSpan { members, levels }
}

fn measured(row: &Row) -> Option<Measured> {
    let kind = match row.text("op") {
        "all_reduce" => Kind::Collective(Collective::AllReduce),
        "all_gather" => Kind::Collective(Collective::AllGather),
        "reduce_scatter" => Kind::Collective(Collective::ReduceScatter),
        "p2p" => Kind::Message,
        _ => return None,
    };
    let members = row.whole("n_gpus");
    let bytes = row.whole("size_bytes");
    // The size of an all-gather of Aceso is that of one member's part.
    let parts = if kind == Kind::Collective(Collective::AllGather) { members } else { 1 };
    let micros = row.number_or("time_us", 0.0);
    let warm_up = members >= 64 && bytes <= 1024;
    (micros > 0.0 && micros < 1e9 && !warm_up).then(|| Measured {
        source: row.text("source").to_owned(),
        gpu: row.text("gpu").to_owned(),
        kind,
        members,
        per_node: row.whole("gpus_per_node"),
        whole: Bytes(bytes * parts),
        time: micros * 1e3,
    })
}

fn pairs(target: &Target, rows: &[&Measured]) -> Vec<Pair> {
    let one = |row: &&Measured| {
        let predicted = match row.kind {
            Kind::Message => target.links[LinkId::new(0)].transfer_time(row.whole),
            Kind::Collective(kind) => {
                target.collective_time(&span(row.members), kind, row.whole)
            }
        };
        let group = format!("{} {}", row.source, row.members);
        Pair { group, measured: row.time, predicted: predicted.0 as f64 }
    };
    rows.iter().map(one).collect()
}

/// What the rows of one table have in common.
fn select<'a>(
    rows: &'a [Measured],
    source: &str,
    wanted: impl Fn(&Measured) -> bool,
) -> Vec<&'a Measured> {
    rows.iter().filter(|row| row.source.contains(source) && wanted(row)).collect()
}

/// Fits and judges all links.
pub(crate) fn calibrate(record: &mut Record) -> Result<(), Box<dyn Error>> {
    let rows: Vec<Measured> =
        data::rows("collectives.csv")?.iter().filter_map(measured).collect();
    head("Links between A100s");
    a100(&rows, record);
    head("Links between V100s of one node");
    v100(&rows, record);
    Ok(())
}

fn a100(rows: &[Measured], record: &mut Record) {
    let inside = select(rows, "Echo", |row| row.members <= NODE);
    let nowhere = Link::plain("none", BytesPerSecond(1), Nanos(0));
    let within = |x| target(Constants::of(x).link(&[Form::Ring]), nowhere.clone());
    let start = [220e9, 2e3, 50e3, 40e9, 3e3];
    let best = fit(start, |x| loss(&pairs(&within(x), &inside)));
    Constants::of(best).record("a100_nvlink", record);
    report("one node, fitted (Echo)", &pairs(&within(best), &inside));
    let other = select(rows, "trace/a100", |_| true);
    report("one node, held out (vTrain)", &pairs(&within(best), &other));
    let inner = Constants::of(best).link(&[Form::Ring]);
    let forms = [Form::Rails, Form::Tree];
    let across = |x| target(inner.clone(), Constants::of(x).link(&forms));
    let nodes = |sizes: [u64; 2]| select(rows, "Echo", |r| sizes.contains(&r.members));
    let seen = nodes([16, 64]);
    let start = [16e9, 16e3, 40e3, 4e9, 4e3];
    let best = fit(start, |x| loss(&pairs(&across(x), &seen)));
    Constants::of(best).record("infiniband_200", record);
    report("2 and 8 nodes, fitted (Echo)", &pairs(&across(best), &seen));
    let held_out = nodes([32, 128]);
    report("4 and 16 nodes, held out (Echo)", &pairs(&across(best), &held_out));
    let halved = [best[0] / 2.0, best[1], best[2], best[3] / 2.0, best[4]];
    let plateaus = select(rows, "nccl-tests", |row| row.members > NODE);
    report("plateaus of 4 ports, held out", &pairs(&across(halved), &plateaus));
}

/// Groups of 2, 4 and 8 have links of their own: the cube mesh gives them more rings.
fn v100(rows: &[Measured], record: &mut Record) {
    let nowhere = Link::plain("none", BytesPerSecond(1), Nanos(0));
    let all_reduce = Kind::Collective(Collective::AllReduce);
    for (name, members, bandwidth) in
        [("v100_pair", 2, 40e9), ("v100_quad", 4, 78e9), ("v100_cube", 8, 130e9)]
    {
        let of = |x| target(Constants::of(x).link(&[Form::Ring]), nowhere.clone());
        let own = |row: &Measured| row.members == members && row.per_node > 1;
        let seen = select(rows, "Aceso", |row| own(row) && row.kind == all_reduce);
        let start = [bandwidth, 3e3, 50e3, 20e9, 3e3];
        let best = fit(start, |x| loss(&pairs(&of(x), &seen)));
        Constants::of(best).record(name, record);
        let table = |text: &str, rows: &[&Measured]| {
            report(&format!("{members} GPUs, {text}"), &pairs(&of(best), rows));
        };
        table("all-reduce, fitted (Aceso)", &seen);
        let others = select(rows, "Aceso", |row| own(row) && row.kind != all_reduce);
        table("other kinds, held out (Aceso)", &others);
        let elsewhere = select(rows, "trace/v100", |row| own(row) && row.gpu == "V100");
        table("all-reduce, held out (vTrain)", &elsewhere);
    }
}
