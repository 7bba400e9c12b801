//! What all files of a program define, by name, and which of it the program is about.

use super::{plan::KEYS, scope::reserved};
use crate::{
    Code, Mistake, Span,
    operators::{metric, operator},
    report::{Known, Report, duplicate},
    syntax::{Block, Cluster, Component, File, Item, Model, Name, Section},
};
use std::collections::BTreeMap;

/// Definitions of all files.
#[derive(Default)]
pub(crate) struct Definitions<'a> {
    /// Blocks, by name.
    pub(super) blocks: BTreeMap<&'a str, &'a Block>,
    /// Devices, by name.
    pub(super) devices: BTreeMap<&'a str, &'a Component>,
    /// Links, by name.
    pub(super) links: BTreeMap<&'a str, &'a Component>,
    /// Items that could not be read.
    broken: usize,
    /// Models, with the number of their file.
    models: Vec<(usize, &'a Model)>,
    /// Clusters, with the number of their file.
    clusters: Vec<(usize, &'a Cluster)>,
    /// Training sections, with the number of their file.
    trains: Vec<(usize, &'a Section)>,
    /// Plan sections, with the number of their file.
    plans: Vec<(usize, &'a Section)>,
}

impl<'a> Definitions<'a> {
    /// Collects what the files define.
    pub(crate) fn collect(files: &'a [File], report: &mut Report) -> Self {
        let mut all = Self::default();
        for (number, file) in files.iter().enumerate() {
            all.broken += file.broken;
            file.items.iter().for_each(|item| all.add(number, item, report));
        }
        for (what, sections) in [("train", &mut all.trains), ("plan", &mut all.plans)] {
            let what = format!("`{what}` section");
            keep_first(&what, sections, |section| section.span, report);
        }
        keep_first("model", &mut all.models, |model| model.name.span, report);
        keep_first("cluster", &mut all.clusters, |cluster| cluster.name.span, report);
        all.tell_apart(report);
        all
    }

    /// What `--set` changes by name is called like nothing else that it changes.
    fn tell_apart(&self, report: &mut Report) {
        for (name, link) in &self.links {
            if let Some(device) = self.devices.get(name) {
                let message = format!("link `{name}` is called like a device");
                let mistake = Mistake::new(Code::Duplicate, message)
                    .hint("give one of the two another name, so that `--set` can tell them apart");
                let labels = vec![(device.name.span, "the device is here".to_owned())];
                report.error_with(link.name.span, mistake, labels);
            }
        }
        let parts = [("device", &self.devices), ("link", &self.links)];
        for (what, parts) in parts {
            let called = parts.values().filter(|part| KEYS.contains(&&*part.name.text));
            for Component { name, .. } in called {
                let name_text = &name.text;
                let message = format!(
                    "`--set` cannot reach {what} `{name_text}`, because a word of `plan` is called \
                     like that"
                );
                let mistake = Mistake::new(Code::Duplicate, message);
                report.warning(name.span, mistake.hint("give it another name"));
            }
        }
    }

    fn add(&mut self, file: usize, item: &'a Item, report: &mut Report) {
        match item {
            Item::Import(_) => {}
            Item::Model(model) => self.models.push((file, model)),
            Item::Cluster(cluster) => self.clusters.push((file, cluster)),
            Item::Train(section) => self.trains.push((file, section)),
            Item::Plan(section) => self.plans.push((file, section)),
            Item::Device(device) => {
                define("device", &device.name, device, &mut self.devices, report, |d| {
                    &d.name
                });
            }
            Item::Link(link) => {
                define("link", &link.name, link, &mut self.links, report, |l| &l.name);
            }
            Item::Block(block) => {
                if let Some(mistake) = hides(&block.name.text) {
                    report.error(block.name.span, mistake);
                    return;
                }
                check_formals(&block.formals, report);
                define("block", &block.name, block, &mut self.blocks, report, |b| {
                    &b.name
                });
            }
        }
    }

    /// The first device or link of the main file, with the word for it.
    pub(super) fn first_part(&self) -> Option<(&'static str, &'a Name)> {
        let devices = self.devices.values().map(|device| ("device", &device.name));
        let links = self.links.values().map(|link| ("link", &link.name));
        let own = devices.chain(links).filter(|(_, name)| name.span.file == 0);
        own.min_by_key(|(_, name)| name.span)
    }

    /// Passes when every item could be read; else what is missing may be in a broken one.
    pub(super) fn only_if_whole(&self, report: &Report) -> Known<()> {
        if self.broken == 0 { Ok(()) } else { Err(report.earlier()) }
    }

    /// The model that is trained: that of the main file, else the only one that is imported.
    pub(super) fn model(&self, report: &mut Report) -> Known<&'a Model> {
        let model = chosen("model", &self.models);
        if let Some(model) = model.map_err(|m| report.error(beginning(), m))? {
            return Ok(model);
        }
        self.only_if_whole(report)?;
        let mistake = Mistake::new(Code::Missing, "there is no model");
        let hint = "write `model NAME { … }`, or import a file that has one";
        Err(report.error(beginning(), mistake.hint(hint)))
    }

    /// The cluster that is trained on, chosen likewise.
    pub(super) fn cluster(&self) -> Result<Option<&'a Cluster>, Mistake> {
        chosen("cluster", &self.clusters)
    }

    /// How to train, chosen likewise.
    pub(super) fn train(&self) -> Result<Option<&'a Section>, Mistake> {
        chosen("train section", &self.trains)
    }

    /// What may be planned, chosen likewise.
    pub(crate) fn plan(&self) -> Result<Option<&'a Section>, Mistake> {
        chosen("plan section", &self.plans)
    }

    /// Training sections of imported files, where that of the main file counts.
    pub(super) fn other_trains(&self) -> impl Iterator<Item = &'a Section> {
        outdone(&self.trains)
    }

    /// Plan sections of imported files, where that of the main file counts.
    pub(super) fn other_plans(&self) -> impl Iterator<Item = &'a Section> {
        outdone(&self.plans)
    }
}

