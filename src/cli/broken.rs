//! What a plan that is given breaks of its program: lines that it does not keep are told and the plan
//! is taken; a weaker class of gradients and too little memory refuse it.

use super::load::Loaded;
use roundelay::{
    Diagnostic, Plan,
    parts::{
        dsl::{Code, PlanLine, Severity, SourcePlace},
        planner::{self, Breach, Shortfall, TooWeak},
        schedule::Bytes,
    },
};

/// One warning for every line of the program that a plan does not keep, in the order of the lines.
pub(super) fn lines(plan: &Plan, loaded: &Loaded) -> Vec<Diagnostic> {
    let breaches = planner::breaches(plan, &loaded.program);
    let mut all: Vec<Diagnostic> =
        breaches.iter().map(|breach| warning(breach, loaded)).collect();
    all.sort_by_key(|diagnostic| (diagnostic.place.line, diagnostic.place.column));
    all
}

fn warning(breach: &Breach, loaded: &Loaded) -> Diagnostic {
    let line = loaded.lines.of_key(breach.key).nth(breach.number);
    let says = match line {
        Some(line) => format!("the program says `{}`", line.text),
        None => format!("the program has another `{}`", breach.key),
    };
    Diagnostic {
        severity: Severity::Warning,
        message: format!("the plan has {}, {says}", breach.has),
        hints: vec!["the plan is taken as it stands; mend it or this line".to_owned()],
        ..at(line, loaded)
    }
}

/// Why a plan is refused whose gradients are of a weaker class than the program allows.
pub(super) fn exactness(refused: &TooWeak, loaded: &Loaded) -> Diagnostic {
    let line = loaded.lines.of_key("exactness").next();
    let (line, says) = match line {
        Some(_) => (line, ""),
        None => (loaded.lines.of_key("rule").next(), " where it has no line `exactness`"),
    };
    let class = refused.class;
    let hints = vec![format!("write `exactness {class}` in `plan {{ … }}` to allow it")];
    Diagnostic { message: format!("{refused}{says}"), hints, ..at(line, loaded) }
}

/// Why a plan is refused that takes more of a device than the program allows; none where the device
/// itself has too little.
pub(super) fn memory(short: &Shortfall, loaded: &Loaded) -> Option<Diagnostic> {
    let own = short.kept_back(&loaded.program)?;
    let line = loaded.lines.of_key("memory").next();
    let says = line.map_or("the bound of `memory`", |line| &line.text);
    let exact = |bytes: Bytes| planner::exact(bytes.0);
    let (needed, bound) = (exact(short.needed), exact(short.capacity));
    let message = format!("the plan breaks `{says}`: {short}");
    let way_out = match short.needed <= own {
        true => format!("; `memory <= {needed}`"),
        false => format!(", and the device has no more than {}", exact(own)),
    };
    let hints = vec![format!("it needs {needed}, {bound} are allowed{way_out}")];
    Some(Diagnostic { message, hints, ..at(line, loaded) })
}

/// An error at a line, or at the block that lacks it.
fn at(line: Option<&PlanLine>, loaded: &Loaded) -> Diagnostic {
    let place: &SourcePlace = line.map_or(&loaded.lines.block, |line| &line.place);
    Diagnostic {
        code: Code::Plan,
        severity: Severity::Error,
        place: Box::new(place.clone()),
        message: String::new(),
        hints: Vec::new(),
        labels: Vec::new(),
    }
}
