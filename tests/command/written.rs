//! What commands write: never over what they read, and whole before it has its name.

use crate::support::{Ended, PROGRAM, Scratch, compiled, printed, refused, roundelay};
use std::{fs, net::TcpListener, process::Stdio};

const OVER: &str = "is an input, and would be written over";

/// A program that trains on letters.
fn letters(data: &str) -> String {
    let at = PROGRAM.find("device core").expect("it has one");
    let rest = PROGRAM[at..].replace("data synthetic", &format!("data {data}"));
    let model = "model letters {\n input tokens: i32[batch, 8]\n input targets: i32[batch, 8]\n \
                 loss cross_entropy(linear(embedding(tokens, 256, 8), 256), targets)\n}\n";
    format!("{model}{rest}")
}

/// What is written would stand in place of what it is made of.
#[test]
fn no_file_is_written_over_what_is_read() {
    let scratch = Scratch::new("over");
    let file = scratch.file("line.rdl", PROGRAM);
    let schedule = compiled(&scratch, &file, "line.schedule");
    let link = scratch.path("link.rdl");
    std::os::unix::fs::symlink(&file, &link).expect("a link can be made");
    for (words, read, option, written) in [
        ("compile", &file, "-o", &file),
        ("compile", &file, "-o", &link),
        ("plan", &file, "-o", &file),
        ("profile", &file, "-o", &file),
        ("run", &file, "--save", &file),
        ("run", &schedule, "--save", &schedule),
        ("import", &file, "-o", &file),
    ] {
        let before = fs::read(read).expect("it is there");
        refused(roundelay(words).arg(read).arg(option).arg(written), 2, &[OVER]);
        assert!(fs::read(read).expect("it is there") == before, "{words}");
    }
}

/// A rank that ended alone would leave the others waiting for it.
#[test]
fn all_ranks_hear_that_no_file_is_written_over_what_is_read() {
    let scratch = Scratch::new("over-ranks");
    let file = scratch.file("line.rdl", PROGRAM);
    let free = TcpListener::bind("127.0.0.1:0").and_then(|own| own.local_addr());
    // Ranks meet at the port after it.
    let port = (free.expect("a port is free").port() - 1).to_string();
    let run = |rank: &str| {
        let mut run = roundelay("run --device cpu --deadline 120");
        run.envs([("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", "2")]);
        run.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        run.args(["--set", "devices = 2", "--save"]).arg(&file).arg(&file);
        run
    };
    let mut other = run("1");
    other.stdout(Stdio::null()).stderr(Stdio::piped());
    let other = other.spawn().expect("the binary starts");
    refused(&mut run("0"), 2, &[OVER]);
    let found = Ended::from(other.wait_with_output().expect("it ends"));
    assert_eq!(found.code, 3, "{}", found.err);
    assert!(found.err.contains("rank 0 failed") && found.err.contains(OVER), "{found:?}");
}

/// A disk that is full when the training is done is no input that is refused.
#[test]
fn a_full_disk_is_a_run_that_failed() {
    let scratch = Scratch::new("full");
    let file = scratch.file("line.rdl", PROGRAM);
    let full = ["cannot write `/dev/full`", "space"];
    refused(roundelay("run --steps 1 --save /dev/full").arg(&file), 3, &full);
}

/// What was trained is not lost with the last checkpoint.
#[test]
fn weights_are_saved_where_the_last_checkpoint_cannot_be_written() {
    let scratch = Scratch::new("last");
    let file = scratch.file("line.rdl", PROGRAM);
    let [kept, saved] = ["kept", "saved"].map(|name| scratch.path(name));
    let in_the_way = kept.join("step-000000000001.safetensors/inside");
    fs::create_dir_all(in_the_way).expect("a folder can be made");
    let mut run = roundelay("run --device cpu --steps 1 --checkpoint");
    run.arg(&kept).arg("--save").arg(&saved).arg(&file);
    let note = format!("note: the last parameters are in `{}`", saved.display());
    refused(&mut run, 3, &["cannot write", "step-000000000001", &note]);
    assert!(saved.is_file());
}

/// Neither space nor permissions would make it.
#[test]
fn a_folder_that_is_not_there_is_told_of() {
    let scratch = Scratch::new("no-folder");
    let file = scratch.file("line.rdl", PROGRAM);
    let missing =
        ["cannot write `nowhere/x`: there is no folder `nowhere`", "make it first"];
    for words in ["run --steps 1 --save", "compile -o", "plan -o", "profile -o"] {
        let mut command = roundelay(words);
        refused(command.arg("nowhere/x").arg(&file), 1, &missing);
    }
}

#[test]
fn what_a_run_trains_on_is_told_of_images_too() {
    let scratch = Scratch::new("data-line");
    let at = PROGRAM.find("device core").expect("it has one");
    let drawn = "data shapes(classes = 3, size = 16)";
    let rest = PROGRAM[at..].replace("data synthetic", drawn);
    let model = "model figures {\n input images: real[batch, 16, 16, 3]\n \
                 input targets: i32[batch]\n \
                 loss cross_entropy(linear(reshape(images, [batch, 768]), 3), targets)\n}\n";
    let file = scratch.file("figures.rdl", &format!("{model}{rest}"));
    let told = printed(roundelay("run --device cpu --steps 1").arg(&file));
    assert!(told.contains("data: images without end, 3 classes\n"), "{told}");
}

