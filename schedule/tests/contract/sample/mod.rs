//! A schedule that uses every variant once; it makes no sense as training.

use roundelay_schedule::{
    Access, Action, ActionId, Argument, Attribute, Axis, Belonging, Buffer, Bytes,
    BytesPerSecond, Call, Collective, Constants, Content, Data, Device, Division, Domain,
    Element, Evaluation, Float, FlopsPerSecond, Form, Group, Id, Initial, Input, Item,
    Job, Link, MapWay, MapWays, Method, Nanos, Operand, Optimizer, Order, Origin,
    Parameter, ParameterKind, Pass, Place, Placement, Plan, Pool, Protocol, Rate,
    Recompute, Reduction, Rest, Rewrite, Rewrites, Ring, Role, Routine, Row, Rule,
    Schedule, Slice, Spot, States, Subject, Sum, Target, Thousandths, Timeline,
    Treatment, Wait, Waits, Way, Work,
};

fn id<I: Id>(index: usize) -> I {
    I::new(index)
}

fn place(ring: usize, place: u32) -> Place {
    Place { ring: id(ring), place }
}

fn row(buffer: usize, place: u32) -> Row {
    Row { buffer: id(buffer), place }
}

pub(crate) fn schedule() -> Schedule {
    Schedule {
        fingerprint: "0123456789abcdef".to_owned(),
        target: target(),
        plan: plan(),
        job: job(),
        axes: [Axis {
            name: "replicas".to_owned(),
            extent: 2,
            stride: 2,
            splits: roundelay_schedule::Splits::Batch,
        }]
        .into_iter()
        .collect(),
        rings: [
            Ring { devices: vec![id(0)], turn: 0, lanes: 2 },
            Ring { devices: vec![id(0), id(1)], turn: 1, lanes: 1 },
        ]
        .into_iter()
        .collect(),
        groups: [Group { places: vec![place(1, 0), place(1, 1)], axes: vec![id(0)] }]
            .into_iter()
            .collect(),
        routines: [
            routine(Pass::Forward),
            routine(Pass::Backward),
            routine(Pass::Update),
            routine(Pass::InputGradient),
            routine(Pass::WeightGradient),
        ]
        .into_iter()
        .collect(),
        buffers: buffers().into_iter().collect(),
        actions: actions().into_iter().collect(),
    }
}

fn target() -> Target {
    let device = |name: &str| Device {
        name: name.to_owned(),
        pool: id(0),
        memory: Bytes(2_000_000_000),
        compute: FlopsPerSecond(40_000_000_000),
        bandwidth: BytesPerSecond(10_000_000_000),
        updates: Thousandths(1400),
        losses: Thousandths(600),
        threads: 1,
        overhead: Nanos(0),
        issue: Nanos(0),
        products: roundelay_schedule::Products {
            ramp: Nanos(9),
            attention: Thousandths(700),
            unaligned: Thousandths(300),
        },
        reserved: Bytes(5),
        overlap: Thousandths(250),
    };
    Target {
        name: "lap top: \"my\" \u{1F3B6} #1".to_owned(),
        pools: [Pool { name: "yes".to_owned(), capacity: Bytes(u64::MAX) }]
            .into_iter()
            .collect(),
        devices: ["core0", "1", "", "~"].map(device).into_iter().collect(),
        links: [link()].into_iter().collect(),
        domains: vec![Domain { link: id(0), devices: 0..4 }],
        host: roundelay_schedule::Host { wake: Nanos(40), feeds: vec![Nanos(3)] },
    }
}

fn link() -> Link {
    let protocol = |rate| Protocol { bandwidth: BytesPerSecond(rate), startup: Nanos(7) };
    let ways = vec![
        Way::Form(Form::Tree),
        Way::Short(protocol(1_000)),
        Way::Nvls(protocol(2_000)),
    ];
    let plain = Link::plain("bus\nline", BytesPerSecond(8_000_000_000), Nanos(2_000));
    Link { startup: Nanos(50), ways, ..plain }
}

