//! What `--set` may have meant by a name that it does not know: the nearest key in full, and the
//! links of a cluster for whoever names the cluster instead.

use super::{
    changed::LINK,
    objective::RESULT_KEYS,
    plan::{TENSOR, all_keys},
};
use crate::{Code, Mistake, Program, Span, near, syntax::Entry};
use std::collections::BTreeSet;

/// A first name that no part and no decision has.
pub(super) fn unknown_part(program: &Program, name: &str) -> Mistake {
    let what = "decision, device, link or shared memory";
    let mistake = Mistake::new(Code::UnknownName, format!("unknown {what} `{name}`"));
    if name == program.target.name {
        return mistake.hint(links(program));
    }
    let mut names = program.part_names();
    names.extend(all_keys().into_iter().map(str::to_owned));
    let full = full_keys(program);
    let known = names.iter().map(String::as_str);
    let inner = full.iter().map(|(key, _)| *key);
    let all: Vec<&str> = known.clone().chain(inner).collect();
    match near::nearest(name, &all) {
        Some(found) if !names.iter().any(|name| name == found) => {
            let meant = full.iter().filter(|(key, _)| *key == found);
            let meant: Vec<String> = meant.map(|(_, full)| format!("`{full}`")).collect();
            mistake.hint(format!("did you mean {}?", meant.join(" or ")))
        }
        _ => mistake.near(name, known),
    }
}

/// What links have, set of a memory that a group shares: groups have no bandwidth of their own.
pub(super) fn unknown_key(
    program: &Program,
    name: &str,
    entries: &[Entry],
    known: &[&str],
) -> Option<(Span, Mistake)> {
    let is_tier = program.target.pools.values().any(|pool| pool.name == name)
        || name == "cluster"
        || name == program.target.name;
    let of_links = |entry: &&Entry| {
        let key = entry.key.text.as_str();
        LINK.contains(&key) && !known.contains(&key)
    };
    let entry = entries.iter().find(of_links).filter(|_| is_tier)?;
    let message = format!("`{name}` is no link, so it has no `{}`", entry.key.text);
    Some((entry.key.span, Mistake::new(Code::UnknownKey, message).hint(links(program))))
}

/// The links of the cluster, innermost first.
fn links(program: &Program) -> String {
    let target = &program.target;
    let mut told = BTreeSet::new();
    let links = target.domains.iter().map(|domain| &target.links[domain.link].name);
    let links: Vec<String> = links
        .filter(|name| told.insert(name.as_str()))
        .map(|name| format!("`{name}`"))
        .collect();
    match &links[..] {
        [] => format!("cluster `{}` has no links", target.name),
        [first, ..] => format!(
            "the links of cluster `{}` are {}, innermost first; write `{}.bandwidth = …`",
            target.name,
            links.join(", "),
            first.trim_matches('`')
        ),
    }
}

/// Every key that stands behind a name, and both.
fn full_keys(program: &Program) -> BTreeSet<(&'static str, String)> {
    let names: BTreeSet<String> = program.part_names().into_iter().collect();
    let of_parts = names.iter().flat_map(|name| {
        program.parts(name).into_iter().map(move |key| (key, format!("{name}.{key}")))
    });
    let of_decisions = [("tensor", &TENSOR[..]), ("result", &RESULT_KEYS)];
    let of_decisions = of_decisions.into_iter().flat_map(|(name, keys)| {
        keys.iter().map(move |key| (*key, format!("{name}.{key}")))
    });
    of_parts.chain(of_decisions).collect()
}
