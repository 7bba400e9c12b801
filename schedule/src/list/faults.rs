//! What is wrong with the lists of a pipeline's devices: every fault with its place and
//! what would mend it.

use super::{DeviceList, Item, Listed, item_times, times::needs};
use crate::{Id, MicroBatch, Pass, Plan, Stage, Units};
use std::{collections::BTreeMap, fmt};

/// Something wrong in the lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListFault {
    /// The device, and the place in its list: of the first pass of a stage that misses
    /// others, none where a stage has no pass.
    pub place: Option<(usize, usize)>,
    /// What is wrong, as a sentence without full stop.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// Everything that keeps these lists from being one training step of `stages` stages on
/// `micro_batches` micro-batches: each pass once, each stage on one device, a backward
/// pass after its forward pass, and an order in which all devices come to their ends.
pub fn list_faults(
    lists: &[DeviceList],
    stages: u32,
    micro_batches: u32,
) -> Vec<ListFault> {
    let mut faults = Faults { size: (stages, micro_batches), ..Faults::default() };
    for (device, list) in lists.iter().enumerate() {
        for (index, item) in list.iter().enumerate() {
            for listed in item.passes() {
                faults.read((device, index), *listed);
            }
            faults.beside((device, index), *item);
        }
    }
    if faults.found.is_empty() {
        faults.missing();
        faults.order();
    }
    if faults.found.is_empty() {
        faults.stuck(lists, stages);
    }
    faults.found
}

/// Everything that is wrong in the lists of a plan; under an order that is found each
/// stage is on the device that the order says.
pub fn plan_faults(plan: &Plan) -> Vec<ListFault> {
    let mut faults = list_faults(&plan.lists, plan.stages, plan.micro_batches);
    if !plan.order.is_found() {
        return faults;
    }
    for (device, list) in plan.lists.iter().enumerate() {
        let is_away = |listed: &Listed| {
            plan.seat(listed.stage.number()).map(|seat| seat as usize) != Some(device)
        };
        let all = list.iter().enumerate();
        let mut all =
            all.flat_map(|(at, item)| item.passes().iter().map(move |l| (at, l)));
        let away = all.find(|(_, listed)| is_away(listed));
        faults.extend(away.map(|(place, listed)| ListFault {
            place: Some((device, place)),
            message: format!("{listed} is not on its device under {}", plan.order),
            hint: "write `order: listed` for lists of your own".to_owned(),
        }));
    }
    let (found, wanted) = (plan.lists.len(), plan.pipeline_devices() as usize);
    if faults.is_empty() && found != wanted {
        faults.push(ListFault {
            place: None,
            message: format!("{found} lists are not one for each of {wanted} devices"),
            hint: "drop those that are empty".to_owned(),
        });
    }
    faults
}

/// A device, and a place in its list.
type At = (usize, usize);

#[derive(Default)]
struct Faults {
    /// S and N.
    size: (u32, u32),
    first: BTreeMap<Listed, At>,
    home: BTreeMap<Stage, At>,
    found: Vec<ListFault>,
}

impl Faults {
    fn push(&mut self, at: Option<At>, message: String, hint: &str) {
        self.found.push(ListFault { place: at, message, hint: hint.to_owned() });
    }

    fn read(&mut self, at: At, listed: Listed) {
        let (stages, micro_batches) = self.size;
        let Listed { stage, micro_batch, .. } = listed;
        if stage.index() >= stages as usize {
            let message = format!("{listed} names stage {}", stage.index());
            self.push(Some(at), message, &format!("stages are 0 to {}", stages - 1));
        } else if micro_batch.index() >= micro_batches as usize {
            let message = format!("{listed} names micro-batch {}", micro_batch.index());
            let hint = format!("micro-batches are 0 to {}", micro_batches - 1);
            self.push(Some(at), message, &hint);
        } else {
            self.place(at, listed);
        }
    }

