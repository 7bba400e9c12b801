//! Deep, long and large texts: reading and formatting them ends.

use roundelay_dsl::{NoFiles, SourceFile, format, parse};

#[test]
fn deep_and_long_texts_end() {
    let deep = |open: &str, close: &str| {
        format!("model m {{ x = {}1{} }}", open.repeat(100_000), close.repeat(100_000))
    };
    let repeats = "repeat 1000 { ".repeat(30);
    let texts = [
        deep("(", ")"),
        deep("[", "]"),
        deep("relu(", ")"),
        deep("-", ""),
        format!("model m {{ x = {}1 }}", "1 + ".repeat(100_000)),
        format!("model m {{ {repeats} y = 1 {} }}", "}".repeat(30)),
        format!("plan {}", "{ x ".repeat(100_000)),
        "block f(x) { return f(f(x)) } model m { y = f(1) }".to_owned(),
        "model m { y = [1, 1], repeat 1000 { y = [y, y] } }".to_owned(),
        "link l { bandwidth 1 B/s, latency 1 s } device d { memory 1 B, compute 1 FLOP/s, bandwidth 1 B/s }
         cluster c { a = 9999 x d joined by l, b = 9999 x a joined by l, 9999 x b }".to_owned(),
        "cluster c { a = 2 x b, b = 2 x a, 2 x a }".to_owned(),
        "{".repeat(100_000),
        "a".repeat(100_000),
    ];
    for text in texts {
        let start: String = text.chars().take(60).collect();
        assert!(parse(&SourceFile::new("x.rdl", text), &NoFiles).is_err(), "{start}");
    }
}

#[test]
fn large_texts_end() {
    let parts = [
        "(",
        "x = (\n",
        "1 + ",
        "x\n",
        "x = 1\n",
        "\u{0}",
        "\"",
        "linear(x, 8), ",
        "plan { rule sync }\n",
        "import \"a\"\n",
        "device d { memory 1 GB }\n",
        "}\n",
        "stepz 4\n",
        "a 1,",
        "input x: real[batch, 8]\n",
    ];
    for part in parts {
        for head in ["", "model m {\n", "train {\n"] {
            let text = format!("{head}{}", part.repeat(100_000 / part.len()));
            assert!(
                parse(&SourceFile::new("x.rdl", text), &NoFiles).is_err(),
                "{head}{part}"
            );
        }
    }
    let names: String = (0..500).map(|i| format!("argument{i},")).collect();
    let wrong = "argumemt = 1,".repeat(100_000);
    let text = format!("block f({names}) {{ return 1 }}\nmodel m {{ x = f({wrong}) }}");
    assert!(parse(&SourceFile::new("x.rdl", text), &NoFiles).is_err());
    let too_large =
        SourceFile::new("x.rdl", " ".repeat(roundelay_dsl::limit::FILE_BYTES + 1));
    assert!(parse(&too_large, &NoFiles).is_err());
    assert!(format(&too_large.text).is_err());
}

#[test]
fn long_lines_are_formatted_in_the_end() {
    for part in [
        "a = b[0], ",
        "repeat 1 { y = -1 }, ",
        "# x\n",
        "y = [1, 2] # x\n",
        "z = f(\n1), ",
    ] {
        let text = format!("model m {{ {} }}", part.repeat(300_000 / part.len()));
        let once = format(&text).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(format(&once).as_ref(), Ok(&once), "{part}");
    }
}
