//! Whole programs: what the design's examples and small variations of them mean.

use roundelay_dsl::{
    Choice, Diagnostics, Disk, Model, ModelParameter, NoFiles, Numbers, Objective,
    Operation, PinnedStages, Program, Search, Source, SourceFile, format, parse,
};
use roundelay_schedule::{
    Bytes, Contraction, Data, Evaluation, Exactness, Hop, Id, Images, Initial, Method,
    Nanos, ParameterKind, Rate, Recompute, Rule, Sequence, Treatment,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The design's first program, as a file of the folder `examples`.
fn first_program() -> SourceFile {
    SourceFile::new("examples/quickstart.rdl", include_str!("quickstart.rdl"))
}

/// The programs of the folder `examples`.
fn examples() -> Vec<SourceFile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let entries = fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let programs = paths.filter(|path| path.extension().is_some_and(|e| e == "rdl"));
    let text = |path: &PathBuf| fs::read_to_string(path).expect("it can be read");
    programs
        .map(|path| SourceFile::new(path.display().to_string(), text(&path)))
        .collect()
}

fn quickstart() -> Program {
    let (program, warnings) = parse(&first_program(), &Disk).expect("it is right");
    assert!(warnings.is_empty(), "{warnings:?}");
    program
}

fn resolve(text: &str) -> Result<Program, Diagnostics> {
    parse(&SourceFile::new("test.rdl", text), &NoFiles).map(|(program, _)| program)
}

/// A model with `body` between its inputs x and y, both [batch, 8], and a loss on z.
fn resolve_model(body: &str) -> Result<Program, Diagnostics> {
    let text = format!(
        "model m {{
            input x: real[batch, 8]
            input y: real[batch, 8]
            {body}
            loss mse(z, y)
        }}"
    );
    resolve(&text)
}

fn model(body: &str) -> Model {
    resolve_model(body).unwrap_or_else(|wrong| panic!("{wrong}")).model
}

fn parameters(model: &Model) -> Vec<&str> {
    model.parameters.values().map(|parameter| parameter.name.as_str()).collect()
}

/// What files of weights turn into PyTorch's order: no array of one's own, whatever extents it has.
#[test]
fn filters_of_convolutions_are_known_as_such() {
    let text = "model m {
        input x: real[batch, 2, 4, 4, 6]
        param own: [2, 4, 4, 6]
        y = conv2d(reshape(x * own, [batch, 8, 4, 6]), 8, groups = 2)
        loss mse(linear(patches(y, 2, 5), 3), linear(patches(y, 2, 5), 3))
    }";
    let (program, _) = parse(&SourceFile::new("m.rdl", text), &NoFiles).expect("right");
    let of = |parameter: &ModelParameter| parameter.kind == ParameterKind::Filters;
    let filters = program.model.parameters.values().filter(|own| of(own));
    let shapes: Vec<_> = filters.map(|own| own.shape.clone()).collect();
    assert_eq!(shapes, [[8, 3, 3, 3], [5, 2, 2, 8], [5, 2, 2, 8]]);
}

