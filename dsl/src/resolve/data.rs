//! Where examples come from: what is written, and whether the model takes what it brings.

use super::{
    constant::made,
    model::Places,
    optimizer::{called, no_arguments},
    settings::{self, single, unknown_word},
};
use crate::{
    Code, Extent, Mistake, Model, ModelInput, Span, Train,
    report::{Known, Report},
    signature::{Arguments, Fallback, Formal, optional, required},
    syntax::{Argument, Entry, Expression},
};
use roundelay_schedule::{Augmentation, Data, Element, TokenWidth};

/// All kinds of data.
const KINDS: [&str; 6] = ["text", "tokens", "cifar10", "images", "shapes", "synthetic"];

const CIFAR10: &[Formal] =
    &[required("dir"), optional("augment", Fallback::Truth(false))];
const IMAGES: &[Formal] = &[required("dir")];
const SHAPES: &[Formal] = &[
    optional("classes", Fallback::Number(10.0)),
    optional("size", Fallback::Number(32.0)),
    optional("seed", Fallback::Number(1.0)),
];

/// Most classes and sizes of `shapes`, as the runtime draws them.
const SHAPE_CLASSES: (u64, u64) = (2, 12);
const SHAPE_SIZES: (u64, u64) = (16, 256);

/// `text("*.md")`, `tokens("file.bin", u16)`, `cifar10("dir", augment = true)`,
/// `images("dir")`, `shapes(classes = 10, size = 32, seed = 1)`, `synthetic`.
pub(super) fn data(entry: &Entry, report: &mut Report) -> Known<Data> {
    let value = single(entry, report)?;
    let (name, given) = called(value, "data such as `text(\"*.md\")`", report)?;
    let root = report.file(name.span.file).folder().to_owned();
    match name.text.as_str() {
        "text" => {
            globs(given, value.span, report).map(|globs| Data::Text { root, globs })
        }
        "tokens" => tokens(root, given, value.span, report),
        "cifar10" => made("cifar10", CIFAR10, given, value.span, report, |arguments| {
            let folder = arguments.text("dir")?;
            let augment = match arguments.truth("augment")? {
                true => Augmentation::Shift,
                false => Augmentation::None,
            };
            Ok(Data::Cifar10 { root, folder, augment })
        }),
        "images" => made("images", IMAGES, given, value.span, report, |arguments| {
            Ok(Data::Images { root, folder: arguments.text("dir")? })
        }),
        "shapes" => made("shapes", SHAPES, given, value.span, report, shapes),
        "synthetic" => no_arguments(&name, given, report).map(|()| Data::Synthetic),
        other => Err(unknown_word("kind of data", other, &KINDS, name.span, report)),
    }
}

fn shapes(arguments: &Arguments) -> Result<Data, Mistake> {
    Ok(Data::Shapes {
        classes: arguments.whole_in("classes", SHAPE_CLASSES)?,
        size: arguments.whole_in("size", SHAPE_SIZES)?,
        seed: arguments.whole("seed")?,
    })
}

fn globs(given: &[Argument], span: Span, report: &mut Report) -> Known<Vec<String>> {
    let texts: Vec<Known<String>> =
        given.iter().map(|argument| text(&argument.value, report)).collect();
    let globs = texts.into_iter().collect::<Known<Vec<String>>>()?;
    if globs.is_empty() {
        let mistake =
            Mistake::new(Code::Missing, "`text` needs at least one file pattern");
        return Err(report.error(span, mistake.hint("write `text(\"**/*.md\")`")));
    }
    Ok(globs)
}

fn text(expression: &Expression, report: &mut Report) -> Known<String> {
    let text = settings::text(expression).map(str::to_owned);
    text.map_err(|mistake| report.error(expression.span, mistake))
}

fn tokens(
    root: String,
    given: &[Argument],
    span: Span,
    report: &mut Report,
) -> Known<Data> {
    let [file, width] = given else {
        let mistake = Mistake::new(Code::Type, "`tokens` takes a file and a width");
        return Err(
            report.error(span, mistake.hint("write `tokens(\"train.bin\", u16)`"))
        );
    };
    let file = text(&file.value, report)?;
    let (name, given) = called(&width.value, "u8, u16 or u32", report)?;
    let width = match name.text.as_str() {
        "u8" => TokenWidth::U8,
        "u16" => TokenWidth::U16,
        "u32" => TokenWidth::U32,
        other => {
            let known = ["u8", "u16", "u32"];
            return Err(unknown_word("width", other, &known, name.span, report));
        }
    };
    no_arguments(&name, given, report)?;
    Ok(Data::Tokens { root, file, width })
}