fn plan() -> Plan {
    Plan {
        rule: Rule::CyclicSlack(1),
        placement: Placement::Shared,
        order: Order::OneForwardOneBackward,
        replicas: 2,
        shards: 1,
        tensor: roundelay_schedule::Tensor::WHOLE,
        stages: 2,
        chunks: 1,
        slices: 1,
        cuts: vec![5],
        ties: Vec::new(),
        boundaries: Vec::new(),
        micro_batches: 4,
        states: States::Handoff,
        recompute: vec![Recompute::Selective, Recompute::Full],
        reduction: Reduction::ByDevice,
        delays: Rule::CyclicSlack(1).delays(Timeline::Workers, 4, 2),
        devices: vec![id(0), id(1)],
        lists: vec![
            vec![Item::new(Pass::Forward, 1, 3)],
            ["(0F3;1B2)OVERLAP_F_B", "(0F4;2I2;2W2)OVERLAP_F_B"]
                .map(|cell| cell.parse().expect("a pair"))
                .to_vec(),
        ],
        rewrites: rewrites(),
        maps: maps(),
    }
}

fn maps() -> MapWays {
    let mut maps = MapWays::default();
    for (site, way) in [(4, MapWay::ColumnsToRows), (12, MapWay::RowsToColumns)] {
        maps.insert(site, way);
    }
    maps
}

fn rewrites() -> Rewrites {
    let mut rewrites = Rewrites::default();
    for (rewrite, site) in
        [(Rewrite::Affine, 4), (Rewrite::AffineGelu, 5), (Rewrite::Affine, 12)]
    {
        rewrites.insert(rewrite, site);
    }
    rewrites
}

fn job() -> Job {
    let step = Rate::Step { initial: 1e-3, factor: 0.5, every: 10 };
    let parameter = |name: &str, initial| Parameter {
        belonging: Belonging::Model,
        name: name.to_owned(),
        stage: id(0),
        offset: 0,
        shape: vec![4, 4],
        kind: ParameterKind::Plain,
        split: Division::Whole,
        initial,
        treatment: Treatment::Decayed,
    };
    Job {
        model: "tiny".to_owned(),
        data: Data::Text { root: "../x y".to_owned(), globs: vec!["**/*.rs".to_owned()] },
        batch: 8,
        seed: u64::MAX,
        steps: 200,
        dtype: Float::F32,
        optimizer: Optimizer {
            method: Method::Adamw { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 },
            rate: Rate::Warmup { steps: 20, after: Box::new(step) },
            weight_decay: 0.1,
            clip: 0.0,
        },
        evaluate: Evaluation::Every(50),
        inputs: [Input {
            name: "tokens".to_owned(),
            element: Element::I32,
            shape: vec![2, 128],
            bound: 256,
            origin: Origin::Data,
        }]
        .into_iter()
        .collect(),
        metrics: Vec::new(),
        parameters: vec![
            parameter("layer.0.weight", Initial::Normal(0.02)),
            parameter("layer.0.bias", Initial::Constant(-0.0)),
            parameter("layer.0.table", Initial::Uniform(f64::MIN_POSITIVE)),
        ],
        elements: [16, 16].into_iter().collect(),
    }
}

fn routine(pass: Pass) -> Routine {
    let roles = [
        Role::Parameter,
        Role::NextParameter,
        Role::Gradient,
        Role::Received,
        Role::Optimizer,
        Role::Squares,
        Role::Activation,
        Role::Retained,
        Role::Adjoint,
        Role::Value(id(0)),
        Role::ValueGradient(id(0)),
        Role::Input(id(0)),
        Role::Metric,
        Role::Workspace,
    ];
    let accesses = [Access::Read, Access::Write, Access::Update].into_iter().cycle();
    let arguments = roles.into_iter().zip(accesses);
    let operand = Operand {
        argument: 0,
        offset: Bytes(8),
        element: Element::Real,
        shape: [4, 4][..].into(),
    };
    let attributes = [
        ("accumulate".into(), Attribute::Flag(true)),
        ("heads".into(), Attribute::Integer(i64::MIN)),
        ("factor".into(), Attribute::Real(1.0)),
        ("huge".into(), Attribute::Real(1e300)),
        ("limit".into(), Attribute::Real(f64::INFINITY)),
        ("spared".into(), Attribute::Integers(vec![0, 4])),
        ("none".into(), Attribute::Integers(vec![])),
    ];
    Routine {
        name: format!("{pass}0"),
        pass,
        stage: id(0),
        arguments: arguments
            .map(|(role, access)| Argument { role, access, size: Bytes(64) })
            .collect(),
        calls: [
            Call {
                kernel: "add".into(),
                attributes: attributes.into_iter().collect(),
                operands: vec![operand; 3],
            },
            Call {
                kernel: "copy".into(),
                attributes: Constants::default(),
                operands: vec![],
            },
        ]
        .into_iter()
        .collect(),
        predicted: Nanos(1_000),
    }
}

