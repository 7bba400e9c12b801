//! Devices and clusters that ship with the compiler: each is read and plans a small model, and
//! says what the fit in `benches/calibrate` found.

use roundelay::{SearchOptions, SourceFile};
use std::{collections::BTreeMap, fs, path::Path};

const MODEL: &str = "
model tiny {
    input tokens:  i32[batch, 8]
    input targets: i32[batch, 8]
    x = embedding(tokens, 64, 32)
    x = x + attention(layer_norm(x), 4, causal = true)
    loss cross_entropy(linear(layer_norm(x), 64), targets)
}
train { data synthetic, batch 16, dtype bf16, optimizer adamw(lr = 1e-3) }
plan  { rule sync, placement accumulate | data, micro_batches 2 | 8 | 16 }
";

/// The names of the files of a folder, with their texts.
fn files(folder: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("dsl").join(folder);
    let entries = fs::read_dir(root).expect("the folder is there");
    let file = |path: &Path| {
        let name = path.file_name().expect("a file has a name").to_string_lossy();
        (name.into_owned(), fs::read_to_string(path).expect("the file is text"))
    };
    entries.map(|entry| file(&entry.expect("it can be read").path())).collect()
}

fn plans(name: &str, text: String) -> usize {
    let source = SourceFile::new(name.to_owned(), text);
    let program = match roundelay::parse(&source) {
        Ok(program) => program,
        Err(mistakes) => panic!("{name}: {mistakes}"),
    };
    let ranking = roundelay::plan(&program, &SearchOptions::default());
    let ranking = ranking.unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    let best = ranking.best();
    roundelay::compile(&program, best).expect("the plan is sound");
    program.target.devices.len()
}

#[test]
fn every_device_plans_a_model() {
    for (file, text) in files("devices") {
        let device = text.lines().find_map(|line| line.strip_prefix("device "));
        let device = device.and_then(|line| line.split_whitespace().next());
        let device = device.unwrap_or_else(|| panic!("{file} describes a device"));
        let link = "link wire { bandwidth 100 GB/s, latency 2 us }";
        let cluster = format!("cluster two {{ 2 x {device} joined by wire }}");
        let import = format!("import \"roundelay:devices/{file}\"\n");
        assert_eq!(plans(&file, format!("{import}{link}\n{cluster}\n{MODEL}")), 2);
    }
}

#[test]
fn every_cluster_plans_a_model() {
    for (file, text) in files("clusters") {
        let import = format!("import \"roundelay:clusters/{file}\"\n");
        let devices = plans(&file, format!("{import}{MODEL}"));
        assert!(devices >= 8, "{file} has {devices} devices");
        assert!(text.starts_with('#'), "{file} says where its constants come from");
    }
}

#[test]
fn shipped_constants_are_those_of_the_fit() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("benches/calibrate/fitted.csv"));
    let table = table.expect("the fit was written");
    let fitted: BTreeMap<&str, &str> =
        table.lines().skip(1).filter_map(|line| line.split_once(',')).collect();
    let mut used = 0;
    for (file, text) in files("devices").into_iter().chain(files("clusters")) {
        for line in text.lines() {
            let Some((before, key)) = line.split_once("# fitted: ") else { continue };
            let words: Vec<&str> = before.split_whitespace().skip(1).collect();
            let value = fitted.get(key.trim()).copied();
            assert_eq!(Some(words.join(" ").as_str()), value, "{file}: {line}");
            used += 1;
        }
    }
    assert!(used >= fitted.len(), "{used} lines use {} constants", fitted.len());
}
