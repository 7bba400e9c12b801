//! Clusters: nested groups of devices to the devices, pools and domains of a [`Target`].

use super::{
    constant::constant,
    definitions::{Definitions, beginning},
    measured::{Shelf, Tables},
    settings::{Settings, quantity},
};
use crate::{
    Code, Dimension, Mistake, NoFiles, Span, Value, import, limit, near, parse,
    report::{Known, Report},
    syntax::{Cluster, Component, Entry, Expression, File, Group, Item, Name, Whole},
};
use roundelay_schedule::{
    Bytes, BytesPerSecond, Device, DeviceId, Domain, FlopsPerSecond, Id, Link, LinkId,
    Nanos, Pool, PoolId, Profile, Target,
};
use std::{collections::BTreeMap, sync::Arc};

/// Tables of the devices that name one.
type Profiles = BTreeMap<DeviceId, Arc<Profile>>;

/// The cluster that is trained on; one plain device when the program describes none.
pub(super) fn resolve(
    definitions: &Definitions<'_>,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<(Target, Profiles)> {
    check_components(definitions, shelf, report);
    match definitions.cluster().map_err(|m| report.error(beginning(), m))? {
        Some(cluster) => expand(definitions, cluster, shelf, report),
        None => Ok((plain(), Profiles::new())),
    }
}

/// One plain device, `core`.
pub(crate) fn plain() -> Target {
    let text = import::embedded("roundelay:devices/core.rdl").unwrap_or_default();
    let (File { items, .. }, _) = parse::file(text, 0);
    let mut report = Report::default();
    let core = items.iter().find_map(|item| match item {
        Item::Device(device) => {
            let mut shelf = Shelf::new(&NoFiles, Tables::Leave);
            device_of(device, &mut shelf, &mut report).ok().map(|(device, _)| device)
        }
        Item::Import(_)
        | Item::Model(_)
        | Item::Block(_)
        | Item::Link(_)
        | Item::Cluster(_)
        | Item::Train(_)
        | Item::Plan(_) => None,
    });
    let core = core.expect("the embedded file describes one device");
    let mut target = Target { name: "core".into(), ..Target::default() };
    let pool = Pool { name: "core".into(), capacity: core.memory };
    let pool = target.pools.push(pool);
    target.devices.push(Device { pool, ..core });
    target
}

/// Every device and link is checked, used or not.
fn check_components(
    definitions: &Definitions<'_>,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) {
    for device in definitions.devices.values() {
        let _: Known<_> = device_of(device, shelf, report);
    }
    for link in definitions.links.values() {
        let _: Known<Link> = link_of(link, shelf, report);
    }
}