/// Nor what a program imports, nor the corpus of its training.
#[test]
fn no_file_is_written_over_what_is_read_by_a_file() {
    let scratch = Scratch::new("over-parts");
    let at = PROGRAM.find("device core").expect("it has one");
    let end = PROGRAM.find("link bus").expect("it has one");
    let device = scratch.file("device.rdl", &PROGRAM[at..end]);
    let rest = format!("import \"device.rdl\"\n{}{}", &PROGRAM[..at], &PROGRAM[end..]);
    let file = scratch.file("parts.rdl", &rest);
    for (words, option) in
        [("compile", "-o"), ("plan", "-o"), ("profile", "-o"), ("run", "--save")]
    {
        let before = fs::read(&device).expect("it is there");
        refused(roundelay(words).arg(&file).arg(option).arg(&device), 2, &[OVER]);
        assert!(fs::read(&device).expect("it is there") == before, "{words}");
    }
    let corpus = scratch.file("corpus/tokens.bin", &"some words ".repeat(400));
    let file = scratch.file("letters.rdl", &letters("tokens(\"corpus/tokens.bin\", u8)"));
    let before = fs::read(&corpus).expect("it is there");
    let mut over = roundelay("data --steps 2");
    refused(over.arg(&file).arg("-o").arg(scratch.path("corpus")), 2, &[OVER]);
    for words in ["compile -o", "plan -o", "profile -o", "run --device cpu --save"] {
        let refused = refused(roundelay(words).arg(&corpus).arg(&file), 2, &[OVER]);
        assert!(!refused.err.contains(" a step, "), "it measured: {}", refused.err);
    }
    let mut over = roundelay("run --device cpu --save");
    let schedule = compiled(&scratch, &file, "letters.schedule");
    refused(over.arg(&corpus).arg(&schedule), 2, &[OVER]);
    assert!(fs::read(&corpus).expect("it is there") == before);
    printed(roundelay("data --steps 2").arg(&file).arg("-o").arg(scratch.path("apart")));
}

/// Nor the pictures.
#[test]
fn no_picture_is_written_over() {
    let scratch = Scratch::new("over-pictures");
    let model = "model pictures {\n input images: real[batch, 32, 32, 3]\n \
                 input targets: i32[batch]\n \
                 loss cross_entropy(linear(global_pool(conv2d(images, 4)), 10), targets)\n}\n";
    let rest = &PROGRAM[PROGRAM.find("device core").expect("it has one")..];
    let program = |name: &str, data: &str| {
        let rest = rest.replace("data synthetic", &format!("data {data}"));
        scratch.file(name, &format!("{model}{rest}"))
    };
    let cifar = program("cifar.rdl", "cifar10(\"batches\")");
    let record = "\u{1}".repeat(1 + 3 * 32 * 32);
    let names = ["data_batch_", "test_batch"].map(|name| format!("batches/{name}"));
    let batch = (1..=5).map(|n| scratch.file(&format!("{}{n}.bin", names[0]), &record));
    let batches: Vec<_> = batch.collect();
    let test = scratch.file(&format!("{}.bin", names[1]), &record);
    for (words, over) in [
        ("run --device cpu --steps 1 --save", &batches[0]),
        ("run --device cpu --steps 1 --save", &test),
        ("profile -o", &batches[4]),
    ] {
        refused(roundelay(words).arg(over).arg(&cifar), 2, &[OVER]);
        assert_eq!(fs::read_to_string(over).expect("it is there"), record);
    }
    let folder = program("folder.rdl", "images(\"photographs\")");
    let photograph = scratch.file("photographs/cat/1.png", "pixels");
    refused(roundelay("compile -o").arg(&photograph).arg(&folder), 2, &[OVER]);
}

/// Nor a checkpoint; the run would go on from weights the next time.
#[test]
fn no_weights_are_written_among_checkpoints() {
    let scratch = Scratch::new("over-checkpoints");
    let program = scratch.file("line.rdl", PROGRAM);
    let kept = scratch.path("kept");
    let run = |words: &str| {
        let mut run = roundelay(words);
        run.arg(&program).arg("--checkpoint").arg(&kept);
        run
    };
    printed(&mut run("run --steps 2"));
    let newest = kept.join("step-000000000002.safetensors");
    let before = fs::read(&newest).expect("it was written");
    let link = scratch.path("link.safetensors");
    std::os::unix::fs::symlink(&newest, &link).expect("a link can be made");
    for save in [&newest, &link, &kept.join("last.safetensors")] {
        let mut over = run("run --resume --steps 3");
        refused(over.arg("--save").arg(save), 2, &["among the checkpoints", "elsewhere"]);
    }
    assert!(fs::read(&newest).expect("it is there") == before);
    printed(run("run --resume --steps 3").arg("--save").arg(scratch.path("last")));
}

