//! Tiny schedules by hand. Kernels are named by what they do to their operands (`rrw`); every
//! array has sixteen numbers; every action waits for the one above, the first for the last.

pub(crate) mod halves;

use roundelay_schedule::{
    Access, Action, ActionId, Argument, Attribute, Axis, Belonging, Buffer, Bytes,
    BytesPerSecond, Call, Catalogue, Collective, Constants, Content, Data, Device,
    Division, Domain, Element, Evaluation, Exchanged, Exchanging, Float, FlopsPerSecond,
    Group, Id, Indices, Initial, Input, Job, Line, Link, Meanwhile, Method, MicroBatch,
    Nanos, Operand, Optimizer, Order, Origin, Parameter, ParameterKind, Pass, Place,
    Placement, Plan, Pool, Rate, Recompute, Reduction, Rest, Ring, Role, Routine,
    RoutineId, Row, Rule, Schedule, Slice, Spot, States, Subject, Sum, Table, Target,
    Thousandths, Timeline, Treatment, Wait, Waits, Work,
};

/// Reads, writes and updates as the letters of a kernel's name say; `sgd` is what it is everywhere.
pub(crate) struct Letters;

impl Catalogue for Letters {
    fn accesses(&self, call: &Call) -> Result<Vec<Access>, String> {
        if &*call.kernel == "sgd" {
            return Ok(vec![Read, Read, Write]);
        }
        let access = |letter| match letter {
            'r' => Ok(Access::Read),
            'w' => Ok(Access::Write),
            'u' => Ok(Access::Update),
            _ => Err(format!("there is no kernel `{}`", call.kernel)),
        };
        call.kernel.trim_start_matches(['=', '~', '#']).chars().map(access).collect()
    }

    /// A wave in front: the first two operands may be one memory; the next parameters may lie where
    /// these do.
    fn replaces(&self, call: &Call) -> Vec<[usize; 2]> {
        match &*call.kernel {
            "sgd" => vec![[1, 2]],
            letters if letters.starts_with('~') => vec![[0, 1]],
            _ => Vec::new(),
        }
    }

    /// A sign of equality in front: the parts of a line, two neighbours where it says nothing,
    /// bring sixteen numbers and get their sums.
    fn exchange(&self, call: &Call, dtype: Float) -> Option<Exchanged> {
        let kind = Exchanging::Collective(Collective::AllReduce);
        let whole = Bytes(16 * dtype.size());
        let integer = |name: &str, usual: u32| match call.attributes.get(name) {
            Some(Attribute::Integer(given)) => u32::try_from(*given).unwrap_or(usual),
            _ => usual,
        };
        let line = Line { parts: integer("parts", 2), stride: integer("stride", 1) };
        let meanwhile = Meanwhile::Waits;
        let exchanged = Exchanged { kind, line, whole, meanwhile };
        call.kernel.starts_with('=').then_some(exchanged)
    }

    /// A number sign in front: the operand before the last has numbers of eight things.
    fn indices(&self, call: &Call) -> Option<Indices> {
        let operand = call.operands.len() - 2;
        let indices = Indices { operand, below: 8, mask: None };
        call.kernel.starts_with('#').then_some(indices)
    }
}

pub(crate) fn id<I: Id>(index: usize) -> I {
    I::new(index)
}

pub(crate) fn at(ring: usize, place: u32) -> Place {
    Place { ring: id(ring), place }
}

pub(crate) fn row(buffer: usize, place: u32) -> Row {
    Row { buffer: id(buffer), place }
}

pub(crate) fn action(index: usize) -> ActionId {
    id(index)
}

const WHOLE: Bytes = Bytes(64);

/// An empty schedule: N micro-batches, S stages, some devices on one link.
pub(crate) fn empty(rule: Rule, n: u32, s: u32, devices: u32) -> Schedule {
    Schedule {
        fingerprint: "0000000000000000".to_owned(),
        target: target(devices),
        plan: Plan {
            rule,
            placement: Placement::Accumulate,
            order: Order::Sequential,
            replicas: 1,
            shards: 1,
            tensor: roundelay_schedule::Tensor::WHOLE,
            stages: s,
            chunks: 1,
            slices: 1,
            cuts: (1..s).collect(),
            ties: Vec::new(),
            boundaries: Vec::new(),
            micro_batches: n,
            states: States::Replicated,
            recompute: vec![Recompute::None; s as usize],
            reduction: Reduction::Sequential,
            delays: rule.delays(Timeline::Workers, n, s),
            devices: (0..devices as usize).map(id).collect(),
            lists: Vec::new(),
            rewrites: roundelay_schedule::Rewrites::default(),
            maps: roundelay_schedule::MapWays::default(),
        },
        job: job(n, s),
        axes: Table::new(),
        rings: Table::new(),
        groups: Table::new(),
        routines: Table::new(),
        buffers: Table::new(),
        actions: Table::new(),
    }
}