#[test]
fn the_quickstart_is_a_gpt_of_four_layers() {
    let Program { model, target, train, search, profiles, prices, peaks } = quickstart();
    assert!(profiles.is_empty() && prices.is_empty() && peaks.is_empty());
    let names = parameters(&model);
    assert_eq!(names[..2], ["embedding.table", "positions.table"]);
    assert!(names.contains(&"layer.3.attention.query.weight"), "{names:?}");
    assert!(names.contains(&"layer.0.linear_1.weight"), "{names:?}");
    assert!(names.contains(&"layer.0.layer_norm.gain"), "{names:?}");
    assert_eq!(names.len(), 2 + 4 * (4 + 8 + 4) + 4);
    let elements: u64 =
        model.parameters.values().map(|p| p.shape.iter().product::<u64>()).sum();
    let layer = 4 * (128 * 128 + 128) + 4 * 128 + (128 * 512 + 512) + (512 * 128 + 128);
    assert_eq!(elements, 256 * 128 + 128 * 128 + 4 * layer + 2 * 128 + 128 * 256 + 256);
    assert!(model.inputs.values().all(|input| input.bound == 256));
    assert_eq!(model.loss, model.nodes.ids().next_back());

    assert_eq!((target.devices.len(), target.pools.len()), (4, 1));
    assert!(target.pools.values().all(|pool| pool.capacity == Bytes(8_000_000_000)));
    assert_eq!(target.domains.len(), 1);
    assert_eq!(target.domains[0].devices, 0..4);
    assert!(target.links.values().all(|link| link.latency == Nanos(2_000)));

    let globs = ["../*.md", "../**/*.rs"].map(str::to_owned).to_vec();
    assert_eq!(train.data, Data::Text { root: "examples".into(), globs });
    assert_eq!((train.batch, train.steps, train.seed), (32, 200, 7));
    assert_eq!(train.evaluate, Evaluation::Every(50));
    let cosine = Rate::Cosine { initial: 1e-3, steps: 200, last: 0.0 };
    let rate = Rate::Warmup { steps: 20, after: Box::new(cosine) };
    assert_eq!((train.optimizer.rate, train.optimizer.weight_decay), (rate, 0.1));

    assert_eq!(search.objective, Objective::StepTime);
    assert_eq!(search.exactness, Some(Exactness::Delayed));
    assert_eq!(search.rule, Choice::OneOf(vec![Rule::Sync, Rule::CyclicV2]));
    assert_eq!(search.memory, Some(Bytes(1_000_000_000)));
    assert_eq!(search.stages, Numbers::Open);
}

#[test]
fn operands_stand_above_their_users_and_biases_do_not_decay() {
    let model = quickstart().model;
    for (id, node) in model.nodes.iter() {
        for operand in &node.operands {
            if let Source::Node(above) = operand {
                assert!(*above < id, "{} reads {above}", node.name);
            }
        }
    }
    for parameter in model.parameters.values() {
        let spared =
            parameter.name.ends_with(".bias") || parameter.name.ends_with(".gain");
        let decayed = parameter.treatment == Treatment::Decayed;
        assert_eq!(decayed, !spared, "{}", parameter.name);
    }
}

#[test]
fn parameters_start_as_in_pytorch() {
    let model = quickstart().model;
    let initial = |name: &str| {
        let found = model.parameters.values().find(|parameter| parameter.name == name);
        found.expect("the name is right").initial
    };
    let uniform = |inputs: f64| Initial::Uniform(1.0 / inputs.sqrt());
    assert_eq!(initial("layer.1.attention.key.bias"), uniform(128.0));
    assert_eq!(initial("layer.1.linear.weight"), uniform(128.0));
    assert_eq!(initial("layer.1.linear_1.weight"), uniform(512.0));
    assert_eq!(initial("embedding.table"), Initial::Normal(0.02));
    assert_eq!(initial("layer_norm.gain"), Initial::Constant(1.0));
    assert_eq!(initial("layer_norm.bias"), Initial::Constant(0.0));
}

const SELENE: &str = r#"# 512 GPUs, nested links; the planner alone uses it
import "gpt3.rdl"
import "roundelay:devices/a100.rdl"
link nvlink     { bandwidth 300 GB/s, latency 2.5 us }
link infiniband { bandwidth 25 GB/s, latency 5 us }
cluster selene { node = 8 x a100 joined by nvlink, 64 x node joined by infiniband }
plan {
    minimize  step_time
    rule      sync
    tensor    { rows <= 8, columns 1 }
    stages    8 | 16 | 32
    recompute selective | none
}
"#;