    /// The passes of a pair need nothing of each other: all of a micro-batch's backward
    /// passes come after all its forward passes.
    fn beside(&mut self, at: At, item: Item) {
        let [forward, backward, ..] = item.passes() else { return };
        if forward.micro_batch == backward.micro_batch {
            let message = format!("{backward} needs {forward}, which stands beside it");
            self.push(Some(at), message, "pair passes of different micro-batches");
        }
    }

    fn place(&mut self, at: At, listed: Listed) {
        let (device, _) = at;
        let (home, _) = *self.home.entry(listed.stage).or_insert(at);
        if home != device {
            let message = format!(
                "{listed}: stage {} is on device {home} too",
                listed.stage.index()
            );
            self.push(Some(at), message, "give each stage to one device");
        }
        let first = *self.first.entry(listed).or_insert(at);
        if first != at {
            let message = format!("{listed} stands twice, first in place {}", first.1);
            self.push(Some(at), message, "list each pass once");
        }
    }

    /// Every micro-batch passes every stage forward and backward, whole or in halves.
    fn missing(&mut self) {
        let (stages, micro_batches) = self.size;
        for stage in (0..stages as usize).map(Stage::new) {
            let all = (0..micro_batches as usize).map(MicroBatch::new);
            let has = |pass, micro_batch| {
                self.first.contains_key(&Listed { stage, pass, micro_batch })
            };
            let split = all
                .clone()
                .any(|i| has(Pass::InputGradient, i) || has(Pass::WeightGradient, i));
            let whole = all.clone().any(|i| has(Pass::Backward, i));
            let wanted: &[Pass] = match split {
                true => &[Pass::Forward, Pass::InputGradient, Pass::WeightGradient],
                false => &[Pass::Forward, Pass::Backward],
            };
            let wanted = all.flat_map(|i| wanted.iter().map(move |pass| (*pass, i)));
            let missing: Vec<Listed> = wanted
                .filter(|(pass, i)| !has(*pass, *i))
                .map(|(pass, micro_batch)| Listed { stage, pass, micro_batch })
                .collect();
            if split && whole {
                let at = self.earliest(stage, Pass::Backward);
                let message = format!(
                    "stage {} has whole and split backward passes",
                    stage.index()
                );
                self.push(at, message, "list either B, or I and W, for all of a stage");
            } else if let Some(first) = missing.first() {
                let more = match missing.len() - 1 {
                    0 => String::new(),
                    1 => ", and one more pass of its stage".to_owned(),
                    more => format!(", and {more} more passes of its stage"),
                };
                let message = format!("{first} is missing{more}");
                let home = self.home.get(&stage).copied();
                self.push(home, message, "list every pass of every micro-batch");
            }
        }
    }

    /// Where the first pass of a kind stands.
    fn earliest(&self, stage: Stage, pass: Pass) -> Option<At> {
        let of = |listed: &Listed| (listed.stage, listed.pass) == (stage, pass);
        self.first.iter().filter(|(listed, _)| of(listed)).map(|(_, at)| *at).min()
    }

    /// On its device, a pass stands behind what it needs there, be backward passes whole or in halves.
    fn order(&mut self) {
        let units = Units::one(self.size.0);
        let early = self.first.iter().filter_map(|(listed, at)| {
            let behind = |need: &Listed| {
                let before = self.first.get(need);
                before.is_some_and(|before| before.0 == at.0 && before.1 > at.1)
            };
            let each = [Pass::Backward, Pass::InputGradient].into_iter();
            let needs = each.flat_map(|back| needs(*listed, &units, |_| back));
            Some((*at, *listed, needs.flatten().find(behind)?))
        });
        for (at, listed, need) in early.collect::<Vec<_>>() {
            let hint = format!("move {need} above it");
            self.push(Some(at), format!("{listed} stands above {need}"), &hint);
        }
    }

    fn stuck(&mut self, lists: &[DeviceList], stages: u32) {
        let Err(stuck) = item_times(lists, &Units::one(stages)) else { return };
        for (device, place, listed, missing) in stuck.devices {
            let message = format!("{listed} waits for {missing}, which never comes");
            let hint =
                "the devices wait for each other: move what others need further up";
            self.push(Some((device, place)), message, hint);
        }
    }
}