fn target(devices: u32) -> Target {
    let mut target = Target { name: "tiny".to_owned(), ..Target::default() };
    let capacity = Bytes(1 << 20);
    for name in (0..devices).map(|number| format!("core {number}")) {
        let pool = target.pools.push(Pool { name: name.clone(), capacity });
        target.devices.push(Device {
            name,
            pool,
            memory: capacity,
            compute: FlopsPerSecond(1),
            bandwidth: BytesPerSecond(1),
            updates: Thousandths::ALL,
            losses: Thousandths::ALL,
            threads: 1,
            overhead: Nanos(0),
            issue: Nanos(0),
            products: roundelay_schedule::Products::default(),
            reserved: Bytes(0),
            overlap: Thousandths::NONE,
        });
    }
    let (bandwidth, latency) = (BytesPerSecond(1), Nanos(0));
    let link = target.links.push(Link::plain("bus", bandwidth, latency));
    target.domains.push(Domain { link, devices: 0..devices });
    target
}

fn job(n: u32, s: u32) -> Job {
    let parameter = |stage| Parameter {
        belonging: Belonging::Model,
        name: format!("weight.{stage}"),
        stage: id(stage),
        offset: 0,
        shape: vec![16],
        kind: ParameterKind::Plain,
        split: Division::Whole,
        initial: Initial::Constant(0.0),
        treatment: Treatment::Decayed,
    };
    let input = Input {
        name: "x".to_owned(),
        element: Element::Real,
        shape: vec![1, 16],
        bound: 0,
        origin: Origin::Data,
    };
    Job {
        model: "tiny".to_owned(),
        data: Data::Synthetic,
        batch: n,
        seed: 0,
        steps: 6,
        dtype: Float::F32,
        optimizer: Optimizer {
            method: Method::Sgd { momentum: 0.0, nesterov: false },
            rate: Rate::Constant(0.1),
            weight_decay: 0.0,
            clip: 0.0,
        },
        evaluate: Evaluation::Never,
        inputs: [input].into_iter().collect(),
        metrics: Vec::new(),
        parameters: (0..s as usize).map(parameter).collect(),
        elements: (0..s).map(|_| 16).collect(),
    }
}

/// What grows while a schedule is written down.
pub(crate) trait Builder {
    fn ring(&mut self, devices: &[usize], turn: u32) -> usize;
    fn buffer(&mut self, home: usize, subject: Subject, slots: u32, turn: u32) -> usize;
    fn carry(&mut self, buffer: usize, ages: &[&[Option<u32>]]);
    fn routine(
        &mut self,
        pass: Pass,
        stage: usize,
        arguments: &[(Role, Access)],
    ) -> RoutineId;
    fn work(&mut self, work: Work);
    fn launch(&mut self, at: Place, routine: RoutineId, i: Option<usize>, rows: &[Row]);
    fn copy(&mut self, from: (Place, Row), to: (Place, Row), content: Content);
    fn feed(&mut self, at: Place, i: usize, row: Row);
    fn report(&mut self, at: Place, i: usize, row: Row);
    fn chained(self) -> Schedule;
}

/// A call on the whole of some arguments.
pub(crate) fn call(kernel: &str, arguments: impl IntoIterator<Item = u32>) -> Call {
    let operand = |argument| Operand {
        argument,
        offset: Bytes(0),
        element: Element::Real,
        shape: [16][..].into(),
    };
    Call {
        kernel: kernel.to_owned().into(),
        attributes: Constants::default(),
        operands: arguments.into_iter().map(operand).collect(),
    }
}

/// A call that does to each argument what its access says.
fn lettered(arguments: &[(Role, Access)]) -> Call {
    let letter = |(_, access): &(Role, Access)| match access {
        Access::Read => 'r',
        Access::Write => 'w',
        Access::Update => 'u',
    };
    let letters: String = arguments.iter().map(letter).collect();
    call(&letters, 0..arguments.len() as u32)
}

