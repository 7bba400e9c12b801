//! Filling the devices in the order of time: whenever one is free it takes what it can start, and
//! weight gradients fill its gaps. The rules are those of "Zero Bubble Pipeline Parallelism",
//! arXiv 2401.10241, section 3; here each decision is made when its time has come, with what is
//! known of all devices by then.

use super::{
    alarms::Alarms,
    pipe::{Account, Arrivals, Half, Limited, Passes, Pipe, Rooms, StageHalves},
};
use roundelay_schedule::Nanos;

/// How the devices choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habit {
    /// W goes into a gap that is at least this many tenths of it.
    pub gap: u64,
    /// A device starts at most this many quarters of p − r micro-batches before it takes back the
    /// first of them.
    pub ahead: u64,
    /// A device that has idled as long as any other takes W rather than idle more.
    pub fair: bool,
    /// Before its first I a device takes no F that would delay it.
    pub patient: bool,
    /// From its first I on a device takes F and I in turn.
    pub alternate: bool,
}

/// The order that a habit leads to; nothing where a device has no room for one micro-batch, or takes
/// longer than `longest` from its first pass to its last as it is filled. Taken as early as can be the
/// same passes may be a little faster; of such orders some are given up.
pub(crate) fn fill(limited: &Limited, habit: Habit, longest: Nanos) -> Option<Passes> {
    let mut filling = Filling::new(limited, habit, longest);
    while let Some((time, device)) = filling.alarms.next() {
        filling.wake(device, time);
        if filling.desks[device].idle > filling.idle_most[device] {
            return None;
        }
    }
    let all = 3 * limited.pipe.micro_batches;
    let whole = filling.desks.iter().all(|desk| desk.passes.len() == all);
    whole.then(|| filling.desks.into_iter().map(|desk| desk.passes).collect())
}

/// A device while it is filled.
#[derive(Clone, Debug, Default)]
struct Desk {
    account: Account,
    passes: Vec<Half>,
    free: Nanos,
    /// Time without a pass since the first one.
    idle: Nanos,
    /// The last pass but for W.
    last: Option<Half>,
    /// When the first gradient comes if nobody delays it.
    turn: Nanos,
}

struct Filling<'a> {
    pipe: &'a Pipe,
    habit: Habit,
    desks: Vec<Desk>,
    arrivals: Arrivals,
    /// When devices look for something to do.
    alarms: Alarms,
    /// The longest time that a device has idled.
    worst: Nanos,
    /// How long each device may idle.
    idle_most: Vec<Nanos>,
    /// What each may keep.
    rooms: Rooms,
}

impl<'a> Filling<'a> {
    fn new(limited: &'a Limited, habit: Habit, longest: Nanos) -> Self {
        let pipe = &limited.pipe;
        let all = 3 * pipe.micro_batches;
        let desk =
            |turn| Desk { turn, passes: Vec::with_capacity(all), ..Desk::default() };
        let mut alarms = Alarms::new(pipe.devices());
        (0..pipe.devices()).for_each(|device| alarms.set(device, Nanos(0)));
        let work = |stage: &StageHalves| {
            (stage.forward + stage.input + stage.weight) * pipe.micro_batches as u64
        };
        Self {
            pipe,
            habit,
            desks: turns(pipe).into_iter().map(desk).collect(),
            arrivals: Arrivals::new(pipe),
            alarms,
            worst: Nanos(0),
            rooms: limited.rooms_to_keep(),
            idle_most: pipe.stages.iter().map(|stage| longest - work(stage)).collect(),
        }
    }

