//! Metrics of a model: what they are called, what they share, and that they change nothing else.

use roundelay_dsl::{
    Extent, Masked, Model, ModelBuilder, NoFiles, Operation, Program, Source, SourceFile,
    Value, fingerprint, parse,
};
use roundelay_schedule::{Element, Id, Reading};
use std::time::{Duration, Instant};

/// A classifier with metrics, and what is said about it; `before` and `after` stand around the
/// loss.
fn classifier(before: &str, after: &str) -> (Model, usize) {
    let text = format!(
        "model m {{
            input x: real[batch, 8]
            input y: i32[batch]
            hidden = relu(linear(x, 8))
            {before}
            logits = linear(hidden, 8)
            loss cross_entropy(logits, y)
            {after}
        }}"
    );
    let parsed = parse(&SourceFile::new("test.rdl", text), &NoFiles);
    let (program, warnings) = parsed.unwrap_or_else(|wrong| panic!("{wrong}"));
    (program.model, warnings.len())
}

/// Name, reading and operation of every metric.
fn metrics(model: &Model) -> Vec<(&str, Reading, Operation)> {
    let metric = |metric: &'_ roundelay_dsl::ModelMetric| {
        (metric.reading, model.nodes[metric.node].operation)
    };
    let rows = model.metrics.iter();
    rows.map(|row| (row.name.as_str(), metric(row).0, metric(row).1)).collect()
}

#[test]
fn metrics_are_called_as_they_are_bound_or_like_their_operator() {
    let (model, warnings) = classifier(
        "metric accuracy(hidden, y)
         accuracy = accuracy(hidden, y)
         early = perplexity(hidden, y)
         metric early",
        "metric accuracy(logits, y)
         metric accuracy",
    );
    let names: Vec<&str> = model.metrics.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["accuracy", "early", "accuracy_2", "accuracy_1"]);
    assert_eq!(warnings, 0);
}

#[test]
fn perplexity_reads_the_loss_wherever_it_stands() {
    for (before, after) in [
        ("", "metric perplexity(logits, y)\nmetric perplexity(hidden, y)"),
        ("metric perplexity(hidden, y)", "metric perplexity(logits, y)"),
    ] {
        let (model, warnings) = classifier(before, after);
        let of = |operation| {
            model.nodes.values().filter(|node| node.operation == operation).count()
        };
        let plain = Operation::CrossEntropy { masked: Masked::No };
        assert_eq!(of(plain), 2, "{model}");
        let loss = model.loss.expect("it has a loss");
        assert_eq!(model.metrics.iter().filter(|m| m.node == loss).count(), 1);
        let expected = (Reading::Exponential, plain);
        assert!(metrics(&model).iter().all(|(_, r, o)| (*r, *o) == expected));
        assert_eq!(warnings, 0);
    }
}

/// So it shares the node of a masked loss, and no target is out of bounds for it.
#[test]
fn perplexity_leaves_out_what_a_masked_loss_does() {
    let text = "model m {
            input x: real[batch, 8]
            input y: i32[batch]
            logits = linear(x, 8)
            loss cross_entropy(logits, y, masked = true)
            metric perplexity(logits, y, masked = true)
        }";
    let parsed = parse(&SourceFile::new("test.rdl", text), &NoFiles);
    let (program, _) = parsed.unwrap_or_else(|wrong| panic!("{wrong}"));
    let model = program.model;
    assert_eq!(model.metrics.first().map(|m| m.node), model.loss);
    assert_eq!(model.inputs.values().map(|input| input.bound).max(), Some(9));
}