/// Bytes of a text are tokens below this bound.
const BYTES: u64 = 256;

/// Classes of CIFAR-10, and the height and width of its images.
const CIFAR: (u64, u64) = (10, 32);

/// The model must take what the data bring, and nothing else.
pub(super) fn fit(train: &Train, model: &Model, places: &Places, report: &mut Report) {
    match train.data {
        Data::Synthetic => {}
        Data::Text { .. } => fit_tokens("text", model, places, report),
        Data::Tokens { .. } => fit_tokens("tokens", model, places, report),
        Data::Cifar10 { .. } => {
            let (classes, size) = CIFAR;
            let brings = Brings { source: "cifar10", size: Some(size), classes };
            brings.fit(model, places, report);
        }
        Data::Images { .. } => {
            let brings = Brings { source: "images", size: None, classes: 1 };
            brings.fit(model, places, report);
        }
        Data::Shapes { classes, size, .. } => {
            let brings = Brings { source: "shapes", size: Some(size), classes };
            brings.fit(model, places, report);
        }
    }
}

/// What a source of images brings besides the images.
struct Brings {
    source: &'static str,
    /// Height and width; any where none is given.
    size: Option<u64>,
    classes: u64,
}

impl Brings {
    fn fit(&self, model: &Model, places: &Places, report: &mut Report) {
        let Self { source, size, classes } = self;
        let hint = match size {
            Some(size) => format!("`images: real[batch, {size}, {size}, 3]`"),
            None => "`images: real[batch, height, width, 3]`".to_owned(),
        };
        let hint = format!("it brings {hint} and `targets: i32[batch]`");
        for input in model.data_inputs() {
            let mut wrong = |code, message: String, hint: &str| {
                let place = places.input(&input.name);
                _ = report.error(place, Mistake::new(code, message).hint(hint));
            };
            let fits = match input.name.as_str() {
                "images" => self.are_images(input),
                "targets" => input.element == Element::I32 && is_batch(&input.shape),
                _ => false,
            };
            if !fits {
                let message =
                    format!("`{source}` data brings no such input `{}`", input.name);
                wrong(Code::Shape, message, &hint);
            } else if input.element == Element::I32
                && (1..*classes).contains(&input.bound)
            {
                let message = format!(
                    "`{source}` has {classes} classes, but `{}` must be below {}",
                    input.name, input.bound
                );
                wrong(Code::Value, message, &format!("give the model {classes} outputs"));
            }
        }
    }

    fn are_images(&self, input: &ModelInput) -> bool {
        let [batch, height, width, channels] = input.shape.as_slice() else {
            return false;
        };
        let size = |extent: &Extent| match self.size {
            Some(size) => *extent == Extent::fixed(size),
            None => !extent.per_example,
        };
        let real = input.element == Element::Real && *batch == Extent::batch();
        real && size(height) && size(width) && *channels == Extent::fixed(3)
    }
}

fn is_batch(shape: &[Extent]) -> bool {
    *shape == [Extent::batch()]
}

/// Text and token files bring `tokens` and `targets` of one shape.
fn fit_tokens(source: &str, model: &Model, places: &Places, report: &mut Report) {
    for input in model.data_inputs() {
        let place = places.input(&input.name);
        let known = ["tokens", "targets"].contains(&input.name.as_str());
        if !known || input.element != Element::I32 {
            let message = format!("`{source}` data brings no input `{}`", input.name);
            let hint = "it brings `tokens` and `targets`, both i32[batch, seq]";
            report.error(place, Mistake::new(Code::Type, message).hint(hint));
        } else if source == "text" && (1..BYTES).contains(&input.bound) {
            let message = format!(
                "text has {BYTES} different bytes, but `{}` must be below {}",
                input.name, input.bound
            );
            let hint = format!("set the vocabulary to {BYTES}");
            report.error(place, Mistake::new(Code::Value, message).hint(hint));
        }
    }
    let mut shapes = model.data_inputs().map(|input| &input.shape);
    let first = shapes.next();
    if shapes.any(|shape| Some(shape) != first) || first.is_none_or(|s| s.len() != 2) {
        let message = format!("`{source}` data needs inputs of one shape [batch, seq]");
        report.error(places.model, Mistake::new(Code::Shape, message));
    }
}
