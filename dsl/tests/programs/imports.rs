//! Programs of several files: which of them are read, and what counts of what they say.

use roundelay_dsl::{
    Choice, Diagnostic, Diagnostics, Disk, Files, NoFiles, PlanLines, Program, Search,
    SourceFile, parse,
};
use roundelay_schedule::Rule;
use std::{collections::BTreeMap, fs, process};

#[test]
fn imports_follow_paths() {
    let model = "model m { input x: real[batch, 8], loss mse(linear(x, 8), x) }";
    let files = BTreeMap::from([
        ("b/m.rdl".to_owned(), format!("import \"../c.rdl\"\n{model}")),
        ("c.rdl".to_owned(), "import \"b/m.rdl\"\nimport \"missing.rdl\"\n".to_owned()),
    ]);
    assert!(files.read("b/m.rdl").is_ok());
    let source = SourceFile::new("a/main.rdl", "import \"../b/m.rdl\"");
    let wrong = parse(&source, &files).expect_err("a file is missing");
    let said: Vec<(&str, &str)> =
        wrong.iter().map(|d| (d.place.file.as_str(), d.message.as_str())).collect();
    assert_eq!(said, [("c.rdl", "cannot import `missing.rdl`: no such file")]);
}

/// A file is read once, the main file too, whatever it is called.
#[test]
fn files_may_import_each_other() {
    let block = |name: &str, called: &str| {
        format!("import \"{called}.rdl\"\nblock {name}(x) {{ return linear(x, 8) }}\n")
    };
    let model = "model m { input x: real[batch, 8], loss mse(f(g(h(x))), x) }";
    let main = format!("import \"c.rdl\"\n{}{model}", block("f", "b"));
    let files = BTreeMap::from([
        ("a/b.rdl".to_owned(), block("g", "c")),
        ("a/c.rdl".to_owned(), block("h", "b") + "import \"../a/main.rdl\"\n"),
    ]);
    for path in ["a/main.rdl", "./a/main.rdl", "a/./main.rdl"] {
        let source = SourceFile::new(path, main.as_str());
        let (program, _) =
            parse(&source, &files).unwrap_or_else(|d| panic!("{path}: {d}"));
        assert_eq!(program.model.parameters.len(), 6);
    }
}

/// One file has many paths: seen from a folder beside it, from its own folder, through a link.
#[test]
fn a_file_is_read_once_whatever_path_leads_to_it() {
    let own = format!("roundelay-imports-{}", process::id());
    let root = std::env::temp_dir().join(own);
    let [a, b] = ["a", "b"].map(|name| root.join(name));
    for folder in [&a, &b] {
        fs::create_dir_all(folder).expect("there is room");
    }
    let block = "block f(x) { return linear(x, 8) }\n";
    let model = "model m { input x: real[batch, 8], loss mse(f(x), x) }\n";
    let main = format!("import \"../b/model.rdl\"\n{block}");
    fs::write(a.join("main.rdl"), &main).expect("there is room");
    let linked = root.join("linked");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&a, &linked).expect("links are known here");
    let absolute = a.join("main.rdl").display().to_string();
    let mut paths = vec!["../a/main.rdl", absolute.as_str()];
    if linked.exists() {
        paths.push("../linked/main.rdl");
    }
    for path in paths {
        let text = format!("import \"{path}\"\n{model}");
        fs::write(b.join("model.rdl"), text).expect("there is room");
        for folder in ["a/../a", "b/../a"] {
            let seen = root.join(folder).join("main.rdl").display().to_string();
            let read = parse(&SourceFile::new(seen, main.as_str()), &Disk);
            read.unwrap_or_else(|mistakes| panic!("{path}: {mistakes}"));
        }
    }
    fs::remove_dir_all(root).expect("it was made above");
}

const MODEL: &str = "model m { input x: real[batch, 8], loss mse(linear(x, 8), x) }\n";