#[test]
fn nested_clusters_give_domains_from_the_inside_out() {
    let gpt3 = "model gpt3 {
        input tokens: i32[batch, 2048]
        input targets: i32[batch, 2048]
        x = embedding(tokens, 51200, 12288)
        repeat 96 {
            x = x + attention(layer_norm(x), 96, causal = true)
            x = x + linear(gelu(linear(layer_norm(x), 4 * 12288)), 12288)
        }
        loss cross_entropy(linear(x, 51200), targets)
    }";
    let files = BTreeMap::from([("a/gpt3.rdl".to_owned(), gpt3.to_owned())]);
    let (program, warnings) =
        parse(&SourceFile::new("a/selene.rdl", SELENE), &files).expect("it is right");
    let target = &program.target;
    assert_eq!(
        (target.devices.len(), target.pools.len(), target.domains.len()),
        (512, 512, 65)
    );
    assert_eq!(target.domains[0].devices, 0..8);
    assert_eq!(target.domains[64].devices, 0..512);
    let link = |a, b| {
        let id = target.link_between(Id::new(a), Id::new(b)).expect("they are joined");
        target.links[id].name.as_str()
    };
    assert_eq!(
        (link(0, 7), link(7, 8), link(0, 511)),
        ("nvlink", "infiniband", "infiniband")
    );
    assert_eq!(program.search.stages, Numbers::Ranges(vec![(8, 8), (16, 16), (32, 32)]));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(program.search.rows, Numbers::Ranges(vec![(1, 8)]));
    let recompute = [Recompute::Selective, Recompute::None];
    assert_eq!(program.search.recompute, Choice::OneOf(recompute.into()));
}

#[test]
fn stages_are_pinned_one_entry_after_another() {
    let mut search = Search::default();
    search.set("recompute=selective | none").expect("it is right");
    search.set("stage 0 .. 1 { recompute full }").expect("it is right");
    search.set("stage 1 { recompute none }").expect("it is right");
    let pin = |first, last, recompute| PinnedStages { first, last, recompute };
    assert!(!search.recompute.allows(&Recompute::Full));
    assert_eq!(search.pinned, [pin(0, 1, Recompute::Full), pin(1, 1, Recompute::None)]);
}

#[test]
fn bindings_name_operators_unless_they_are_bound_again() {
    let names = |body| {
        parameters(&model(body)).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        names("inner = linear(x, 8, bias = false), z = relu(inner)"),
        ["inner.weight"]
    );
    assert_eq!(
        names("h = linear(x, 4, bias = false), h = linear(h, 8, bias = false), z = h"),
        ["linear.weight", "linear_1.weight"]
    );
    assert_eq!(
        names(
            "h = x\nrepeat 2 { h = h + linear(h, 8, bias = false) }\nrepeat 1 as i { h = linear(h, 8, bias = false) }\nz = h"
        ),
        ["repeat.0.linear.weight", "repeat.1.linear.weight", "i.0.linear.weight"]
    );
}

#[test]
fn blocks_see_their_arguments_alone_and_name_what_they_make() {
    let text = "block mlp(x, width, factor) {
            inner = linear(x, width * factor, bias = false)
            return linear(gelu(inner), width, bias = false)
        }
        model m {
            input x: real[batch, 8], input y: real[batch, 8]
            first = mlp(x, 8, factor = 4)
            loss mse(mlp(first, 8, 2), y)
        }";
    let program = resolve(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let expected = [
        "first.inner.weight",
        "first.linear.weight",
        "mlp.inner.weight",
        "mlp.linear.weight",
    ];
    assert_eq!(parameters(&program.model), expected);
    let shapes: Vec<_> =
        program.model.parameters.values().map(|p| p.shape.clone()).collect();
    assert_eq!(shapes, [[32, 8], [8, 32], [16, 8], [8, 16]]);
}

