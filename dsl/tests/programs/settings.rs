//! What `--set` changes of a resolved program, prices, and constants of learning.

use roundelay_dsl::{
    Learning, NanoDollarsPerHour, NoFiles, Objective, Program, SourceFile, parse,
};
use roundelay_schedule::{Bytes, Id};
use std::time::{Duration, Instant};

pub(crate) const MODEL: &str = "
model line {
    input x: real[batch, 8]
    input y: real[batch, 8]
    loss mse(linear(linear(x, 8), 8), y)
}
";
pub(crate) const PARTS: &str = "
device core { memory 2 GB, reserved 100 MB, compute 40 GFLOP/s, bandwidth 10 GB/s }
device big { memory 4 GB, compute 80 GFLOP/s, bandwidth 20 GB/s, price 2.5 USD/h }
link bus { bandwidth 8 GB/s, latency 2 us }
link net { bandwidth 1 GB/s, latency 9 us }
";

fn read(rest: &str) -> Result<Program, String> {
    let source = SourceFile::new("m.rdl", format!("{MODEL}{PARTS}{rest}"));
    let parsed = parse(&source, &NoFiles).map_err(|mistakes| mistakes.to_string());
    parsed.map(|(program, _)| program)
}

pub(crate) fn program(rest: &str) -> Program {
    read(rest).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

pub(crate) fn set(rest: &str, settings: &[&str]) -> Result<Program, String> {
    let mut program = program(rest);
    let before = program.clone();
    let done = program.set_all(settings).map_err(|mistake| mistake.to_string());
    match done {
        Ok(()) => Ok(program),
        Err(mistake) => {
            assert_eq!(program, before, "a refused setting changes nothing");
            Err(mistake)
        }
    }
}

pub(crate) const FLAT: &str = "cluster flat { 4 x core joined by bus }";
const SHARED: &str = "cluster laptop { 4 x big joined by bus sharing 8 GB }";

#[test]
fn devices_links_and_memories_are_set_as_the_file_would() {
    let both = |settings: &[&str], from: &str, to: &str| {
        let text = format!("{PARTS}{FLAT}");
        let edited = text.replace(from, to);
        assert_ne!(text, edited);
        let source = SourceFile::new("m.rdl", format!("{MODEL}{edited}"));
        let (expected, _) = parse(&source, &NoFiles).expect("the edited file is whole");
        assert_eq!(set(FLAT, settings), Ok(expected), "{settings:?}");
    };
    both(&["core.memory = 3 GB"], "core { memory 2 GB", "core { memory 3 GB");
    both(&["core.compute=50 GFLOP/s"], "compute 40", "compute 50");
    both(&["core.bandwidth = 11 GB/s"], "bandwidth 10 GB/s", "bandwidth 11 GB/s");
    both(
        &["core.price = 3 USD/h"],
        "bandwidth 10 GB/s }",
        "bandwidth 10 GB/s, price 3 USD/h }",
    );
    for time in ["0 us", "3 us"] {
        let edited = format!("bandwidth 10 GB/s, issue {time} }}");
        both(&[&format!("core.issue = {time}")], "bandwidth 10 GB/s }", &edited);
    }
    both(&["bus.bandwidth = 16 GB/s"], "8 GB/s", "16 GB/s");
    both(&["bus.latency = 1 us"], "latency 2 us", "latency 1 us");
    for capacity in [3, 9] {
        let setting = format!("laptop.sharing = {capacity} GB");
        let edited = SHARED.replace("8 GB", &format!("{capacity} GB"));
        assert_eq!(set(SHARED, &[&setting]), Ok(program(&edited)), "{setting}");
    }
    let tight = SHARED.replace("8 GB", "1 GB");
    assert_eq!(set(&tight, &["laptop.sharing = 8 GB"]), Ok(program(SHARED)));
    let batch = set(FLAT, &["train.batch = 24", "stages = 2"]).expect("both are known");
    assert!(batch.train.batch == 24 && batch.search.stages.allows(2));
}

#[test]
fn the_peak_is_known_of_devices_that_say_what_they_reach() {
    let device = "device fast { memory 2 GB, bandwidth 9 GB/s, \
                  compute 80 GFLOP/s { reach 0.5, bf16 90 GFLOP/s } }";
    let cluster = "cluster mixed { pair = 1 x fast + 1 x core joined by bus, \
                   2 x pair joined by net }";
    let mixed = format!("{device}\n{cluster}\n");
    let peaks = |program: &Program| -> Vec<(usize, u64)> {
        program
            .peaks
            .iter()
            .map(|(id, rate)| (id.index(), rate.0 / 1_000_000_000))
            .collect()
    };
    let set = |settings: &[&str]| peaks(&set(&mixed, settings).expect("it goes with it"));
    assert_eq!(peaks(&program(&mixed)), [(0, 80), (2, 80)]);
    assert_eq!(
        peaks(&program(&format!("{mixed} train {{ dtype bf16 }}"))),
        [(0, 90), (2, 90)]
    );
    assert_eq!(set(&["cluster.devices = 6"]), [(0, 80), (2, 80), (4, 80)]);
    assert_eq!(set(&["cluster.devices = 2"]), [(0, 80)]);
    assert_eq!(set(&["core.compute = 9 GFLOP/s"]), [(0, 80), (2, 80)]);
    assert_eq!(set(&["fast.compute = 9 GFLOP/s"]), []);
}

#[test]
fn a_resized_cluster_is_the_one_that_the_file_would_describe() {
    let nested = |nodes: u32| {
        format!(
            "cluster c {{ node = 2 x core joined by bus, {nodes} x node joined by net }}"
        )
    };
    let pooled = |nodes: u32| {
        format!(
            "cluster c {{ node = 2 x core sharing 3 GB, {nodes} x node joined by bus }}"
        )
    };
    let boxes = |nodes: u32| {
        format!(
            "cluster c {{ node = 2 x core joined by bus sharing 3 GB, \
             {nodes} x node joined by net }}"
        )
    };
    let flat = |count: u32| format!("cluster flat {{ {count} x core joined by bus }}");
    let laptop =
        |count: u32| format!("cluster l {{ {count} x big joined by bus sharing 8 GB }}");
    let describe: [(&dyn Fn(u32) -> String, u32); 5] =
        [(&flat, 1), (&laptop, 1), (&nested, 2), (&boxes, 2), (&pooled, 2)];
    for (text, unit) in describe {
        for (from, to) in [(4, 7), (4, 2), (3, 4), (2, 9), (5, 5)] {
            let setting = format!("cluster.devices = {}", to * unit);
            let resized = set(&text(from), &[&setting]).expect("whole units");
            let expected = program(&text(to));
            let case = format!("{} to {to}", text(from));
            assert_eq!(resized.target.devices, expected.target.devices, "{case}");
            assert_eq!(resized.target.pools, expected.target.pools, "{case}");
            assert_eq!(resized.target.domains, expected.target.domains, "{case}");
            assert_eq!(resized.prices, expected.prices, "{case}");
        }
    }
    for text in [&flat as &dyn Fn(u32) -> String, &laptop] {
        let resized = set(&text(1), &["cluster.devices = 4"]).expect("a link joins it");
        assert_eq!(resized.target, program(&text(4)).target);
    }
    let odd = set(&nested(2), &["cluster.devices = 5"]).expect_err("half a node");
    assert!(odd.contains("2 devices at a time") && odd.contains("6"), "{odd}");
    let odd = set(&pooled(2), &["cluster.devices = 5"]).expect_err("half a memory");
    assert!(odd.contains("2 devices at a time") && odd.contains("6"), "{odd}");
    let alone = set("cluster one { 1 x core }", &["cluster.devices = 2"]);
    assert!(alone.expect_err("there is no link").contains("no link"));
}

/// Work that grows with the square of a cluster would take half a minute here.
#[test]
fn the_largest_clusters_are_resized_as_fast_as_they_are_read() {
    let nested = |nodes: u32| {
        format!(
            "cluster c {{ node = 2 x core joined by bus, {nodes} x node joined by net }}"
        )
    };
    let (small, large) = (nested(2), nested(32_768));
    let begun = Instant::now();
    let expected = program(&large);
    let read = begun.elapsed();
    let resized = set(&small, &["cluster.devices = 65536"]).expect("whole nodes");
    let taken = begun.elapsed() - read;
    assert_eq!(resized.target, expected.target);
    assert!(taken < 10 * read + Duration::from_secs(5), "{taken:?} for {read:?}");
}

#[test]
fn a_setting_that_fits_nothing_says_what_would() {
    let refused = |setting: &str| set(FLAT, &[setting]).expect_err(setting);
    let nobody = refused("cor.memory = 3 GB");
    assert!(nobody.contains("did you mean `core`?"), "{nobody}");
    let nothing = refused("core.memroy = 3 GB");
    assert!(nothing.contains("`memory`"), "{nothing}");
    let rate = refused("core.memory = 3 GB/s");
    assert!(rate.contains("a size such as") && rate.contains("--set"), "{rate}");
    assert!(refused("core.memory = 50 MB").contains("reserved"));
    assert!(refused("bus.bandwidth = 0 GB/s").contains("more than zero"));
    assert!(refused("train.batch = 0").contains("whole number"));
    assert!(refused("cluster.devices = 0").contains("whole number"));
    for setting in ["core = 3", "core", "core 5 { memory 3 GB }", "core {}"] {
        let bare = refused(setting);
        assert!(bare.contains("takes a key, such as `core.memory = …`"), "{bare}");
    }
    let nobody = refused("cor = 3");
    assert!(nobody.contains("decision, device, link or shared memory"), "{nobody}");
    assert!(nobody.contains("did you mean `core`?"), "{nobody}");
    assert!(refused("core { memory 3 GB, memory 4 GB }").contains("twice"));
    let both = set(FLAT, &["core { memory 3 GB, price 2 USD/h }"]).expect("two keys");
    assert!(both.prices.len() == 4);
    assert!(both.target.devices.values().all(|d| d.memory == Bytes(2_900_000_000)));
}

#[test]
fn a_key_without_its_name_is_hinted_in_full() {
    let refused = |rest: &str, setting: &str| set(rest, &[setting]).expect_err(setting);
    for (setting, hint) in [
        ("batch = 7", "did you mean `train.batch`?"),
        ("bach = 7", "did you mean `train.batch`?"),
        ("rows = 2", "did you mean `tensor.rows`?"),
        ("critical_batch = 7", "did you mean `result.critical_batch`?"),
        ("latency = 1 us", "did you mean `bus.latency`?"),
        ("sharing = 9 GB", "did you mean `laptop.sharing`?"),
        ("laptop2.sharing = 9 GB", "did you mean `laptop`?"),
    ] {
        let told = refused(SHARED, setting);
        assert!(told.contains(hint), "{told}");
    }
}

#[test]
fn who_names_the_cluster_for_its_links_hears_of_them() {
    let nested = "cluster c { node = 2 x core joined by bus, 2 x node joined by net }";
    let told = set(nested, &["c.bandwidth = 9 GB/s"]).expect_err("a cluster is no link");
    assert!(
        told.contains("the links of cluster `c` are `bus`, `net`, innermost"),
        "{told}"
    );
    for name in ["laptop", "cluster"] {
        let told = set(SHARED, &[&format!("{name}.latency = 1 us")]);
        let told = told.expect_err("a cluster is no link");
        assert!(
            told.contains(&format!("`{name}` is not a link, so it has no `latency`"))
        );
        assert!(told.contains("the links of cluster `laptop` are `bus`"), "{told}");
    }
    let own = "cluster c { node = 2 x core joined by bus, 2 x node joined by node }";
    for own in [own, "cluster c { 2 x core joined by c }"] {
        let told = read(own).expect_err("a group is no link");
        assert!(told.contains("is a group of devices, no link"), "{told}");
        assert!(told.contains("links are `bus`, `net`"), "{told}");
    }
}

#[test]
fn the_first_mistake_is_told_whatever_has_the_other_keys() {
    let nested = "cluster c { node = 2 x core joined by bus, 2 x node joined by net }";
    for (setting, first) in [
        ("core { memroy 2 GB, latency 1 us }", "unknown key `memroy`"),
        ("core { latency 1 us, memroy 2 GB }", "so it has no `latency`"),
    ] {
        let told = set(nested, &[setting]).expect_err("a core has none of these");
        assert!(told.contains(first), "{told}");
    }
}

/// By its key, whatever it was set of.
#[test]
fn who_sets_a_key_of_something_else_hears_what_has_it() {
    let nested = "cluster c { node = 2 x core joined by bus, 2 x node joined by net }";
    let (devices, links) = ("the devices of cluster `c` are `core`", "`bus`, `net`");
    let cluster = "write `cluster.devices = …`";
    for (setting, hint) in [
        ("c.memory = 2 GB", devices),
        ("c.memory = 2 GB", "write `core.memory = …`"),
        ("c.price = 2 USD/h", "write `core.price = …`"),
        ("c.devices = 4", cluster),
        ("core.devices = 4", cluster),
        ("bus.devices = 4", cluster),
        ("bus.memory = 2 GB", devices),
        ("core.latency = 1 us", links),
        ("core.latency = 1 us", "write `bus.latency = …`"),
        ("c.bandwidth = 1 GB/s", "write `bus.bandwidth = …`"),
        ("c.sharing = 9 GB", "no group shares a memory"),
        ("cluster.memory = 2 GB", devices),
        ("cluster.batch = 4", "write `train.batch = …`"),
        ("c = 4", cluster),
        ("c = 4", devices),
        ("c = 4", links),
    ] {
        let told = set(nested, &[setting]).expect_err(setting);
        assert!(told.contains(hint), "{setting}: {told}");
    }
    for (setting, hint) in [
        ("laptop.memory = 2 GB", "`laptop` is not a device, so it has no `memory`"),
        ("laptop.memory = 2 GB", "write `big.memory = …`"),
        ("laptop.devices = 4", cluster),
        ("big.sharing = 4 GB", "write `laptop.sharing = …`"),
    ] {
        let told = set(SHARED, &[setting]).expect_err(setting);
        assert!(told.contains(hint), "{setting}: {told}");
        assert!(!told.contains("the links of"), "{setting}: {told}");
    }
}

/// Its memory has its name, and is nobody else's.
#[test]
fn a_device_of_no_group_shares_no_memory() {
    let source = SourceFile::new("m.rdl", MODEL);
    let (mut alone, _) = parse(&source, &NoFiles).expect("a model is a program");
    for (setting, hint) in [
        ("core.overlap = 0.5", "`core.bandwidth`, `core.issue`, `core.price`\n"),
        ("core.sharing = 5 GB", "no group shares a memory"),
    ] {
        let told = alone.set_all(&[setting]).expect_err(setting).to_string();
        assert!(format!("{told}\n").contains(hint), "{setting}: {told}");
    }
}

#[test]
fn no_key_is_set_twice_on_one_line() {
    for [one, other, key] in [
        ["stages = 2", "stages 4", "`stages`"],
        ["rule = sync", "rule = sync", "`rule`"],
        ["tensor.rows = 2", "tensor { columns 2, rows 1 }", "`tensor.rows`"],
        ["core.memory = 3 GB", "core { memory 4 GB }", "`core.memory`"],
        ["train.batch = 8", "train.batch = 16", "`train.batch`"],
        ["memory <= 1 GB", "memory <= 2 GB", "`memory`"],
        ["result.staleness = 1", "result { staleness 2 }", "`result.staleness`"],
    ] {
        let told = set(FLAT, &[one, "micro_batches = 2", other]).expect_err(key);
        let both = format!("{key} is set twice, by `{one}` and `{other}`");
        assert!(told.contains(&both) && told.contains("--set:1"), "{told}");
    }
    let several = ["tensor.rows = 2", "tensor.columns = 2", "core.memory = 3 GB"];
    set(FLAT, &several).expect("each is set once");
    let stages =
        ["stages = 2", "stage 0 { recompute full }", "stage 1 { recompute none }"];
    set(FLAT, &stages).expect("stages are pinned one by one");
    let over = set(&format!("{FLAT}\nplan {{ stages 4 }}"), &["stages = 2"]);
    assert!(over.expect("a setting stands over the file").search.stages.allows(2));
}

#[test]
fn a_sign_is_one_only_right_behind_its_key() {
    let one =
        set(FLAT, &["rule cyclic(slack = 1)"]).expect("it stands in plans like this");
    assert_eq!(set(FLAT, &["rule = cyclic(slack = 1)"]), Ok(one.clone()));
    assert_eq!(set(FLAT, &["rule=cyclic(slack = 1)"]), Ok(one));
    let bound = set(FLAT, &["memory<=1 GB"]).expect("a bound");
    assert_eq!(set(FLAT, &["memory <= 1 GB"]), Ok(bound));
}

#[test]
fn prices_are_per_device_and_a_cost_needs_them_all() {
    let priced = program(&format!("{SHARED}\nplan {{ minimize cost }}"));
    assert_eq!(priced.search.objective, Objective::Cost);
    let all: Vec<NanoDollarsPerHour> = priced.prices.values().copied().collect();
    assert_eq!(all, [NanoDollarsPerHour(2_500_000_000); 4]);
    let mixed =
        "cluster m { 1 x big + 1 x core joined by bus }\nplan {\n minimize cost\n}";
    let refused = read(mixed).expect_err("core has no price");
    assert!(refused.contains("device `core` has no price"), "{refused}");
    assert!(refused.contains("m.rdl:8:8"), "{refused}");
    assert!(refused.contains("write `price 2.5 USD/h` in `device core`"), "{refused}");
    let later = set(FLAT, &["minimize = cost"]).expect_err("core has no price");
    assert!(later.contains("device `core` has no price") && later.contains("--set:1"));
    let given = set(FLAT, &["minimize = cost", "core.price = 1 USD/h"]);
    assert_eq!(given.expect("it has one now").prices.len(), 4);
    for price in ["2.5", "2.5 GB", "0 USD/h", "2.5 EUR/h"] {
        let text = format!(
            "device odd {{ memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s, price {price} }}"
        );
        let refused = read(&text).expect_err(price);
        assert!(refused.contains("m.rdl:12"), "{refused}");
    }
}

#[test]
fn the_result_needs_every_constant_and_takes_them_one_by_one() {
    let whole = "plan {
        minimize time_to_result
        result { least_steps 1000, critical_batch 512, staleness 0.25 }
    }";
    let learning = program(whole).search.learning;
    let expected = Learning {
        least_steps: Some(1000),
        critical_batch: Some(512),
        staleness: Some(250),
    };
    assert_eq!(learning, expected);
    let part = "plan {\n minimize time_to_result\n result { least_steps 1000 }\n}";
    let refused = read(part).expect_err("two are missing");
    assert!(refused.contains("needs critical_batch, staleness of `result`"), "{refused}");
    assert!(refused.contains("m.rdl:13:2"), "{refused}");
    assert!(refused.contains("hint: write `result {"), "{refused}");
    let later = set(FLAT, &["minimize = time_to_result"]);
    assert!(later.expect_err("all are missing").contains("least_steps, critical_batch"));
    let given = set(
        FLAT,
        &[
            "minimize = time_to_result",
            "result.least_steps = 1000",
            "result.critical_batch = 512",
            "result.staleness = 0.25",
        ],
    );
    assert_eq!(given.expect("all are there").search.learning, expected);
    for wrong in ["staleness -1", "staleness 2 GB", "least_steps 0", "critical 3"] {
        assert!(read(&format!("plan {{ result {{ {wrong} }} }}")).is_err(), "{wrong}");
    }
    assert!(read("plan { result 3 }").expect_err("no entries").contains("braces"));
}

