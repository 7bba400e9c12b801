//! What is often written in another way than it is read: what is said, and what is hinted.

use roundelay_dsl::{NoFiles, Program, Severity, SourceFile, parse};

const MODEL: &str = "model m { input x: real[batch, 8], loss mse(linear(x, 8), x) }";
const PARTS: &str = "
device core { memory 2 GB, compute 40 GFLOP/s, bandwidth 10 GB/s }
link bus { bandwidth 8 GB/s, latency 2 us }
";
const FLAT: &str = "cluster flat { 4 x core joined by bus }\n";

/// All that is said of a program, mistakes or warnings.
fn told(text: &str) -> String {
    let source = SourceFile::new("m.rdl", format!("{MODEL}\n{text}"));
    match parse(&source, &NoFiles) {
        Ok((_, warnings)) => warnings.iter().map(ToString::to_string).collect(),
        Err(refused) => refused.to_string(),
    }
}

/// All that is said of a model with this statement.
fn model(statement: &str) -> String {
    let text = format!(
        "model m {{\n input x: real[batch, 8]\n {statement}\n loss mse(linear(x, 8), x)\n}}"
    );
    let refused = parse(&SourceFile::new("m.rdl", text), &NoFiles).expect_err(statement);
    refused.to_string()
}

fn set(setting: &str) -> Result<Program, String> {
    let source = SourceFile::new("m.rdl", format!("{MODEL}\n{PARTS}{FLAT}"));
    let (mut program, _) = parse(&source, &NoFiles).expect("it is right");
    program.set_all(&[setting]).map_err(|mistake| mistake.to_string())?;
    Ok(program)
}

#[test]
fn slips_are_answered_with_what_is_read() {
    let link = |rest: &str| format!("link bus {{ {rest} }}");
    let cluster = |line: &str| format!("{PARTS}cluster c {{ {line} }}");
    let plan = |line: &str| format!("plan {{ {line} }}");
    for (text, said, hint) in [
        (plan("rule = sync"), "found `=`", "write `rule …` without `=`"),
        (
            link("bandwidth = 1 GB/s, latency 1 us"),
            "found `=`",
            "write `bandwidth …` without `=`",
        ),
        ("train { batch: 3 }".to_owned(), "found `:`", "write `batch …` without `:`"),
        ("trian { batch 3 }".to_owned(), "found `trian`", "did you mean `train`?"),
        (
            "block f(a, n = 3) { return linear(a, n) }".to_owned(),
            "expected `)`, found `=`",
            "arguments of blocks have no default",
        ),
        (plan("memory < 1 GB"), "found stray character `<`", "write `memory <= …`"),
        (plan("stages > 2"), "found stray character `>`", "write `stages >= …`"),
        (plan("tensor.rows 2"), "found stray character `.`", "write `tensor { rows … }`"),
        (cluster("4x core joined by bus"), "found `4x`", "write `4 x …`"),
        (
            cluster("node = 4xcore joined by bus, 1 x node"),
            "found `4xcore`",
            "write `4 x …`",
        ),
        (
            cluster("4 x core sharing 4 GB joined by bus"),
            "found `joined`",
            "write `joined by …` before `sharing …`",
        ),
        (cluster("core"), "expected a whole number of members", "write `1 x core`"),
        (cluster("core joined by bus"), "found `core`", "write `1 x core`"),
        (cluster("4 x core + core"), "found `core`", "write `1 x core`"),
        (cluster("node = core joined by bus, 2 x node"), "found", "write `1 x core`"),
        (plan("memory <= 80G"), "unknown unit `G`", "did you mean `GB`, `GB/s` or"),
        (plan("memory <= 1.5Ti"), "unknown unit `Ti`", "did you mean `TiB` or `TiB/s`?"),
    ] {
        let told = told(&text);
        assert!(told.contains(said), "{text}: {told}");
        assert!(told.contains(&format!("hint: {hint}")), "{text}: {told}");
    }
}