/// A loss that makes its own logits has none for others, but the mean that it makes says as much.
#[test]
fn perplexity_reads_a_mean_that_is_there() {
    let parsed = |loss: &str, metric: &str| {
        let text = format!(
            "model m {{
                input x: real[batch, 8]
                input y: i32[batch]
                {loss}
                metric {metric}
            }}"
        );
        parse(&SourceFile::new("test.rdl", text), &NoFiles).map(|(program, _)| program)
    };
    let alone = "mean = linear_cross_entropy(x, y, 8, masked = true)\nloss mean";
    let model = parsed(alone, "perplexity(mean)").expect("it is a mean").model;
    let [metric] = &model.metrics[..] else { panic!("{model}") };
    assert_eq!((Some(metric.node), metric.reading), (model.loss, Reading::Exponential));
    let part = "mean = cross_entropy(linear(x, 8), y)\nloss 0.5 * mean";
    let model = parsed(part, "perplexity(mean)").expect("it is a mean").model;
    let [metric] = &model.metrics[..] else { panic!("{model}") };
    let plain = Operation::CrossEntropy { masked: Masked::No };
    assert_eq!(model.nodes[metric.node].operation, plain);
    for (loss, metric, expected) in [
        (alone, "perplexity(x)", "`perplexity` needs the argument `targets`"),
        (part, "perplexity(0.5 * mean)", "`perplexity` needs the argument `targets`"),
        (
            alone,
            "perplexity(mean, masked = true)",
            "says itself which rows it leaves out",
        ),
        (alone, "accuracy(mean)", "`accuracy` needs the argument `targets`"),
    ] {
        let wrong = parsed(loss, metric).expect_err(metric).to_string();
        assert!(wrong.contains(expected), "{wrong}");
    }
}

/// A loss alone, and with a metric that leaves out masked rows; updates have the same digits.
fn plain_and_measured(inputs: &str, masked: bool) -> [Program; 2] {
    let both = ["", "metric accuracy(logits, y, masked = true)"].map(|metric| {
        let text = format!(
            "model m {{
                {inputs}
                logits = linear(x, 8)
                loss cross_entropy(logits, y, masked = {masked})
                {metric}
            }}"
        );
        let parsed = parse(&SourceFile::new("test.rdl", text), &NoFiles);
        parsed.unwrap_or_else(|wrong| panic!("{wrong}")).0
    });
    let [plain, measured] = both
        .each_ref()
        .map(|program| fingerprint(program).split('-').next().map(str::to_owned));
    assert_eq!(plain, measured);
    both
}

/// What it leaves out is an input that data does not bring, and moves no other.
#[test]
fn accuracy_leaves_out_what_a_masked_loss_does() {
    let inputs = "input y: i32[batch]\n input x: real[batch, 8]";
    let [plain, measured] = plain_and_measured(inputs, true);
    assert_eq!(measured.model.inputs, plain.model.inputs);
    let names = measured.model.inputs.values().map(|input| input.name.as_str());
    assert!(names.eq(["y", "x", "y.shares.8"]));
    assert_eq!(measured.model.data_inputs().count(), 2);
}

/// A metric may leave out rows where the loss does not.
#[test]
fn metrics_bring_shares_of_their_own() {
    let inputs = "input x: real[batch, 8]\n input y: i32[batch]";
    let [_, measured] = plain_and_measured(inputs, false);
    assert_eq!(measured.model.inputs.len(), 3);
}

#[test]
fn what_only_metrics_need_stands_behind_the_loss() {
    let measured =
        "metric accuracy(relu(hidden), y)\ntop = accuracy(hidden, y)\nmetric top";
    let (plain, _) = classifier("", "");
    let (model, warnings) = classifier(measured, "metric accuracy(logits, y)");
    assert_eq!(model.loss, plain.loss);
    assert_eq!(model.cuttable(), plain.nodes.len());
    assert_eq!((model.inputs, model.parameters), (plain.inputs, plain.parameters));
    let same = model.nodes.iter().zip(plain.nodes.values());
    assert!(same.map(|((_, node), known)| (node, known)).all(|(node, k)| node == k));
    let behind = model.nodes.values().skip(plain.nodes.len());
    let operations: Vec<Operation> = behind.map(|node| node.operation).collect();
    let accuracy = Operation::Accuracy { masked: Masked::No };
    assert_eq!(operations, [Operation::Relu, accuracy, accuracy, accuracy]);
    assert_eq!(warnings, 0);
}