impl fmt::Display for ListFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((device, place)) = self.place {
            write!(f, "device {device}, place {place}: ")?;
        }
        write!(f, "{}; {}", self.message, self.hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(text: &[&str]) -> Vec<DeviceList> {
        let list = |line: &&str| {
            line.split_whitespace().map(|cell| cell.parse().unwrap()).collect()
        };
        text.iter().map(list).collect()
    }

    fn faults(text: &[&str]) -> Vec<String> {
        list_faults(&lists(text), 2, 2).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lawful_lists_have_no_faults() {
        assert_eq!(faults(&["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]), [""; 0]);
        assert_eq!(faults(&["0F0 0F1 0I0 0W0 0I1 0W1", "1F0 1B0 1F1 1B1"]), [""; 0]);
        let pairs = ["0F0 (0F1;0I0;0W0)OVERLAP_F_B 0I1 0W1", "1F0 1B0 1F1 1B1"];
        assert_eq!(faults(&pairs), [""; 0]);
    }

    #[test]
    fn lists_that_were_found_keep_to_the_devices_of_their_order() {
        use crate::{Order, Placement, Rule, States};
        let (rule, place) = (Rule::Sync, Placement::Pipeline);
        let plan = |order, text: &[&str]| {
            Plan::new(rule, place, order, States::Replicated, 2, vec![1])
                .with_lists(lists(text))
        };
        let (own, other) = ("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1");
        assert_eq!(plan_faults(&plan(Order::ZeroBubbleAuto, &[own, other])), []);
        assert_eq!(plan_faults(&plan(Order::Listed, &[other, own])), []);
        let faults = plan_faults(&plan(Order::ZeroBubbleAuto, &[other, own]));
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert_eq!(faults[0].place, Some((0, 0)));
    }

    #[test]
    fn each_fault_is_told_with_its_place() {
        for (text, told) in [
            (["0F1 0F0 0B0", "1F0 1B0 1F1 1B1"], "device 0, place 0: 0B1 is missing"),
            (
                ["0F0 0B0 0F1 0B1", "1B0 1F0 1F1 1B1"],
                "device 1, place 0: 1B0 stands above 1F0",
            ),
            (
                ["0F0 0F0 0B0 0B1", "1F0 1B0 1F1 1B1"],
                "device 0, place 1: 0F0 stands twice",
            ),
            (
                ["1F0 0F0 0F1 1F1 1B1 1B0 0B1 0B0", ""],
                "device 0, place 0: 1F0 stands above 0F0",
            ),
            (
                ["0F0 0B0 1F0 1B0 0F1 1F1 1B1 0B1", ""],
                "device 0, place 1: 0B0 stands above 1B0",
            ),
            (["0F0 0F1 0B0 0B1 1F0", "1B0 1F1 1B1"], "device 1, place 0: 1B0: stage 1"),
            (["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1 9F0"], "place 4: 9F0 names stage 9"),
            (["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B7"], "1B7 names micro-batch 7"),
            (
                ["0F1 0F0 0B1 0B0", "1F0 1B0 1F1 1I1 1W1"],
                "device 1, place 1: stage 1 has whole and split",
            ),
            (
                ["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"],
                "device 0, place 1: 0B0 waits for 1B0",
            ),
            (
                ["0F0 (0F1;0B1)OVERLAP_F_B 0B0", "1F0 1B0 1F1 1B1"],
                "device 0, place 1: 0B1 needs 0F1, which stands beside it",
            ),
            (
                ["0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 1F1 1B1 1B0 1F1"],
                "device 1, place 4: 1F1 stands twice",
            ),
            (
                ["0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 1F1 1B0 1B1"],
                "device 0, place 1: 0B0 waits for 1B0",
            ),
        ] {
            let found = faults(&text);
            assert!(
                found.iter().any(|fault| fault.contains(told)),
                "{text:?}: {found:?}"
            );
        }
    }
}