#[test]
fn no_slack_is_read_that_no_schedule_may_have() {
    let most = roundelay_schedule::SLACK_MAX;
    assert_eq!(told(&format!("plan {{ rule cyclic(slack = {most}) }}")), "");
    let more = told(&format!("plan {{ rule cyclic(slack = {}) }}", most + 1));
    assert!(more.contains("expected a whole number from 0 to 65536"), "{more}");
}

/// The nearest known name would mean something else, or there is none.
#[test]
fn words_of_other_systems_are_answered_with_what_says_the_same() {
    for (line, hint) in [
        ("plan { states fsdp }", "FSDP is `zero3`"),
        ("plan { states FSDP }", "FSDP is `zero3`"),
        ("plan { rule async }", "`cyclic_v2` and `cyclic_v1` use parameters"),
        ("plan { placement ddp }", "write `data`"),
        ("plan { minimize throughput }", "write `step_time`"),
        ("plan { tp 4 }", "write `tensor { rows 4 }`"),
        ("plan { dp 8 }", "write `replicas 4`"),
        ("plan { pipeline 4 }", "write `placement pipeline` and `stages 4`"),
        ("plan { zero 3 }", "write `states zero1`, `states zero2` or `states zero3`"),
        ("plan { gradient_accumulation 8 }", "write `micro_batches 8`"),
        ("plan { activation_checkpointing }", "write `recompute full`"),
        ("plan { sequence_parallel true }", "write `sequence split`"),
        ("plan { interleave 2 }", "write `order interleaved` and `chunks 2`"),
        ("plan { batch 8 }", "it is a key of `train`"),
        ("plan { banana 8 }", "known are minimize, result, "),
        ("train { optimizer adam(1e-3) }", "Adam is `adamw` with `weight_decay = 0`"),
        ("train { learning_rate 1 }", "write `optimizer adamw(lr = 1e-3"),
    ] {
        let told = told(line);
        assert!(told.contains(&format!("hint: {hint}")), "{line}: {told}");
    }
    let told = set("tp=4").expect_err("there is no such decision");
    assert!(told.contains("write `tensor { rows 4 }`"), "{told}");
}

#[test]
fn operators_and_arguments_of_other_libraries_are_answered() {
    for (value, hint) in [
        ("attention(x, num_heads = 4)", "write `heads`"),
        ("attention(x, 4, num_kv_heads = 2)", "write `key_heads`"),
        ("layer_norm(x, eps = 1e-5)", "write `epsilon`"),
        ("depthwise_conv(x)", "`conv2d(x, channels, groups = channels)`"),
        ("concat(x, x)", "`linear(a, width) + linear(b, width, bias = false)`"),
        ("split(x, 2)", "make each part by a map of its own"),
        ("exp(x)", "there are `relu`, `gelu`"),
        ("alibi(x)", "biases of scores by distance are not supported"),
        ("x / x", "a tensor can be divided by a number: `x / 2`"),
    ] {
        let told = model(&format!("y = {value}"));
        assert!(told.contains(hint), "{value}: {told}");
    }
}

#[test]
fn statements_of_other_languages_are_answered() {
    for (line, hint) in [
        ("for i in 0 .. 4 { x = linear(x, 8) }", "write `repeat 4 as i { … }`"),
        ("while true { x = linear(x, 8) }", "write `repeat 4 as i { … }`"),
        ("if layer < 2 { x = linear(x, 8) }", "a model has no conditions"),
        ("let y = linear(x, 8)", "write `x = …` alone"),
        ("def f(x) { return x }", "write `block name(x) { … return x }`"),
    ] {
        let told = model(line);
        assert_eq!(told.matches("error[").count(), 1, "{line}: {told}");
        assert!(told.contains(&format!("hint: {hint}")), "{line}: {told}");
    }
}

#[test]
fn a_number_where_a_size_or_a_name_is_expected_is_answered() {
    for (line, said) in [
        ("device d { memory 80 }", "hint: write the unit too, as in `80 GB`"),
        ("link l { latency 2 }", "hint: write the unit too, as in `2 us`"),
        ("plan { memory <= 80 }", "hint: write the unit too, as in `80 GB`"),
        (
            "plan { states 3 }",
            "expected a name of states, one of replicated, zero1, zero2, zero3",
        ),
        ("plan { order 1 }", "expected a name of order such as `1f1b`"),
    ] {
        let told = told(line);
        assert!(told.contains(said), "{line}: {told}");
    }
}