#[test]
fn names_of_metrics_move_no_name_of_a_parameter() {
    let text = |metric: &str| {
        format!(
            "model m {{
                input x: real[batch, 8]
                input y: i32[batch]
                {metric}
                accuracy = linear(x, 8)
                loss cross_entropy(accuracy, y)
            }}"
        )
    };
    let names = |text: String| -> Vec<String> {
        let parsed = parse(&SourceFile::new("test.rdl", text), &NoFiles);
        let (program, _) = parsed.unwrap_or_else(|wrong| panic!("{wrong}"));
        program.model.parameters.values().map(|p| p.name.clone()).collect()
    };
    assert_eq!(names(text("metric accuracy(x, y)")), names(text("")));
}

#[test]
fn a_metric_that_is_not_stated_is_left_out_with_a_warning() {
    let (model, warnings) = classifier("top = accuracy(hidden, y)", "");
    assert!(model.metrics.is_empty());
    assert_eq!(warnings, 1);
}

#[test]
fn the_fingerprint_knows_metrics() {
    let (plain, _) = classifier("", "");
    let (model, _) = classifier("", "metric perplexity(logits, y)");
    assert_eq!(model.to_string(), format!("{plain}metric perplexity o3 exponential\n"));
    let [one, other] = [plain, model].map(|model| fingerprint(&Program::new(model)));
    assert!(one != other && one[..16] == other[..16], "they change no update");
}

#[test]
fn models_from_rust_measure_too() {
    let build = || {
        let mut model = ModelBuilder::new("m");
        let shape = [Extent::batch(), Extent::fixed(8)];
        let x = model.input("x", Element::Real, &shape).unwrap();
        let y = model.input("y", Element::I32, &shape[..1]).unwrap();
        let logits = model.call("linear", vec![x.into(), 4.into()]).unwrap();
        (model, logits, y)
    };
    let (mut model, logits, y) = build();
    let arguments = || -> Vec<Value> { vec![(&logits).into(), (&y).into()] };
    let loss = model.call("cross_entropy", arguments()).unwrap();
    let unknown = model.metric("top", "acuracy", arguments()).unwrap_err();
    assert!(unknown.hints.iter().any(|hint| hint.contains("`accuracy`")), "{unknown:?}");
    model.metric("top", "accuracy", arguments()).unwrap();
    model.metric("top", "perplexity", arguments()).unwrap();
    let model = model.loss(&loss).unwrap();
    let expected = [
        ("top", Reading::Mean, Operation::Accuracy { masked: Masked::No }),
        ("top_1", Reading::Exponential, Operation::CrossEntropy { masked: Masked::No }),
    ];
    assert_eq!(metrics(&model), expected);

    let (mut model, logits, y) = build();
    let other = model.call("relu", vec![(&logits).into()]).unwrap();
    let other = model.call("linear", vec![other.into(), 4.into()]).unwrap();
    let loss = model.call("cross_entropy", vec![(&logits).into(), (&y).into()]).unwrap();
    model.metric("top", "accuracy", vec![other.into(), y.into()]).unwrap();
    let refused = model.loss(&loss).unwrap_err();
    assert!(refused.message.contains("`linear_1.weight`"), "{refused:?}");
}

#[test]
fn operands_of_metrics_stand_above_them() {
    let (model, _) = classifier("metric accuracy(relu(hidden), y)", "");
    for (id, node) in model.nodes.iter() {
        let above = |source: &Source| match source {
            Source::Node(operand) => operand.index() < id.index(),
            Source::Parameter(_) | Source::Input(_) => true,
        };
        assert!(node.operands.iter().all(above));
    }
}

/// Looking at every node for every node that a metric needs would take several seconds here.
#[test]
fn what_only_metrics_need_is_found_as_fast_as_the_rest_is_read() {
    let chain = |name: &str| {
        format!("{name} = hidden, repeat 18000 {{ {name} = relu({name}) }}\n")
    };
    let begun = Instant::now();
    classifier(&chain("hidden"), "");
    let read = begun.elapsed();
    let (before, after) = (chain("hidden"), chain("other") + "metric accuracy(other, y)");
    let (model, _) = classifier(&before, &after);
    let taken = begun.elapsed() - read;
    assert!(model.nodes.len() > 36_000, "{}", model.nodes.len());
    assert!(taken < 10 * read + Duration::from_secs(1), "{taken:?} for {read:?}");
}