/// One step of the optimizer of [`job`].
fn step(micro_batches: u32, arguments: &[(Role, Access)]) -> Call {
    let place = |role: Role| arguments.iter().position(|(own, _)| *own == role);
    let place = |role| place(role).map(|place| place as u32);
    let parameter = place(Role::Parameter);
    let next = place(Role::NextParameter).or(parameter);
    let all = [place(Role::Gradient), parameter, next];
    let mut step = call("sgd", all.map(Option::unwrap));
    let numbers = [
        ("clip", 0.0),
        ("micro_batches", f64::from(micro_batches)),
        ("momentum", 0.0),
        ("nesterov", 0.0),
        ("weight_decay", 0.0),
    ];
    let numbers = numbers.map(|(name, number)| (name.into(), Attribute::Real(number)));
    step.attributes = numbers.into_iter().collect();
    step
}

impl Builder for Schedule {
    fn ring(&mut self, devices: &[usize], turn: u32) -> usize {
        let devices = devices.iter().map(|device| id(*device)).collect();
        self.rings.push(Ring { devices, turn, lanes: 1 }).index()
    }

    fn buffer(&mut self, home: usize, subject: Subject, slots: u32, turn: u32) -> usize {
        let (home, rest, size) = (id(home), Rest::Transient, WHOLE);
        let beside = self.buffers.values().filter(|buffer| buffer.home == home);
        let end = beside.map(|buffer| buffer.offset + buffer.total()).max();
        let offset = end.unwrap_or_default();
        self.buffers
            .push(Buffer { home, subject, offset, size, slots, turn, rest })
            .index()
    }

    fn carry(&mut self, buffer: usize, ages: &[&[Option<u32>]]) {
        let ages = ages.iter().map(|slots| slots.to_vec()).collect();
        self.buffers[id(buffer)].rest = Rest::Carried(ages);
    }

    fn routine(
        &mut self,
        pass: Pass,
        stage: usize,
        arguments: &[(Role, Access)],
    ) -> RoutineId {
        let call = match pass {
            Pass::Update => step(self.plan.all_micro_batches(), arguments),
            _ => lettered(arguments),
        };
        let declare = |(role, access): &(Role, Access)| Argument {
            role: *role,
            access: *access,
            size: WHOLE,
        };
        self.routines.push(Routine {
            name: format!("{pass}{stage}"),
            pass,
            stage: id(stage),
            arguments: arguments.iter().map(declare).collect(),
            calls: vec![call].into(),
            predicted: Nanos(1),
        })
    }

    fn work(&mut self, work: Work) {
        self.actions.push(Action { lag: 0, reach: 0, after: Waits::default(), work });
    }

    fn launch(&mut self, at: Place, routine: RoutineId, i: Option<usize>, rows: &[Row]) {
        let micro_batch = i.map(MicroBatch::new);
        self.work(Work::Launch {
            at,
            lane: 0,
            routine,
            micro_batch,
            rows: rows.into(),
            beside: None,
        });
    }

    fn copy(&mut self, from: (Place, Row), to: (Place, Row), content: Content) {
        let spot = |(at, row)| Spot { at, row };
        self.work(Work::Transfer {
            link: id(0),
            from: spot(from),
            to: spot(to),
            content,
        });
    }

    fn feed(&mut self, at: Place, i: usize, row: Row) {
        self.work(Work::Feed { at, micro_batch: id(i), row });
    }

    fn report(&mut self, at: Place, i: usize, row: Row) {
        self.work(Work::Report { at, micro_batch: id(i), row });
    }

    fn chained(mut self) -> Schedule {
        let last = self.actions.len() - 1;
        for (action, line) in self.actions.iter_mut() {
            let wait = match action.index() {
                0 => Wait { action: id(last), distance: 1 },
                index => Wait { action: id(index - 1), distance: 0 },
            };
            line.after = [wait].as_slice().into();
        }
        self
    }
}

use Access::{Read, Update, Write};

/// Buffers of one stage on one ring, in this order: parameters, gradient, activation, input, loss.
fn single(schedule: &mut Schedule, slots: u32) {
    schedule.buffer(0, Subject::Parameter(id(0), Slice::Whole), slots, 1);
    schedule.buffer(0, Subject::Gradient(id(0), Slice::Whole), 1, 0);
    schedule.buffer(0, Subject::Activation(id(0)), 1, 0);
    schedule.buffer(0, Subject::Input(id(0)), 1, 0);
    schedule.buffer(0, Subject::Metric, 1, 0);
}

fn forward(schedule: &mut Schedule) -> RoutineId {
    let arguments = [
        (Role::Parameter, Read),
        (Role::Input(id(0)), Read),
        (Role::Activation, Write),
        (Role::Metric, Write),
    ];
    schedule.routine(Pass::Forward, 0, &arguments)
}

