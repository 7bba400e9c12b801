//! Whether ranks are about to do the same: a run of several processes that read different files would
//! train nonsense, or hang, and copies that each makes for itself would drift apart.

use super::{control::Control, trouble::Trouble};
use crate::{
    digest::Digest,
    state::{ArraySource, State},
};
use roundelay_schedule::{Schedule, write};

impl Control {
    /// Looks whether this rank begins the same run as the first one; all ranks look.
    ///
    /// # Errors
    /// What differs on which rank, or whatever else goes wrong on one of them.
    pub fn agree(
        &self,
        schedule: &Schedule,
        data: u64,
        state: &State<ArraySource>,
        end: u64,
    ) -> Result<(), Trouble> {
        let mut parameters = Digest::new();
        state.tell(&mut parameters).map_err(|error| self.fail(&error.to_string()))?;
        let facts = [
            ("version of Roundelay", env!("CARGO_PKG_VERSION").to_owned()),
            ("schedule", digest(schedule)),
            ("data", format!("{data:016x}")),
            ("first step", state.step.to_string()),
            ("last step", end.to_string()),
            ("parameters at the start", format!("{:016x}", parameters.value())),
        ];
        self.agree_on(0, &facts, "give all ranks the same files and options")
    }

    /// Looks whether facts of this rank are those of another one; all ranks look at as many. `hint`
    /// says what to do where they are not.
    ///
    /// # Errors
    /// As [`Control::agree`].
    pub fn agree_on(
        &self,
        rank: u32,
        facts: &[(&str, String)],
        hint: &str,
    ) -> Result<(), Trouble> {
        let values: Vec<&str> = facts.iter().map(|(_, value)| value.as_str()).collect();
        let all = self.gather(values.join("\n").into_bytes())?;
        let theirs = String::from_utf8_lossy(&all[rank as usize]).into_owned();
        let theirs = theirs.lines().chain(std::iter::repeat(""));
        let differs = |((_, own), other): &(&(&str, String), &str)| own != other;
        match facts.iter().zip(theirs).find(differs) {
            None => self.gather(Vec::new()).map(drop),
            Some(((name, own), other)) => Err(self.fail(&format!(
                "its {name} is not that of rank {rank} ({own}, not {other}); {hint}"
            ))),
        }
    }
}

/// A digest of a schedule, wherever its data lies: ranks may name one file by several paths, and
/// compare what they read.
fn digest(schedule: &Schedule) -> String {
    let mut schedule = schedule.clone();
    if let Some(root) = schedule.job.data.root_mut() {
        root.clear();
    }
    let mut digest = Digest::new();
    digest.add(write(&schedule).as_bytes());
    format!("{:016x}", digest.value())
}

#[cfg(test)]
mod tests {
    use super::digest;
    use crate::{
        ArraySource, State,
        checkpoint::tests::schedule,
        ranks::{
            Control, Seat,
            control::tests::{all, seats},
        },
    };
    use roundelay_schedule::{Data, Rule};
    use std::time::Duration;

    #[test]
    fn a_schedule_is_the_same_wherever_its_data_lies() {
        let of = |root: &str, glob: &str| {
            let mut own = schedule(Rule::CyclicV2);
            let (root, globs) = (root.to_owned(), vec![glob.to_owned()]);
            own.job.data = Data::Text { root, globs };
            digest(&own)
        };
        assert_eq!(of("", "*.txt"), of("/somewhere/else", "*.txt"));
        assert_ne!(of("", "*.txt"), of("", "*.md"));
    }

    /// What is drawn follows from the schedule; arrays that are read or there are compared.
    #[test]
    fn other_parameters_are_told() {
        let schedule = schedule(Rule::CyclicV2);
        let states = [0, 1].map(|differing| {
            let mut state = State::initial(&schedule.job);
            state.tensors.values_mut().last().unwrap().optimizer[0][3] = differing;
            State::<ArraySource>::from(state)
        });
        let agreed = |of: fn(u32) -> usize| {
            let agree = |seat: &Seat| {
                let control = Control::meet(seat, Duration::from_secs(4)).unwrap();
                control.agree(&schedule, 0, &states[of(seat.rank)], 5)
            };
            all(&seats(2), agree)
        };
        assert!(agreed(|_| 1).iter().all(Result::is_ok));
        for other in agreed(|rank| rank as usize) {
            let told = other.unwrap_err().to_string();
            assert!(
                told.contains("its parameters at the start is not that of"),
                "{told}"
            );
        }
    }

    #[test]
    fn what_differs_is_named_by_all() {
        let found = all(&seats(2), |seat: &Seat| {
            let control = Control::meet(seat, Duration::from_secs(4)).unwrap();
            let own = |value: u32| ("last step", value.to_string());
            let same = control.agree_on(0, &[own(7)], "");
            let same =
                same.and_then(|()| control.agree_on(seat.rank, &[own(seat.rank)], ""));
            let facts = [own(7), own(seat.rank)];
            (same, control.agree_on(0, &facts, "be one").unwrap_err().to_string())
        });
        for (same, other) in found {
            assert_eq!(same, Ok(()));
            let said = "rank 1 failed before the first step: its last step is not that of \
                        rank 0 (1, not 0); be one";
            assert!(other.starts_with(said), "{other}");
        }
    }
}