    fn wake(&mut self, device: usize, now: Nanos) {
        if self.desks[device].free > now {
            return;
        }
        let Some(half) = self.choose(device, now) else { return };
        let stage = &self.pipe.stages[device];
        let desk = &mut self.desks[device];
        if !desk.passes.is_empty() {
            desk.idle += now - desk.free;
            self.worst = self.worst.max(desk.idle);
        }
        if half != Half::Weight {
            desk.last = Some(half);
        }
        let number = desk.account.done[half as usize];
        desk.account = desk.account.after(half, &stage.kept);
        desk.passes.push(half);
        desk.free = now + stage.time(half);
        let end = desk.free;
        self.alarms.set(device, end);
        let sent = self.arrivals.send(self.pipe, (half, device, number), end);
        // A device that is at a pass until later looks by itself when that ends.
        if let Some((to, time)) = sent
            && self.desks[to].free <= time
        {
            self.alarms.set(to, time);
        }
    }

    /// What a free device starts now, if anything.
    fn choose(&self, device: usize, now: Nanos) -> Option<Half> {
        let open =
            |half| self.wanted(device, half, now).filter(|_| self.fits(device, half));
        let ready = |arrival: Option<Nanos>| arrival.is_some_and(|time| time <= now);
        let input = open(Half::Input);
        if ready(input) {
            return Some(Half::Input);
        }
        let forward = open(Half::Forward);
        if ready(forward) {
            return Some(Half::Forward);
        }
        if !self.desks[device].account.allows(Half::Weight, self.pipe.micro_batches) {
            return None;
        }
        let next = [forward, input].into_iter().flatten().min();
        let fills = next.is_none_or(|next| self.fills(device, next - now));
        (fills || self.is_full(device, now)).then_some(Half::Weight)
    }

    /// When what a pass needs from elsewhere is there: if that is known, and the habit allows the
    /// pass to be the next one.
    fn wanted(&self, device: usize, half: Half, now: Nanos) -> Option<Nanos> {
        let Desk { account, last, .. } = &self.desks[device];
        let [forward, input, _] = account.done;
        let in_turn = input > 0 && forward < self.pipe.micro_batches;
        if !account.allows(half, self.pipe.micro_batches)
            || (self.habit.alternate && in_turn && *last == Some(half))
            || (half == Half::Forward && self.holds(device, now))
        {
            return None;
        }
        self.arrivals.of(half, device, account.done[half as usize])
    }

    /// Whether a device should take no F now.
    fn holds(&self, device: usize, now: Nanos) -> bool {
        let desk = &self.desks[device];
        let [forward, input, _] = desk.account.done;
        let below = (self.pipe.devices() - device) as u64;
        let ahead = (self.habit.ahead.saturating_mul(below)).div_ceil(4).max(1);
        let free = self.habit.alternate && input > 0;
        let late = now + self.pipe.stages[device].forward > desk.turn;
        let delays = input == 0 && forward > 0 && now < desk.turn && late;
        (!free && (forward - input) as u64 >= ahead) || (self.habit.patient && delays)
    }

    fn fits(&self, device: usize, half: Half) -> bool {
        let kept = &self.pipe.stages[device].kept;
        let account = self.desks[device].account.after(half, kept);
        account.fits(kept, &self.rooms, device)
    }

    /// Whether something could start but for memory.
    fn is_full(&self, device: usize, now: Nanos) -> bool {
        [Half::Forward, Half::Input].into_iter().any(|half| {
            let ready = self.wanted(device, half, now).is_some_and(|time| time <= now);
            ready && !self.fits(device, half)
        })
    }

    /// Whether W goes into a gap.
    fn fills(&self, device: usize, gap: Nanos) -> bool {
        let weight = self.pipe.stages[device].weight;
        if gap * 10 >= weight * self.habit.gap {
            return true;
        }
        self.habit.fair && self.desks[device].idle + gap > self.worst
    }
}

/// When the first gradient comes to each device if nobody delays it.
fn turns(pipe: &Pipe) -> Vec<Nanos> {
    let last = pipe.devices().saturating_sub(1);
    let down = pipe.stages.iter().map(|stage| stage.forward).sum::<Nanos>()
        + pipe.stages.iter().take(last).map(|stage| stage.down).sum();
    let mut turn = down;
    let mut turns = Vec::new();
    for stage in pipe.stages.iter().rev() {
        turns.push(turn);
        turn += stage.input + stage.up;
    }
    turns.reverse();
    turns
}