/// `device NAME { memory …, compute …, bandwidth …, threads …, overhead …, measured "…" }`, and
/// its table; its pool is set later.
fn device_of(
    component: &Component,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<(Device, Option<Arc<Profile>>)> {
    const KEYS: [&str; 6] =
        ["memory", "compute", "bandwidth", "threads", "overhead", "measured"];
    let Component { name, entries } = component;
    let settings = Settings::new("device", entries, &KEYS, report);
    let memory = settings.required("memory", Dimension::Memory, name, report);
    let compute = settings.required("compute", Dimension::FlopRate, name, report);
    let bandwidth = settings.required("bandwidth", Dimension::ByteRate, name, report);
    let threads = settings.whole("threads", 1, 1 << 10, report);
    let overhead = settings.quantity("overhead", Dimension::Time, report);
    let profile = shelf.profile(settings.get("measured"), report);
    let device = Device {
        name: name.text.clone(),
        pool: Id::new(0),
        memory: Bytes(memory?),
        compute: FlopsPerSecond(compute?),
        bandwidth: BytesPerSecond(bandwidth?),
        threads: threads?.and_then(|threads| u32::try_from(threads).ok()).unwrap_or(1),
        overhead: Nanos(overhead?.unwrap_or(0)),
    };
    let profile = profile?;
    if let Some(profile) = &profile {
        shelf.check_threads(profile, device.threads, name, report)?;
    }
    Ok((device, profile))
}

/// `link NAME { bandwidth …, latency … }` or `link NAME { measured "…" }`.
fn link_of(
    component: &Component,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<Link> {
    const KEYS: [&str; 3] = ["bandwidth", "latency", "measured"];
    let Component { name, entries } = component;
    let settings = Settings::new("link", entries, &KEYS, report);
    if let Some(entry) = settings.get("measured") {
        return measured_link(&settings, entry, name, shelf, report);
    }
    let bandwidth = settings.required("bandwidth", Dimension::ByteRate, name, report);
    let latency = settings.required("latency", Dimension::Time, name, report);
    Ok(Link::plain(&name.text, BytesPerSecond(bandwidth?), Nanos(latency?)))
}

/// A link whose rate and latency are those of a table.
fn measured_link(
    settings: &Settings<'_>,
    entry: &Entry,
    name: &Name,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<Link> {
    let profile = shelf.profile(Some(entry), report);
    for key in ["bandwidth", "latency"] {
        if let Some(given) = settings.get(key) {
            let message = format!("`{key}` comes from the table");
            let mistake = Mistake::new(Code::Duplicate, message);
            let hint = format!("delete `{key}` or `measured`");
            return Err(report.error(given.key.span, mistake.hint(hint)));
        }
    }
    let nominal = (BytesPerSecond(8_000_000_000), Nanos(2_000));
    let of = |profile: Arc<Profile>| (profile.copies.bandwidth, profile.copies.latency);
    let (bandwidth, latency) = profile?.map_or(nominal, of);
    Ok(Link::plain(&name.text, bandwidth, latency))
}

fn expand(
    definitions: &Definitions<'_>,
    cluster: &Cluster,
    shelf: &mut Shelf<'_>,
    report: &mut Report,
) -> Known<(Target, Profiles)> {
    let errors = report.errors();
    let mut tiers: BTreeMap<&str, &Group> = BTreeMap::new();
    for (name, group) in &cluster.tiers {
        if definitions.devices.contains_key(name.text.as_str()) {
            let message = format!("`{}` is a device already", name.text);
            report.error(name.span, Mistake::new(Code::Duplicate, message));
        }
        if tiers.insert(&name.text, group).is_some() {
            report.error(name.span, crate::report::duplicate("tier", &name.text));
        }
    }
    let whole = match &cluster.whole {
        Whole::Group(whole) => whole,
        Whole::Broken => return Err(report.earlier()),
        Whole::Missing => {
            let message = format!("cluster `{}` names no devices", cluster.name.text);
            let mistake = Mistake::new(Code::Missing, message);
            let hint = "end it with a group such as `4 x core joined by bus`";
            return Err(report.error(cluster.name.span, mistake.hint(hint)));
        }
    };
    let mut expansion = Expansion::new(definitions, tiers, shelf, report);
    expansion.target.name = cluster.name.text.clone();
    expansion.group(&cluster.name.text, whole, None, 0)?;
    let Expansion { target, profiles, .. } = expansion;
    match report.errors() > errors {
        true => Err(report.earlier()),
        false => Ok((target, profiles)),
    }
}

/// A cluster that grows device by device.
struct Expansion<'a, 's> {
    definitions: &'a Definitions<'a>,
    tiers: BTreeMap<&'a str, &'a Group>,
    shelf: &'a mut Shelf<'s>,
    report: &'a mut Report,
    target: Target,
    profiles: Profiles,
    links: BTreeMap<&'a str, LinkId>,
    numbers: BTreeMap<&'a str, u32>,
}

impl<'a, 's> Expansion<'a, 's> {
    fn new(
        definitions: &'a Definitions<'a>,
        tiers: BTreeMap<&'a str, &'a Group>,
        shelf: &'a mut Shelf<'s>,
        report: &'a mut Report,
    ) -> Self {
        Self {
            definitions,
            tiers,
            shelf,
            report,
            target: Target::default(),
            profiles: Profiles::new(),
            links: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// All devices of a group, in order; then the domain that joins them.
    fn group(
        &mut self,
        name: &str,
        group: &'a Group,
        pool: Option<PoolId>,
        depth: usize,
    ) -> Known<()> {
        let shared = match &group.sharing {
            None => pool,
            Some(sharing) => Some(self.pool(name, sharing, pool)?),
        };
        let first = self.count();
        for (count, member) in &group.members {
            let times = self.times(count)?;
            for _ in 0..times {
                self.member(member, shared, depth)?;
            }
        }
        if let Some(link) = &group.link {
            let link = self.link(link)?;
            let devices = first..self.count();
            self.target.domains.push(Domain { link, devices });
        }
        Ok(())
    }

    fn count(&self) -> u32 {
        crate::source::count(self.target.devices.len())
    }

    /// `sharing 8 GB`.
    fn pool(
        &mut self,
        name: &str,
        sharing: &Expression,
        outer: Option<PoolId>,
    ) -> Known<PoolId> {
        if outer.is_some() {
            let message = "the group around this one shares its memory already";
            let mistake = Mistake::new(Code::Duplicate, message);
            return Err(self.report.error(sharing.span, mistake));
        }
        let capacity = Bytes(quantity(sharing, Dimension::Memory, self.report)?);
        Ok(self.target.pools.push(Pool { name: name.to_owned(), capacity }))
    }

    fn times(&mut self, count: &Expression) -> Known<u64> {
        let value = constant(count, self.report)?;
        match value {
            Value::Integer(times @ 1..) => Ok(times.unsigned_abs()),
            _ => {
                let mistake = Mistake::new(Code::Value, "a group has at least 1 member");
                Err(self.report.error(count.span, mistake))
            }
        }
    }

    /// A device, or a tier that stands above; tiers nest as deep as there are tiers.
    fn member(
        &mut self,
        name: &'a Name,
        pool: Option<PoolId>,
        depth: usize,
    ) -> Known<()> {
        if let Some(tier) = self.tiers.get(name.text.as_str()).copied() {
            if depth >= self.tiers.len().min(usize::from(limit::DEPTH)) {
                let message = format!("tier `{}` holds itself", name.text);
                return self.fail(name.span, Mistake::new(Code::Value, message));
            }
            return self.group(&name.text, tier, pool, depth + 1);
        }
        let Some(component) = self.definitions.devices.get(name.text.as_str()) else {
            return self.unknown_member(name);
        };
        self.device(component, name, pool)
    }

    fn device(
        &mut self,
        component: &'a Component,
        name: &Name,
        pool: Option<PoolId>,
    ) -> Known<()> {
        if u64::from(self.count()) >= limit::DEVICES {
            let message = format!("a cluster has at most {} devices", limit::DEVICES);
            return self.fail(name.span, Mistake::new(Code::Limit, message));
        }
        let (device, profile) = device_of(component, self.shelf, self.report)?;
        let number = self.numbers.entry(&component.name.text).or_default();
        let label = format!("{}.{number}", component.name.text);
        *number += 1;
        let own = Pool { name: label.clone(), capacity: device.memory };
        let pool = pool.unwrap_or_else(|| self.target.pools.push(own));
        let capacity = self.target.pools[pool].capacity;
        let memory = device.memory.min(capacity);
        let id = self.target.devices.push(Device { name: label, pool, memory, ..device });
        if let Some(profile) = profile {
            let host = &mut self.target.host;
            host.wake = host.wake.max(profile.wake);
            self.profiles.insert(id, profile);
        }
        Ok(())
    }

    fn link(&mut self, name: &'a Name) -> Known<LinkId> {
        if let Some(id) = self.links.get(name.text.as_str()) {
            return Ok(*id);
        }
        let Some(component) = self.definitions.links.get(name.text.as_str()) else {
            return self.unknown_link(name);
        };
        let link = link_of(component, self.shelf, self.report)?;
        let id = self.target.links.push(link);
        self.links.insert(&name.text, id);
        Ok(id)
    }

    fn unknown_member<T>(&mut self, name: &Name) -> Known<T> {
        self.definitions.only_if_whole(self.report)?;
        let known = self.definitions.devices.keys().chain(self.tiers.keys()).copied();
        let mistake = near::unknown("device or tier", &name.text, known);
        self.fail(name.span, mistake.hint("write `device NAME { … }`, or import it"))
    }

    fn unknown_link<T>(&mut self, name: &Name) -> Known<T> {
        self.definitions.only_if_whole(self.report)?;
        let known = self.definitions.links.keys().copied();
        let mistake = near::unknown("link", &name.text, known);
        self.fail(name.span, mistake.hint("write `link NAME { … }`, or import it"))
    }

    fn fail<T>(&mut self, span: Span, mistake: Mistake) -> Known<T> {
        Err(self.report.error(span, mistake))
    }
}