#[test]
fn infix_operators_work_on_tensors_and_numbers() {
    let z = model("param gain: [8] = ones(), z = (x * gain - x / 2) * -3");
    let operations: Vec<Operation> =
        z.nodes.values().map(|node| node.operation).collect();
    let expected = [
        Operation::Multiply,
        Operation::Scale { factor: 0.5 },
        Operation::Scale { factor: -1.0 },
        Operation::Add,
        Operation::Scale { factor: -3.0 },
        Operation::MeanSquaredError,
    ];
    assert_eq!(operations, expected);
    assert_eq!(parameters(&z), ["gain"]);
}

/// What the hint tells can be written.
#[test]
fn whoever_adds_a_number_to_a_tensor_hears_what_can_be_done() {
    for (body, constant) in
        [("z = y + 1", "1"), ("z = y - 0.5", "0.5"), ("z = 2 + y", "2")]
    {
        let told = resolve_model(body).expect_err(body).to_string();
        let hint = format!("`param shift: [] = constant({constant})`");
        let words =
            ["adding a number to a tensor", "multiplied or divided by a number", &hint];
        for words in words {
            assert!(told.contains(words), "{words}: {told}");
        }
    }
    let shifted = model("param shift: [] = constant(1)\n z = y * 2 + shift");
    assert_eq!(parameters(&shifted), ["shift"]);
}

#[test]
fn images_shrink_as_windows_move_over_them() {
    let text = "model m {
        input x: real[batch, 32, 30, 3], input y: real[batch, 8]
        stem = conv2d(x, 16)
        h = conv2d(stem, 24, stride = 2, groups = 2, bias = false)
        deep = conv2d(h, 8, kernel = 1)
        h = max_pool(deep, 3, stride = 2, padding = 1)
        h = avg_pool(h, 2)
        z = patches(x, 2, 8)
        h = upsample(h, 4)
        loss mse(global_pool(h), y) + mse(global_pool(reshape(z, [batch, 16, 15, 8])), y)
    }";
    let program = resolve(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let all = program.model.nodes.values().map(|node| (node.operation, &node.shape));
    let images: Vec<Vec<u64>> = all
        .filter(|(operation, _)| {
            matches!(
                operation,
                Operation::Conv2d { .. }
                    | Operation::MaxPool { .. }
                    | Operation::AvgPool { .. }
                    | Operation::GlobalPool
                    | Operation::Upsample { .. }
            )
        })
        .map(|(_, shape)| shape[1..].iter().map(|extent| extent.size).collect())
        .collect();
    let expected: [&[u64]; 9] = [
        &[32, 30, 16],
        &[16, 15, 24],
        &[16, 15, 8],
        &[8, 8, 8],
        &[4, 4, 8],
        &[16, 15, 8],
        &[16, 16, 8],
        &[8],
        &[8],
    ];
    assert_eq!(images, expected);
    let first = program.model.parameters.values().next().expect("there is one");
    assert_eq!(
        (first.name.as_str(), &first.shape[..]),
        ("stem.weight", &[16, 3, 3, 3][..])
    );
    assert_eq!(first.initial, Initial::Uniform(1.0 / 27f64.sqrt()));
    assert!(parameters(&program.model).contains(&"z.weight"));
    let wrong = resolve(&text.replace("upsample(h, 4)", "upsample(h, 3)")).unwrap_err();
    assert!(wrong.to_string().contains("`factor` must be a power of two, found 3"));
}

#[test]
fn what_the_loss_does_not_need_is_left_out_with_a_warning() {
    let text = "model m {
        input x: real[batch, 8], input y: real[batch, 8], input unused: i32[batch]
        dead = linear(x, 100)
        loss mse(linear(x, 8), y)
        late = relu(x)
    }";
    let source = SourceFile::new("test.rdl", text);
    let (program, warnings) = parse(&source, &NoFiles).expect("it is right");
    assert_eq!((program.model.nodes.len(), program.model.inputs.len()), (2, 2));
    let lines: Vec<u32> = warnings.iter().map(|warning| warning.place.line).collect();
    assert_eq!(lines, [2, 3, 5], "{warnings:?}");
}