/// Behind a sign something must follow, and that is what is missed.
#[test]
fn what_is_missing_behind_a_sign_is_named() {
    for (text, said) in [
        ("plan {\n order 1f1b |\n}", "expected a value, found end of line"),
        ("plan { stages 2 | }", "expected a value, found `}`"),
        ("cluster c {\n 2 x core +\n}", "expected a whole number of members, found end"),
    ] {
        let told = told(text);
        assert!(told.contains(said), "{text}: {told}");
    }
}

#[test]
fn words_of_a_list_are_told_apart_from_ranges_and_numbers() {
    let form = |form: &str| {
        told(&format!("link l {{ bandwidth 8 GB/s, latency 2 us, form {form} }}"))
    };
    assert!(form("ring .. tree").contains("`form` takes no range"));
    assert!(form("").contains("`form` needs a value"));
    assert!(form("rnig").contains("did you mean `ring`?"));
    let units = told("plan { rule local(units = 4, overlap = 2) }");
    assert!(units.contains("overlap by one unit, or not at all"), "{units}");
    assert!(units.contains("write `overlap = 1`, or leave `overlap` out"), "{units}");
}

#[test]
fn a_dotted_key_needs_no_sign() {
    for (plain, signed) in [
        ("tensor.rows 2", "tensor.rows = 2"),
        (" core.memory 1 GB", "core.memory=1 GB"),
        ("train.batch 16", "train.batch = 16"),
        ("bus.latency\t1 us", "bus.latency = 1 us"),
    ] {
        let set_plain = set(plain).unwrap_or_else(|mistake| panic!("{mistake}"));
        assert_eq!(Ok(set_plain), set(signed), "{plain}");
    }
    let bare = set("tensor.rows").expect_err("it has no value");
    assert!(bare.contains("`rows` needs a value"), "{bare}");
}

#[test]
fn keys_of_the_file_alone_are_told_from_unknown_ones() {
    for (setting, hint) in [
        (
            "train.data = synthetic",
            "write `data` in the file; what can be set is `train.batch`",
        ),
        ("bus.form = tree", "what can be set is `bus.bandwidth`, `bus.latency`"),
        (
            "core.threads = 2",
            "write `threads` in the file; what can be set is `core.memory`",
        ),
    ] {
        let told = set(setting).expect_err(setting);
        assert!(told.contains("`--set` does not change"), "{told}");
        assert!(told.contains(hint), "{told}");
    }
    let unknown = set("train.stepz = 5").expect_err("there is none");
    assert!(unknown.contains("unknown key `stepz` in train"), "{unknown}");
}

#[test]
fn what_is_set_by_name_has_a_name_of_its_own() {
    let twice = told(&format!("{}{FLAT}", PARTS.replace("bus", "core")));
    assert!(twice.contains("link `core` is called like a device"), "{twice}");
    assert!(twice.contains("note: the device is here"), "{twice}");
    let parts = PARTS.replace("core", "stage").replace("bus", "tensor");
    let both = told(&format!("{parts}cluster c {{ 4 x stage joined by tensor }}"));
    for part in ["device `stage`", "link `tensor`"] {
        let said = format!("warning[duplicate]: `--set` cannot reach {part}");
        assert!(both.contains(&said), "{both}");
    }
    assert_eq!(told(&format!("{PARTS}{FLAT}")), "");
}

#[test]
fn devices_of_no_cluster_are_told_of_once() {
    let idle = told(PARTS);
    assert_eq!(idle.matches("warning[unused]").count(), 1, "{idle}");
    assert!(idle.contains("device `core` is in no cluster"), "{idle}");
    assert!(idle.contains("one plain core"), "{idle}");
    assert_eq!(told("import \"roundelay:devices/a100.rdl\""), "");
}