fn backward(schedule: &mut Schedule, gradient: Access) -> RoutineId {
    let arguments =
        [(Role::Parameter, Read), (Role::Activation, Read), (Role::Gradient, gradient)];
    schedule.routine(Pass::Backward, 0, &arguments)
}

/// One device, one stage, N micro-batches one after another: per micro-batch feed, F, report, B;
/// then U in place.
pub(crate) fn accumulate(n: u32) -> Schedule {
    let mut schedule = empty(Rule::Sync, n, 1, 1);
    schedule.ring(&[0], 0);
    single(&mut schedule, 1);
    schedule.carry(0, &[&[Some(0)]]);
    passes(&mut schedule, n, row(0, 0));
    let update = schedule.routine(
        Pass::Update,
        0,
        &[(Role::Parameter, Update), (Role::Gradient, Read)],
    );
    schedule.launch(at(0, 0), update, None, &[row(0, 0), row(1, 0)]);
    schedule.chained()
}

fn passes(schedule: &mut Schedule, n: u32, parameter: Row) {
    let forward = forward(schedule);
    let [first, next] = [Write, Update].map(|access| backward(schedule, access));
    let here = at(0, 0);
    for i in 0..n as usize {
        schedule.feed(here, i, row(3, 0));
        schedule.launch(
            here,
            forward,
            Some(i),
            &[parameter, row(3, 0), row(2, 0), row(4, 0)],
        );
        schedule.report(here, i, row(4, 0));
        let backward = if i == 0 { first } else { next };
        schedule.launch(here, backward, Some(i), &[parameter, row(2, 0), row(1, 0)]);
    }
}

/// A forward pass of three calls, each of which reads what the one before it wrote: parameters and
/// input (0, 1) to workspace (4), to the activation (2), to the loss (3).
pub(crate) fn chain() -> Schedule {
    let mut schedule = accumulate(1);
    schedule.buffer(0, Subject::Workspace, 1, 0);
    let (role, access, size) = (Role::Workspace, Access::Write, Bytes(64));
    let forward = &mut schedule.routines[id(0)];
    forward.arguments.push(Argument { role, access, size });
    let calls = [call("rrw", [0, 1, 4]), call("rw", [4, 2]), call("rw", [2, 3])];
    forward.calls = calls.to_vec().into();
    let Work::Launch { rows, .. } = &mut schedule.actions[action(1)].work else {
        panic!("the second line is a launch");
    };
    *rows = rows.iter().copied().chain([row(5, 0)]).collect();
    schedule
}

/// The same under `cyclic_v1`: passes read θ_{t−1}, U reads θ_t in one slot and writes θ_{t+1}
/// into the other.
pub(crate) fn delayed(n: u32) -> Schedule {
    let mut schedule = empty(Rule::CyclicV1, n, 1, 1);
    schedule.ring(&[0], 0);
    single(&mut schedule, 2);
    schedule.carry(0, &[&[Some(0), Some(1)]]);
    passes(&mut schedule, n, row(0, 1));
    let arguments =
        [(Role::Parameter, Read), (Role::NextParameter, Write), (Role::Gradient, Read)];
    let update = schedule.routine(Pass::Update, 0, &arguments);
    schedule.launch(at(0, 0), update, None, &[row(0, 0), row(0, 1), row(1, 0)]);
    schedule.chained()
}

/// Two workers, a micro-batch each, in one step: nothing of these two decisions stands in lines.
fn workers() -> Schedule {
    let mut schedule = empty(Rule::Sync, 2, 1, 2);
    (schedule.plan.placement, schedule.plan.order) = (Placement::Data, Order::Parallel);
    schedule
}

/// Two workers along an axis, one micro-batch each; gradients are all-reduced in place.
pub(crate) fn reduced() -> Schedule {
    let mut schedule = workers();
    let axis = Axis {
        name: "worker".to_owned(),
        extent: 2,
        stride: 1,
        splits: roundelay_schedule::Splits::Batch,
    };
    let axis = schedule.axes.push(axis);
    schedule.ring(&[0], 0);
    single(&mut schedule, 1);
    schedule.carry(0, &[&[Some(0)]]);
    let group = schedule.groups.push(Group { places: vec![at(0, 0)], axes: vec![axis] });
    passes(&mut schedule, 1, row(0, 0));
    schedule.work(Work::Collective {
        link: id(0),
        kind: Collective::AllReduce,
        group,
        from: row(1, 0),
        to: row(1, 0),
        content: Content::Gradient(id(0), Box::new(Sum::list([id(0)]))),
    });
    let update = schedule.routine(
        Pass::Update,
        0,
        &[(Role::Parameter, Update), (Role::Gradient, Read)],
    );
    schedule.launch(at(0, 0), update, None, &[row(0, 0), row(1, 0)]);
    schedule.chained()
}