#[test]
fn weight_decay_spares_what_patterns_name() {
    let text = "model m {
            input x: real[batch, 8], input y: real[batch, 8]
            h = linear(x, 8)
            loss mse(linear(h, 8), y)
        }
        train { optimizer sgd(0.1, momentum = 0.9, nesterov = true, no_decay = [\"h.*\"]) }";
    let program = resolve(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let treatments = program.model.parameters.values().map(|p| p.treatment);
    let decayed: Vec<bool> = treatments.map(|t| t == Treatment::Decayed).collect();
    assert_eq!(decayed, [false, false, true, false]);
    assert_eq!(
        program.train.optimizer.method,
        Method::Sgd { momentum: 0.9, nesterov: true }
    );
}

#[test]
fn a_program_without_cluster_has_one_plain_device() {
    let program =
        resolve("model m { input x: real[batch, 8], loss mse(linear(x, 8), x) }");
    let target = program.unwrap_or_else(|wrong| panic!("{wrong}")).target;
    assert_eq!((target.devices.len(), target.domains.len()), (1, 0));
}

#[test]
fn a_search_is_set_from_the_command_line() {
    let mut search = Search::default();
    let settings = [
        "rule=cyclic(slack=2) | sync",
        "stages = 2..4 | 8",
        "replicas = 2 | 4",
        "shards = 2",
        "memory<=1 GB",
        "order=1f1b",
        "tensor.rows=2 | 4",
        "tensor.columns<=3",
        "tensor.overdecompose<=2",
        "tensor.depth=2 | 4",
        "tensor.contraction=gather",
        "sequence=split",
        "images=split",
    ];
    for setting in settings {
        search.set(setting).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    assert_eq!(search.rule, Choice::OneOf(vec![Rule::CyclicSlack(2), Rule::Sync]));
    assert_eq!(search.stages, Numbers::Ranges(vec![(2, 4), (8, 8)]));
    assert_eq!(search.replicas, Numbers::Ranges(vec![(2, 2), (4, 4)]));
    assert_eq!(search.shards, Numbers::Ranges(vec![(2, 2)]));
    assert_eq!(search.rows, Numbers::Ranges(vec![(2, 2), (4, 4)]));
    assert_eq!(search.columns, Numbers::Ranges(vec![(1, 3)]));
    assert_eq!(search.depth, Numbers::Ranges(vec![(2, 2), (4, 4)]));
    assert_eq!(search.contraction, Choice::OneOf(vec![Contraction::Gather]));
    assert_eq!(search.overdecompose, Numbers::Ranges(vec![(1, 2)]));
    assert_eq!(search.sequence, Choice::OneOf(vec![Sequence::Split]));
    assert_eq!(search.images, Choice::OneOf(vec![Images::Split]));
    search.set("tensor.contraction = alternate | gather").expect("it is a choice");
    let both = vec![Contraction::Alternate, Contraction::Gather];
    assert_eq!(search.contraction, Choice::OneOf(both), "nobody named `each`");
    search
        .set("rule=local(units = 2) | sync | local(2) | local(overlap = 0, units = 2)")
        .expect("it is right");
    let local = Rule::Local { units: 2, hop: Hop::None };
    assert_eq!(search.rule, Choice::OneOf(vec![local, Rule::Sync]), "each counts once");
    let before = search.clone();
    for (wrong, message) in [
        ("ruel=sync", "unknown key `ruel` in plan"),
        ("rule=sink", "unknown rule `sink`"),
        ("tensor.depth=0", "expected a whole number from 1 to 1048576, found 0"),
        ("overdecompose=2", "unknown key `overdecompose` in plan"),
        (
            "tensor.overdecompose=3",
            "the examples of a micro-batch are taken together, or in two halves",
        ),
        ("tensor.columns=0", "expected a whole number from 1 to 1048576, found 0"),
        ("tensor.rows=0", "expected a whole number from 1 to 1048576, found 0"),
        ("sequence=none", "unknown sequence `none`"),
        ("images=pixels", "unknown images `pixels`"),
        ("tensor.contraction=none", "unknown contraction `none`"),
        ("stages=", "`stages` needs a value"),
        ("", "expected a name, found end of file"),
        ("stages=4, rule=sync", "expected the end, found `,`"),
        ("rule=(", "expected a value, found end of file"),
    ] {
        let diagnostic = search.set(wrong).expect_err(wrong);
        assert_eq!(diagnostic.message, message, "{wrong}");
    }
    assert_eq!(search, before);
}

#[test]
fn the_design_programs_are_in_canonical_form() {
    for text in [first_program().text, SELENE.to_owned()] {
        assert_eq!(format(&text).unwrap_or_else(|wrong| panic!("{wrong}")), text);
    }
}

#[test]
fn every_example_is_right_and_in_canonical_form() {
    for example in examples() {
        let (_, warnings) =
            parse(&example, &Disk).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(format(&example.text).as_ref(), Ok(&example.text), "{}", example.path);
    }
}

#[test]
fn formatting_keeps_comments_and_meaning() {
    let text = "
#about
model   m{ # it
  input x:real [batch,8]
      input longer :real[ batch , 8 ]

  # deep
  z=linear( x,8 ,bias=true)  *  - 2 - -1*x   #end
  ,

  ,,
  y=(z  # of
     -z
 + 2*x-x
-x),,
  loss mse(z,
# inside
longer)
}
plan{ rule sync|cyclic( slack=1 ),stages 1 ..4,
cuts [ 1 ] }
";
    let expected = "\
# about
model m {    # it
    input x:      real[batch, 8]
    input longer: real[batch, 8]

    # deep
    z = linear(x, 8, bias = true) * -2 - -1 * x    # end

    y = (z    # of
        - z
        + 2 * x - x
        - x)
    loss mse(z,
        # inside
        longer)
}
plan {
    rule sync | cyclic(slack = 1), stages 1 .. 4
    cuts [1]
}
";
    let once = format(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(once, expected);
    assert_eq!(format(&once).expect("it was right before"), once);
    let [before, after] = [text, &once].map(resolve);
    assert_eq!(before, after);
}

#[test]
fn a_model_prints_one_line_per_row() {
    let text = "model m { input x: real[batch, 2], h = linear(x, 2), loss mse(dropout(h, 0.5), x) }";
    let expected = "\
model m
n0 x: real[batch, 2] below 0
w0 h.weight: [2, 2] = uniform(0.7071067811865475) decayed
w1 h.bias: [2] = uniform(0.7071067811865475)
o0 h: [batch, 2] = linear(n0, w0, w1)
o1 dropout: [batch, 2] = dropout[rate = 0.5](o0)
o2 mse: [] = mse(o1, n0)
loss o2
";
    let program = resolve(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(program.model.to_string(), expected);
}

#[test]
fn programs_may_nest_as_deep_as_the_limits_allow() {
    let [open, close] = ["relu(".repeat(30), ")".repeat(30)];
    let nested = model(&format!("z = {open}linear(x, 8){close}"));
    assert_eq!(nested.nodes.len(), 32);
    let repeats = "repeat 1 { ".repeat(20);
    let text = format!("z = x\n{repeats} z = z + linear(z, 8) {}", "}".repeat(20));
    let path = "repeat.0.".repeat(20);
    assert_eq!(parameters(&model(&text))[0], format!("{path}linear.weight"));
    let blocks: String =
        (1..20).map(|k| format!("block b{k}(x) {{ return b{}(x) }}\n", k - 1)).collect();
    let text = format!(
        "block b0(x) {{ return linear(x, 8) }}\n{blocks}
        model m {{ input x: real[batch, 8], loss mse(b19(x), x) }}"
    );
    let program = resolve(&text).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(parameters(&program.model).len(), 2);
}
