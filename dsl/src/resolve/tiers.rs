//! The named groups of a cluster: each holds devices and tiers above it, and each is held.

use super::definitions::Definitions;
use crate::{
    Code, Mistake,
    report::{Known, Report, duplicate},
    syntax::{Cluster, Group, Name, Whole},
};
use std::collections::{BTreeMap, BTreeSet};

/// The tiers of a cluster by name, where each stands above whatever holds it; those that nothing
/// holds are warned of.
pub(super) fn tiers<'a>(
    definitions: &Definitions<'_>,
    cluster: &'a Cluster,
    report: &mut Report,
) -> Known<BTreeMap<&'a str, &'a Group>> {
    let errors = report.errors();
    let mut named: BTreeMap<&str, (usize, &Name)> = BTreeMap::new();
    for (place, (name, _)) in cluster.tiers.iter().enumerate() {
        if definitions.devices.contains_key(name.text.as_str()) {
            let message = format!("`{}` is a device already", name.text);
            report.error(name.span, Mistake::new(Code::Duplicate, message));
        }
        if let Some((_, first)) = named.insert(&name.text, (place, name)) {
            let labels = vec![(first.span, "first defined here".to_owned())];
            report.error_with(name.span, duplicate("tier", &name.text), labels);
        }
    }
    let places = named.iter().map(|(name, (place, _))| (*name, *place)).collect();
    for (place, (name, group)) in cluster.tiers.iter().enumerate() {
        let below = |member: &&Name| held(&places, member).is_some_and(|at| at >= place);
        for member in members(group).filter(below) {
            report.error(member.span, misplaced(cluster, &places, (place, name), member));
        }
    }
    if report.errors() > errors {
        return Err(report.earlier());
    }
    warn_of_idle(cluster, &places, report);
    Ok(cluster.tiers.iter().map(|(name, group)| (name.text.as_str(), group)).collect())
}

/// Where the tiers stand among the lines of a cluster.
type Places<'a> = BTreeMap<&'a str, usize>;

fn members(group: &Group) -> impl Iterator<Item = &Name> {
    group.members.iter().map(|(_, name)| name)
}

fn held(places: &Places<'_>, member: &Name) -> Option<usize> {
    places.get(member.text.as_str()).copied()
}

/// A tier that is held by itself, or by one that stands above it.
fn misplaced(
    cluster: &Cluster,
    places: &Places<'_>,
    (place, name): (usize, &Name),
    member: &Name,
) -> Mistake {
    let from: Vec<usize> = held(places, member).into_iter().collect();
    if reached(cluster, places, from).contains(&place) {
        let message = format!("tier `{}` holds itself", name.text);
        return Mistake::new(Code::Value, message);
    }
    let (name, member) = (&name.text, &member.text);
    let message = format!("tier `{member}` stands below `{name}`, which holds it");
    let hint = format!("write `{member} = …` above `{name} = …`");
    Mistake::new(Code::Value, message).hint(hint)
}

/// Tiers, and all that they hold.
fn reached(
    cluster: &Cluster,
    places: &Places<'_>,
    mut open: Vec<usize>,
) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    while let Some(place) = open.pop() {
        if all.insert(place) {
            open.extend(
                members(&cluster.tiers[place].1).filter_map(|name| held(places, name)),
            );
        }
    }
    all
}

/// Tiers that the last line does not hold, itself or by others.
fn warn_of_idle(cluster: &Cluster, places: &Places<'_>, report: &mut Report) {
    let Whole::Group(whole) = &cluster.whole else { return };
    let first = members(whole).filter_map(|name| held(places, name)).collect();
    let used = reached(cluster, places, first);
    for (place, (name, _)) in cluster.tiers.iter().enumerate() {
        if !used.contains(&place) {
            let cluster = &cluster.name.text;
            let message = format!("tier `{}` is not part of `{cluster}`", name.text);
            let hint = format!(
                "the last line says what `{cluster}` is, such as `2 x {}`; or leave the tier out",
                name.text
            );
            report.warning(name.span, Mistake::new(Code::Unused, message).hint(hint));
        }
    }
}