/// Two devices take training steps in turn; parameters move to the next one first.
pub(crate) fn turning() -> Schedule {
    let mut schedule = workers();
    schedule.ring(&[0, 1], 1);
    single(&mut schedule, 1);
    schedule.carry(0, &[&[None], &[Some(0)]]);
    schedule.copy(
        (at(0, 1), row(0, 0)),
        (at(0, 0), row(0, 0)),
        Content::Parameter(id(0)),
    );
    passes(&mut schedule, 2, row(0, 0));
    let update = schedule.routine(
        Pass::Update,
        0,
        &[(Role::Parameter, Update), (Role::Gradient, Read)],
    );
    schedule.launch(at(0, 0), update, None, &[row(0, 0), row(1, 0)]);
    schedule.chained()
}

/// Two stages on two devices; a value goes forward and its gradient comes back.
pub(crate) fn pipeline() -> Schedule {
    let mut schedule = empty(Rule::Sync, 1, 2, 2);
    schedule.plan.placement = Placement::Pipeline;
    schedule.plan.order = Order::OneForwardOneBackward;
    for stage in 0..2 {
        schedule.ring(&[stage], 0);
        schedule.buffer(stage, Subject::Parameter(id(stage), Slice::Whole), 1, 0);
        schedule.carry(6 * stage, &[&[Some(0)]]);
        schedule.buffer(stage, Subject::Gradient(id(stage), Slice::Whole), 1, 0);
        schedule.buffer(stage, Subject::Activation(id(stage)), 1, 0);
        schedule.buffer(stage, Subject::Value(id(0)), 1, 0);
        schedule.buffer(stage, Subject::ValueGradient(id(0)), 1, 0);
        schedule.buffer(stage, [Subject::Input(id(0)), Subject::Metric][stage], 1, 0);
    }
    let routines = pipeline_routines(&mut schedule);
    let (here, there) = (at(0, 0), at(1, 0));
    let rows = |list: &[usize]| list.iter().map(|b| row(*b, 0)).collect::<Vec<_>>();
    schedule.feed(here, 0, row(5, 0));
    schedule.launch(here, routines[0], Some(0), &rows(&[0, 5, 2, 3]));
    let value = Content::Value(id(0), id(0));
    schedule.copy((here, row(3, 0)), (there, row(9, 0)), value);
    schedule.launch(there, routines[1], Some(0), &rows(&[6, 9, 8, 11]));
    schedule.report(there, 0, row(11, 0));
    schedule.launch(there, routines[2], Some(0), &rows(&[6, 8, 10, 7]));
    let gradient = Content::ValueGradient(id(0), id(0));
    schedule.copy((there, row(10, 0)), (here, row(4, 0)), gradient);
    schedule.launch(there, routines[4], None, &rows(&[6, 7]));
    schedule.launch(here, routines[3], Some(0), &rows(&[0, 2, 4, 1]));
    schedule.launch(here, routines[5], None, &rows(&[0, 1]));
    schedule.chained()
}

/// F0, F1, B1, B0, U1, U0.
fn pipeline_routines(schedule: &mut Schedule) -> [RoutineId; 6] {
    let (value, gradient) = (Role::Value(id(0)), Role::ValueGradient(id(0)));
    let (parameter, activation) = ((Role::Parameter, Read), (Role::Activation, Write));
    let kept = (Role::Activation, Read);
    let add = (Role::Gradient, Write);
    let step = [(Role::Parameter, Update), (Role::Gradient, Read)];
    [
        schedule.routine(
            Pass::Forward,
            0,
            &[parameter, (Role::Input(id(0)), Read), activation, (value, Write)],
        ),
        schedule.routine(
            Pass::Forward,
            1,
            &[parameter, (value, Read), activation, (Role::Metric, Write)],
        ),
        schedule.routine(Pass::Backward, 1, &[parameter, kept, (gradient, Write), add]),
        schedule.routine(Pass::Backward, 0, &[parameter, kept, (gradient, Read), add]),
        schedule.routine(Pass::Update, 1, &step),
        schedule.routine(Pass::Update, 0, &step),
    ]
}