/// A program with a model of its own, and files beside it.
fn read(
    main: &str,
    files: &[(&str, &str)],
) -> (Result<(Program, Vec<Diagnostic>), Diagnostics>, PlanLines) {
    let text = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    let files: BTreeMap<String, String> = files.iter().map(text).collect();
    let source = SourceFile::new("main.rdl", format!("{main}\n{MODEL}"));
    let lines = PlanLines::of(&source, &files, &[""; 0]);
    (parse(&source, &files), lines)
}

#[test]
fn an_imported_plan_counts_where_the_main_file_has_none() {
    let plan = ("plan.rdl", "plan {\n    rule sync\n    stages 2\n}");
    let (read_it, lines) = read("import \"plan.rdl\"", &[plan]);
    let search = read_it.expect("it is right").0.search;
    assert_eq!(search.rule, Choice::OneOf(vec![Rule::Sync]));
    assert!(!search.stages.allows(4));
    let [line] = lines.of_key("stages").collect::<Vec<_>>()[..] else {
        panic!("{lines:?}")
    };
    assert_eq!((line.place.file.as_str(), line.place.line), ("plan.rdl", 3));
    assert_eq!((lines.block.file.as_str(), lines.block.line), ("plan.rdl", 1));

    let own = "import \"plan.rdl\"\nplan { stages 4 }";
    let (read_it, lines) = read(own, &[plan]);
    let search = read_it.expect("it is right").0.search;
    let expected = Search { stages: search.stages.clone(), ..Search::default() };
    assert!(search.stages.allows(4) && search == expected, "{search:?}");
    assert_eq!(lines.of_key("rule").count(), 0);
}

#[test]
fn an_imported_plan_is_checked_and_stands_alone() {
    let wrong = ("plan.rdl", "plan { ruel sync }");
    let (refused, _) = read("import \"plan.rdl\"", &[wrong]);
    let refused = refused.expect_err("it has a mistake").to_string();
    assert!(refused.contains("unknown key `ruel` in plan"), "{refused}");
    assert!(refused.contains("plan.rdl:1:8"), "{refused}");
    let others = ("rest.rdl", "train { stepz 5 }\nplan { ruel sync }");
    let own = "import \"rest.rdl\"\ntrain { steps 5 }\nplan { stages 4 }";
    let refused = read(own, &[others]).0.expect_err("both have mistakes").to_string();
    assert!(refused.contains("`stepz`") && refused.contains("`ruel`"), "{refused}");
    let both = [("a.rdl", "plan { stages 2 }"), ("b.rdl", "plan { stages 4 }")];
    let (refused, _) = read("import \"a.rdl\"\nimport \"b.rdl\"", &both);
    let refused = refused.expect_err("neither comes first").to_string();
    assert!(refused.contains("the imported files have 2 plan sections"), "{refused}");
}

/// Nothing calls them, and yet they may be of use to other files.
#[test]
fn bodies_that_no_model_reaches_are_looked_over() {
    let said = |text: &str| -> Vec<(u32, String)> {
        let refused = match parse(&SourceFile::new("m.rdl", text), &NoFiles) {
            Ok(_) => return Vec::new(),
            Err(refused) => refused,
        };
        refused.iter().map(|said| (said.place.line, said.message.clone())).collect()
    };
    let text = format!(
        "block f(x, width) {{
            h = linaer(x, width)
            repeat 2 as layer {{ h = h + widht * layer }}
            y = g(h)
            return y + layer
        }}
        block g(x) {{
            param shift: [8] = oens()
            return f(x, 8) + shift * batch
        }}
        {MODEL}"
    );
    let expected = [
        (2, "unknown operator or block `linaer`"),
        (3, "unknown name `widht`"),
        (5, "unknown name `layer`"),
        (8, "unknown initialiser `oens`"),
    ];
    let expected = expected.map(|(line, message)| (line, message.to_owned()));
    assert_eq!(said(&text), expected);
    let never = "model m {
        input x: real[batch, 8]
        y = linear(x, 8)
        repeat 0 as layer {
            z = y * layer
            y = relu(z + nobody)
        }
        loss mse(y, x)
    }";
    assert_eq!(said(never), [(6, "unknown name `nobody`".to_owned())]);
    assert_eq!(said(&never.replace(" + nobody", "")), []);
}