fn define<'a, T>(
    what: &str,
    name: &'a Name,
    item: &'a T,
    known: &mut BTreeMap<&'a str, &'a T>,
    report: &mut Report,
    name_of: fn(&T) -> &Name,
) {
    match known.get(name.text.as_str()) {
        None => _ = known.insert(&name.text, item),
        Some(first) => {
            let labels = vec![(name_of(first).span, "first defined here".to_owned())];
            report.error_with(name.span, duplicate(what, &name.text), labels);
        }
    }
}

/// Why a block cannot have a name: something else is called like that.
fn hides(name: &str) -> Option<Mistake> {
    let what = match (operator(name), metric(name)) {
        (Some(_), _) => "an operator",
        (None, Some(_)) => "a metric",
        (None, None) => return None,
    };
    let mistake = Mistake::new(Code::Duplicate, format!("`{name}` is {what}"));
    Some(mistake.hint("give the block another name"))
}

/// The arguments of a block have names of their own.
fn check_formals(formals: &[Name], report: &mut Report) {
    let mut known = BTreeMap::new();
    for formal in formals {
        if let Some(mistake) = reserved(&formal.text) {
            report.error(formal.span, mistake);
        }
        define("argument", formal, formal, &mut known, report, |formal| formal);
    }
}

/// Refuses all but the first of what a file has one of; an imported one is something else.
fn keep_first<T>(
    what: &str,
    all: &mut Vec<(usize, &T)>,
    span: impl Fn(&T) -> Span,
    report: &mut Report,
) {
    let mut first: Option<(usize, Span)> = None;
    all.retain(|(file, item)| match first {
        Some((own, place)) if own == *file => {
            let message = format!("a file has one {what}, found a second");
            let labels = vec![(place, "the first is here".to_owned())];
            let hint =
                "leave one out; others may stand in files that import what they need";
            let mistake = Mistake::new(Code::Duplicate, message).hint(hint);
            report.error_with(span(item), mistake, labels);
            false
        }
        Some(_) | None => {
            first = Some((*file, span(item)));
            true
        }
    });
}

fn chosen<'a, T>(what: &str, all: &[(usize, &'a T)]) -> Result<Option<&'a T>, Mistake> {
    let main = all.iter().find(|(file, _)| *file == 0);
    match (main, all) {
        (Some((_, item)), _) | (None, [(_, item)]) => Ok(Some(item)),
        (None, []) => Ok(None),
        (None, several) => {
            let message = format!("the imported files have {} {what}s", several.len());
            let hint = "import only one of them, or write it in the main file";
            Err(Mistake::new(Code::Duplicate, message).hint(hint))
        }
    }
}

/// What the main file's own stands over.
fn outdone<'a, T>(all: &[(usize, &'a T)]) -> impl Iterator<Item = &'a T> {
    let is_said = all.iter().any(|(file, _)| *file == 0);
    let others = all.iter().filter(move |(file, _)| is_said && *file != 0);
    others.map(|(_, item)| *item)
}

/// Where mistakes about the whole program are shown.
pub(super) fn beginning() -> Span {
    Span::default()
}