#[test]
fn what_is_not_told_is_told_to_be_there() {
    let most = 100;
    let told = |statements: &[String]| {
        let text = format!(
            "model m {{\n input x: real[batch, 8]\n {}\n loss mse(linear(x, 8), x)\n}}",
            statements.join("\n ")
        );
        match parse(&SourceFile::new("m.rdl", text), &NoFiles) {
            Ok((_, warnings)) => warnings,
            Err(refused) => refused.iter().cloned().collect(),
        }
    };
    for (statement, severity) in [
        ("linear(x, none)", Severity::Error),
        ("linear(x, 4", Severity::Error),
        ("linear(x, 4)", Severity::Warning),
    ] {
        let bad = |count| -> Vec<String> {
            (0..count).map(|number| format!("y{number} = {statement}")).collect()
        };
        let some = told(&bad(9));
        assert!(some.iter().all(|said| !said.message.contains("there are more")));
        let all = told(&bad(3 * most));
        assert_eq!(all.len(), most + 1, "{statement}");
        let last = &all[most];
        assert_eq!(last.severity, severity, "{last}");
        assert!(last.message.contains("there are more: at most 100"), "{last}");
    }
    // A mistake that comes again and again is one.
    let again = "repeat 300 {\n y = linear(x, 4)\n }\n z = linear(x, none)".to_owned();
    assert_eq!(told(&[again]).len(), 1);
}

/// What is said of a model whose loss this is, behind a statement.
fn minimising(statement: &str, loss: &str) -> String {
    let text = format!(
        "model m {{\n input x: real[batch, 8]\n input s: real[batch, 3, 20]\n {statement}\n \
         loss {loss} + mse(linear(s, 20), s)\n}}"
    );
    match parse(&SourceFile::new("m.rdl", text), &NoFiles) {
        Ok((_, warnings)) => warnings.iter().map(ToString::to_string).collect(),
        Err(refused) => refused.to_string(),
    }
}

#[test]
fn a_quotient_with_a_rest_is_no_number_of_repeats_and_the_hint_says_why() {
    let hint = "hint: `/` makes a real number where";
    for times in ["7 / 2", "3 * (5 / 2)", "-(7 / 2)"] {
        let refused = model(&format!("repeat {times} {{ x = relu(x) }}"));
        assert!(refused.contains(hint), "{times}: {refused}");
    }
    let refused = model("repeat 3.5 { x = relu(x) }");
    assert!(!refused.contains("hint:"), "{refused}");
}

#[test]
fn an_argument_without_a_name_behind_one_with_a_name_is_told_of() {
    let refused = model("y = linear(width = 4, x)");
    assert!(refused.contains("without a name stands behind `width = …`"), "{refused}");
    assert!(refused.contains("write arguments without a name first"), "{refused}");
    let refused = model("y = linear(x, 4, width = 4)");
    assert!(refused.contains("`width` of `linear` is given twice"), "{refused}");
}

#[test]
fn heads_that_do_not_turn_in_pairs_are_hinted_at_where_their_width_is_given() {
    for (arguments, hint) in [
        ("4", "the width must be an even multiple"),
        ("4, head_width = 5", "`head_width` must be even"),
        ("4, head_width = 6, turned = 3", "write an even number"),
    ] {
        let call = format!("y = attention(s, {arguments}, rotary = true)");
        let refused = minimising(&call, "mse(linear(x, 8), x)");
        assert!(refused.contains(&format!("hint: {hint}")), "{arguments}: {refused}");
    }
}

#[test]
fn rates_are_known_in_whatever_letters() {
    let told = |rate: &str| {
        told(&format!("device d {{ memory 2 GB, compute {rate}, bandwidth 10 GB/s }}"))
    };
    for (rate, hint) in [
        ("10 Gflop/s", "did you mean `GFLOP/s`?"),
        ("10 TFlop/s", "did you mean `TFLOP/s`?"),
        ("10 tflop", "did you mean `TFLOP/s`?"),
        ("1 Gflops", "did you mean `GFLOP/s`?"),
        ("10 EFLOP/s", "1 EFLOP/s is `1000 PFLOP/s`"),
        ("2 EFLOPS", "1 EFLOP/s is `1000 PFLOP/s`"),
        ("80G", "did you mean `GB`, `GB/s` or `GFLOP/s`?"),
    ] {
        let told = told(rate);
        assert!(told.contains("error[unit]: unknown unit"), "{rate}: {told}");
        assert!(told.contains(&format!("hint: {hint}")), "{rate}: {told}");
    }
}