/// `reach`, `update` and `loss` are shares of the same peak; updates and losses of which nothing is
/// said reach what other calls do.
#[test]
fn a_device_says_what_updates_and_losses_reach_of_its_memory() {
    let program = |shares: &str| {
        let rates =
            PARTS.replace("bandwidth 10 GB/s", &format!("bandwidth 10 GB/s {shares}"));
        assert_ne!(rates, PARTS);
        let source = SourceFile::new("m.rdl", format!("{MODEL}{rates}{FLAT}"));
        parse(&source, &NoFiles).map_err(|mistakes| mistakes.to_string())
    };
    let rates = |shares| {
        let (program, _) = program(shares).expect("the file is whole");
        let device = program.target.devices.values().next().expect("there is one");
        (device.bandwidth.0, device.updates.0, device.losses.0)
    };
    let peak = 10_000_000_000;
    assert_eq!(rates(""), (peak, 1000, 1000));
    assert_eq!(rates("{ reach 0.5 }"), (peak / 2, 1000, 1000));
    assert_eq!(rates("{ update 0.7 }"), (peak, 700, 1000));
    assert_eq!(rates("{ reach 0.5, update 0.7, loss 0.1 }"), (peak / 2, 1400, 200));
    for (wrong, why) in [
        ("{ update 1.5 }", "`update` is a share above 0"),
        ("{ loss 0 }", "`loss` is a share above 0"),
        ("{ updates 0.5 }", "unknown key `updates` in bandwidth"),
    ] {
        let told = program(wrong).expect_err("no such share");
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn a_device_says_what_of_a_pair_of_passes_hides() {
    let program = |overlap: &str| {
        let parts =
            PARTS.replace("core { memory 2 GB", &format!("core {{ {overlap}memory 2 GB"));
        let source = SourceFile::new("m.rdl", format!("{MODEL}{parts}{FLAT}"));
        parse(&source, &NoFiles).map_err(|mistakes| mistakes.to_string())
    };
    let hides = |overlap| {
        let (program, _) = program(overlap).expect("the file is whole");
        program.target.devices.values().map(|device| device.overlap.0).max()
    };
    assert_eq!(hides(""), Some(0));
    assert_eq!(hides("overlap 0.75, "), Some(750));
    assert_eq!(hides("overlap 1, "), Some(1000));
    assert_eq!(hides("overlap 0, "), Some(0));
    assert_eq!(hides("overlap 0.0, "), Some(0));
    for wrong in ["overlap 2, ", "overlap 1.2, ", "overlap 3 us, "] {
        let told = program(wrong).expect_err("no such share");
        assert!(told.contains("`overlap` is a share from 0 to 1"), "{told}");
    }
}

/// What is known is told once each, and a hint never says what stands there.
#[test]
fn what_would_do_instead_is_told() {
    let open =
        "device open { memory 1 GB, reserved 0 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }";
    assert!(read(&format!("{open}\n{FLAT}")).is_ok());
    let unknown = set(FLAT, &["rule = ring"]).expect_err("there is none");
    for form in ["sync", "cyclic_v2", "cyclic(slack = s)", "pairwise(units = k)"] {
        assert!(unknown.contains(form), "{unknown}");
    }
    let program = |train: &str, compute: &str| {
        let parts = PARTS.replace("compute 40 GFLOP/s", compute);
        let train = format!("train {{ data synthetic, batch 8, steps 2, {train} }}");
        let text = format!("{MODEL}{parts}{FLAT}\n{train}");
        let parsed = parse(&SourceFile::new("m.rdl", text), &NoFiles);
        match parsed {
            Ok((_, warnings)) => format!("{warnings:?}"),
            Err(mistakes) => mistakes.to_string(),
        }
    };
    let sgd = "optimizer sgd(lr = 0.1)";
    let twice =
        program(&format!("{sgd}, dtype f32 {{ gradients f64 }}"), "compute 1 GFLOP/s");
    assert!(twice.contains("known are f32") && !twice.contains("f32, f32"), "{twice}");
    for (dtype, lacks, other) in
        [("bf16", "bf16", "f32"), ("f32", "f32", "bf16"), ("f32", "f32 | bf16", "f16")]
    {
        let compute = format!("compute 1 GFLOP/s {{ lacks {lacks} }}");
        let told = program(&format!("{sgd}, dtype {dtype}"), &compute);
        assert!(told.contains(&format!("write `dtype {other}` in `train`")), "{told}");
    }
}

/// Numbers of an example, layers and examples that are within the limits, and one more of each.
#[test]
fn results_of_a_batch_are_bounded_alone_and_together() {
    let read = |width: u64, layers: u64, batch: u64| {
        let text = format!(
            "model m {{\n input x: real[batch, {width}]\n input y: real[batch, 1]\n\
             repeat {layers} as layer {{ x = relu(x) }}\n loss mse(linear(x, 1), y)\n}}\n\
             train {{ data synthetic, batch {batch}, optimizer sgd(lr = 0.1) }}"
        );
        let parsed = parse(&SourceFile::new("m.rdl", text), &NoFiles);
        parsed.map(|(program, _)| program).map_err(|mistakes| mistakes.to_string())
    };
    let (width, batch) = (1 << 22, 1 << 24);
    let one = format!("has more than {} elements for {batch} examples", 1u64 << 46);
    assert_eq!(read(width, 4000, batch).err(), None);
    let wide = read(width + 1, 1, batch).expect_err("one result is too large");
    assert!(wide.contains(&one) && wide.contains("take a smaller batch"), "{wide}");
    let long = read(width, 4100, batch).expect_err("all are too large together");
    assert!(long.contains("the whole model has more than"), "{long}");
    let mut program = read(width + 1, 1, 8).expect("few examples");
    let more = program.set_all(&[format!("train.batch={batch}")]);
    assert!(more.expect_err("it is bounded there too").to_string().contains(&one));
}

/// A sign behind a number is no unit for being one letter long.
#[test]
fn a_stray_sign_is_no_unit() {
    let refused = set(FLAT, &["bus.latency = 2 \u{d7}"]).expect_err("it is a sign");
    assert!(refused.contains("stray character `\u{d7}`"), "{refused}");
    assert!(!refused.contains("unit"), "{refused}");
}

/// Whoever writes a unit or a name as others do is told how it is written here.
#[test]
fn units_and_names_as_others_write_them_are_hinted() {
    for (setting, said, hint) in [
        ("core.memory = -1 GB", "a size in bytes is never negative", "take the `-` away"),
        ("core.memory = nan GB", "`GB` stands behind a number", "write `2 GB`"),
        ("bus.latency = 2 usec", "unknown unit `usec`", "did you mean `us`?"),
        ("bus.latency = 2 \u{b5}s", "unknown unit `\u{b5}`", "did you mean `us`?"),
        ("bus.latency = 2 seconds", "unknown unit `seconds`", "did you mean `s`?"),
        ("core.price = 1 EUR/h", "unknown unit `EUR`", "US dollars an hour"),
        ("core.price = 2 \u{20ac}", "unknown unit `\u{20ac}`", "US dollars an hour"),
        ("order = zb-h1", "expected a name of order", "write `zb_h1`"),
        (
            "placement = data-parallel",
            "expected a name of placement",
            "write `data_parallel`",
        ),
    ] {
        let refused = set(FLAT, &[setting]).expect_err(setting);
        assert!(refused.contains(said), "{setting}: {refused}");
        assert!(refused.contains(hint), "{setting}: {refused}");
    }
}

/// No name is near, so those that there are help.
#[test]
fn a_part_that_nobody_knows_is_answered_with_those_that_have_the_key() {
    for (setting, hint) in [
        ("gpu.memory = 4 GB", "the devices of cluster `flat` are `core`"),
        ("ethernet.latency = 4 us", "the links of cluster `flat` are `bus`"),
    ] {
        let refused = set(FLAT, &[setting]).expect_err(setting);
        assert!(refused.contains(hint), "{setting}: {refused}");
    }
}

/// Neither takes the place of the other without a word.
#[test]
fn stages_that_cuts_do_not_make_are_refused_whichever_is_set() {
    let said = "`stages` does not allow 2, which is how many `cuts` make";
    for (plan, settings, place) in [
        ("plan { cuts [1] }", &["stages=3"][..], "1 | stages 3"),
        ("plan { stages 3 }", &["cuts=[1]"], "1 | cuts [1]"),
        ("", &["cuts=[1]", "stages=3 .. 4"], "1 | stages 3 .. 4"),
    ] {
        let refused = set(&format!("{FLAT}\n{plan}"), settings).expect_err("they differ");
        for words in [said, place, "hint: write `stages 2` or other cuts"] {
            assert!(refused.contains(words), "`{words}` is not in {refused}");
        }
    }
    for settings in [&["stages=2"][..], &["stages=3", "cuts=[1, 2]"]] {
        let both = set(&format!("{FLAT}\nplan {{ cuts [1] }}"), settings);
        let search = both.unwrap_or_else(|mistake| panic!("{mistake}")).search;
        let made = search.cuts.map_or(0, |cuts| cuts.len() as u64 + 1);
        assert!(search.stages.allows(made), "{settings:?}");
    }
}