/// Nor among the data: the run that goes on would train on it.
#[test]
fn nothing_is_written_among_the_data() {
    let scratch = Scratch::new("among-data");
    let program = scratch.file("words.rdl", &letters("text(\"**/*\")"));
    let run = |words: &str, path: &str| {
        let mut run = roundelay(words);
        run.arg(scratch.path(path)).arg(&program);
        run
    };
    let words = ["among the data", "elsewhere"];
    for (option, path) in [("--save", "last"), ("--checkpoint", "runs/kept")] {
        refused(
            &mut run(&format!("run --device cpu --steps 1 {option}"), path),
            2,
            &words,
        );
    }
    assert!(!scratch.path("runs/kept").exists());
    let commands = [("plan -o", "p.yaml"), ("compile -o", "s"), ("profile -o", "t")];
    for (command, path) in commands.into_iter().chain([("data --steps 1 -o", "d")]) {
        refused(&mut run(command, path), 2, &words);
    }
}

/// Nor the weights that a run starts from, by whatever name.
#[test]
fn no_weights_are_written_over_what_they_are_made_from() {
    let scratch = Scratch::new("over-weights");
    let program = scratch.file("line.rdl", PROGRAM);
    let schedule = compiled(&scratch, &program, "line.schedule");
    let weights = scratch.path("kept.safetensors");
    printed(roundelay("run --steps 1 --save").arg(&weights).arg(&schedule));
    let before = fs::read(&weights).expect("it was written");
    let link = scratch.path("link.safetensors");
    std::os::unix::fs::symlink(&weights, &link).expect("a link can be made");
    for (read, written) in [(&weights, &weights), (&weights, &link), (&link, &weights)] {
        for file in [&program, &schedule] {
            let mut over = roundelay("run --weights");
            let over = over.arg(read).arg("--save").arg(written).arg(file);
            assert_eq!(refused(over, 2, &[OVER]).out, "", "nothing is planned before");
        }
    }
    assert!(fs::read(&weights).expect("it is there") == before);
}

/// What is left of an earlier folder has no index before the new one is whole.
#[test]
fn a_folder_of_examples_has_an_index_when_it_is_whole() {
    let scratch = Scratch::new("examples");
    let schedule = compiled(&scratch, &scratch.file("line.rdl", PROGRAM), "s");
    let folder = scratch.path("examples");
    let data = || {
        let mut command = roundelay("data --steps 2");
        command.arg(&schedule).arg("-o").arg(&folder);
        command
    };
    printed(&mut data());
    let names = || {
        let entries = fs::read_dir(&folder).expect("the folder is there");
        let name =
            |own: std::io::Result<fs::DirEntry>| own.expect("it can be read").file_name();
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["index.json", "x.bin", "y.bin"]);
    let way = folder.join("x.bin");
    fs::remove_file(&way).expect("it is there");
    fs::create_dir(&way).expect("a folder stands in the way");
    refused(&mut data(), 1, &["cannot write", "x.bin"]);
    assert!(folder.join("index.json").exists(), "what was there is as it was");
    fs::remove_dir(&way).expect("it is empty");
    fs::remove_file(folder.join("y.bin")).expect("it is there");
    std::os::unix::fs::symlink("/dev/full", folder.join("y.bin"))
        .expect("a link can be made");
    refused(&mut data(), 3, &["cannot write", "y.bin", "space"]);
    assert!(!folder.join("index.json").exists(), "nothing says that it is whole");
}

/// A disk that is full is known before anything is written.
#[cfg(target_os = "linux")]
#[test]
fn examples_for_which_there_is_no_room_are_not_begun() {
    let scratch = Scratch::new("examples-room");
    let program = scratch.file("line.rdl", PROGRAM);
    let folder = scratch.path("examples");
    let mut data = roundelay(&format!("data --steps {} -o", u64::MAX));
    refused(
        data.arg(&folder).arg(&program),
        1,
        &["x.bin` has no room", "are free there"],
    );
    assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 0);
}

/// Shares of targets are made of these, wherever examples go.
#[test]
fn examples_of_a_masked_loss_are_what_data_brings() {
    let scratch = Scratch::new("examples-masked");
    let masked = PROGRAM.replace("y: real[batch, 8]", "y: i32[batch]");
    let loss = "loss cross_entropy(linear(x, 5), y, masked = true)";
    let masked = masked.replace("loss mse(linear(relu(linear(x, 8)), 8), y)", loss);
    assert!(masked.contains("masked") && masked.contains("i32"), "{masked}");
    let program = scratch.file("masked.rdl", &masked);
    let folder = scratch.path("examples");
    let said = printed(roundelay("data --steps 2").arg(&program).arg("-o").arg(&folder));
    assert!(said.contains("x, y of 2 steps"), "{said}");
    let index = fs::read_to_string(folder.join("index.json")).expect("it was written");
    assert!(!index.contains("shares"), "{index}");
    assert!(!folder.join("y.shares.5.bin").exists());
}