fn buffers() -> Vec<Buffer> {
    let subjects = [
        Subject::Parameter(id(0), Slice::Whole),
        Subject::Gradient(id(1), Slice::Shard(id(0))),
        Subject::Optimizer(id(0), Slice::Whole),
        Subject::Squares(Slice::Shard(id(0))),
        Subject::Activation(id(1)),
        Subject::Value(id(0)),
        Subject::ValueGradient(id(0)),
        Subject::Input(id(0)),
        Subject::Metric,
        Subject::Workspace,
        Subject::Retained(id(1)),
        Subject::Adjoint(id(0)),
    ];
    let buffer = |(k, subject): (usize, Subject)| Buffer {
        home: id(k % 2),
        subject,
        offset: Bytes(64 * k as u64),
        size: Bytes(64),
        slots: 2,
        turn: 1,
        rest: match k {
            0 => Rest::Carried(vec![vec![Some(1), None]]),
            1 => Rest::Carried(vec![(0..80).map(Some).collect(), vec![]]),
            _ => Rest::Transient,
        },
    };
    subjects.into_iter().enumerate().map(buffer).collect()
}

fn actions() -> Vec<Action> {
    let action = |work| Action { lag: 0, reach: 0, after: Waits::default(), work };
    let wait =
        |action: usize, distance| Wait { action: id::<ActionId>(action), distance };
    let launch =
        |routine: usize, micro_batch: Option<usize>, rows: Vec<Row>| Work::Launch {
            at: place(0, 0),
            lane: 1,
            routine: id(routine),
            micro_batch: micro_batch.map(id),
            rows: rows.into(),
            beside: None,
        };
    let beside = |head: usize, mut work| {
        if let Work::Launch { beside, .. } = &mut work {
            *beside = Some(id(head));
        }
        work
    };
    let transfer = |content| Work::Transfer {
        link: id(0),
        from: Spot { at: place(1, 0), row: row(0, 0) },
        to: Spot { at: place(1, 1), row: row(0, 1) },
        content,
    };
    let collective = |kind, content| Work::Collective {
        link: id(0),
        kind,
        group: id(0),
        from: row(1, 0),
        to: row(1, 0),
        content,
    };
    let gradient = |sum| Content::Gradient(id(1), Box::new(sum));
    let sum =
        Sum::all(vec![Sum::list([id(0), id(2)]), Sum::default(), Sum::list([id(1)])]);
    vec![
        action(Work::Feed { at: place(0, 0), micro_batch: id(0), row: row(6, 0) }),
        Action {
            after: [wait(0, 0), wait(9, 1)].as_slice().into(),
            ..action(launch(0, Some(0), vec![row(0, 0), row(6, 1)]))
        },
        Action { lag: 3, ..action(launch(1, Some(1), vec![])) },
        Action {
            lag: 1,
            after: [wait(2, 0)].as_slice().into(),
            ..action(launch(2, None, vec![row(2, 0)]))
        },
        action(launch(77, None, vec![row(99, u32::MAX)])),
        action(launch(78, Some(3), vec![])),
        Action { lag: 1, reach: 1, ..action(transfer(Content::Parameter(id(0)))) },
        action(transfer(Content::Optimizer(id(1)))),
        action(transfer(Content::Value(id(0), id(1)))),
        Action {
            lag: u32::MAX,
            reach: u32::MAX,
            after: [wait(3, u32::MAX)].as_slice().into(),
            ..action(transfer(Content::ValueGradient(id(0), id(1))))
        },
        action(collective(Collective::AllReduce, gradient(sum))),
        action(collective(Collective::ReduceScatter, gradient(Sum::default()))),
        action(collective(Collective::AllGather, Content::Parameter(id(1)))),
        action(collective(Collective::AllReduce, Content::Squares(id(1), id(1)))),
        action(transfer(Content::Squares(id(0), id(1)))),
        action(Work::Report { at: place(1, 1), micro_batch: id(3), row: row(7, 0) }),
        action(launch(3, Some(0), vec![row(9, 0)])),
        action(beside(14, launch(4, Some(2), vec![row(10, 1)]))),
    ]
}

/// The text of [`schedule`] without the parts that are there for width.
pub(crate) fn small() -> String {
    let mut schedule = schedule();
    schedule.target.name = "laptop".to_owned();
    roundelay_schedule::write(&schedule)
}