#[test]
fn a_line_that_ends_in_a_sign_is_one_mistake_with_a_hint() {
    for statement in ["y = x +\n x", "y = x *\n linear(x, 8)", "y = x +\n z = x"] {
        let told = model(statement);
        assert_eq!(told.matches("error[").count(), 1, "{statement}: {told}");
        assert!(told.contains("expected a value, found end of line"), "{told}");
        assert!(told.contains("hint: lines go on inside of ( ) only"), "{told}");
    }
    let twice = model("y = x +\n x +\n x");
    assert_eq!(twice.matches("lines go on inside").count(), 2, "{twice}");
}

#[test]
fn words_of_other_languages_are_answered_in_letters_of_this_one() {
    let argument = model("y = linear(x, 8, bias = True)");
    assert!(argument.contains("hint: did you mean `true`?"), "{argument}");
    let constant = told("train { optimizer sgd(0.1, momentum = 0.9, nesterov = True) }");
    assert!(constant.contains("hint: did you mean `true`?"), "{constant}");
    let element = model("input z: f32[batch, 8]");
    assert!(element.contains("unknown element type `f32`"), "{element}");
    assert!(element.contains("`real` for real numbers"), "{element}");
}

#[test]
fn what_is_left_out_is_warned_of_once() {
    let loss = "mse(linear(x, 8), x)";
    let warned = minimising("w = linear(x, 8)", loss);
    assert_eq!(warned.matches("warning[unused]").count(), 1, "{warned}");
    assert!(warned.contains("what is computed here"), "{warned}");
    let warned = minimising("param own: [8]\n input y: i32[batch]", loss);
    assert_eq!(warned.matches("warning[unused]").count(), 2, "{warned}");
}

#[test]
fn a_loss_that_counts_nothing_is_warned_of() {
    let one = "mse(linear(x, 8), x)";
    for (loss, count) in [
        (one.to_owned(), 0),
        (format!("0.5 * {one} - {one}"), 0),
        (format!("0 * {one}"), 1),
        (format!("{one} + 0.0 * (0.5 * {one})"), 1),
    ] {
        let warned = minimising("", &loss);
        let found = warned.matches("is 0, so nothing is learned of it").count();
        assert_eq!(found, count, "{loss}: {warned}");
    }
}

/// Each in its place, in the order of the text.
#[test]
fn all_mistakes_of_an_optimizer_and_its_rate_are_told() {
    for (optimizer, wrong) in [
        (
            "adamw(-1, beta1 = 2, beta2 = 3, epsilon = 0, clip = -1)",
            &["lr", "beta1", "beta2", "epsilon", "clip"][..],
        ),
        ("adamw(clip = -1, lr = -1, weight_decay = -2)", &["clip", "lr", "weight_decay"]),
        ("sgd(0.1, momentum = 1, no_decay = [3])", &["momentum", "no_decay"]),
        ("sgd(-1, nesterov = true)", &["lr", "nesterov"]),
        ("sgd(step(-1, -2, 0))", &["lr", "factor", "every"]),
        ("sgd(warmup(-3, cosine(-1, 0, -1)))", &["lr", "steps", "last"]),
    ] {
        let refused = told(&format!("train {{ optimizer {optimizer} }}"));
        assert_eq!(refused.matches("error[").count(), wrong.len(), "{refused}");
        let places = wrong.iter().map(|name| refused.find(&format!("]: `{name}`")));
        let places: Vec<usize> = places.map(|found| found.expect(&refused)).collect();
        assert!(places.is_sorted(), "{refused}");
    }
}
