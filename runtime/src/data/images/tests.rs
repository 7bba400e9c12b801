//! Image files become the examples that they say, and whatever is wrong with one is said with its
//! name.

use super::*;
use crate::{
    data::{
        Dataset, HeldOut, ImageFacts,
        tests::{input, job},
    },
    feed::Feed,
    scratch::Scratch,
};
use roundelay_schedule::{Data, Element, Id, Input};

const PIXELS: usize = 32 * 32;
const HALVES: &[u8] = include_bytes!("tests/halves.jpg");
const GREY: &[u8] = include_bytes!("tests/grey.jpg");

/// Inputs for micro-batches of `examples` images.
fn inputs(examples: u64, height: u64, width: u64) -> [Input; 2] {
    [
        input("images", Element::Real, &[examples, height, width, 3], 0),
        input("targets", Element::I32, &[examples], 10),
    ]
}

/// A record whose pixels are one colour, but for the first of each row, which is white.
fn record(class: u8, colour: [u8; 3]) -> Vec<u8> {
    let plane = |value| (0..PIXELS).map(move |k| if k % 32 == 0 { 255 } else { value });
    std::iter::once(class).chain(colour.into_iter().flat_map(plane)).collect()
}

/// Five records to train on, of classes 0 to 4, and two held out, of classes 8 and 9.
fn cifar(name: &str) -> Scratch {
    let folder = Scratch::new(name);
    for class in 0..5 {
        let file = format!("c/data_batch_{}.bin", class + 1);
        folder.write(&file, &record(class, [10 * class, 100, 200]));
    }
    folder.write("c/test_batch.bin", &[record(8, [80; 3]), record(9, [90; 3])].concat());
    folder
}

fn cifar_data(folder: &Scratch, augment: Augmentation) -> Data {
    let root = folder.path().display().to_string();
    Data::Cifar10 { root, folder: "c".into(), augment }
}

fn images_data(folder: &Scratch) -> Data {
    Data::Images { root: folder.path().display().to_string(), folder: ".".into() }
}

/// Images and classes of one micro-batch.
fn batch(
    feed: &mut impl Feed,
    t: u64,
    i: u64,
    examples: usize,
    elements: usize,
) -> (Vec<f32>, Vec<i32>) {
    let mut bytes = vec![0xab; 4 * examples * elements];
    feed.fill(InputId::new(0), t, i, &mut bytes);
    let (words, _) = bytes.as_chunks::<4>();
    let images = words.iter().map(|word| f32::from_ne_bytes(*word)).collect();
    let mut bytes = vec![0xab; 4 * examples];
    feed.fill(InputId::new(1), t, i, &mut bytes);
    let (words, _) = bytes.as_chunks::<4>();
    (images, words.iter().map(|word| i32::from_ne_bytes(*word)).collect())
}

fn held_out(data: &Data, inputs: &[Input]) -> HeldOut {
    Dataset::open(&job(data.clone(), inputs), None).unwrap().held_out(4).unwrap()
}

/// What is said about a folder that is no good.
fn refusal(data: Data, inputs: &[Input]) -> String {
    Dataset::open(&job(data, inputs), None).unwrap_err().to_string()
}

/// A PNG file.
fn png(width: u32, height: u32, color: png::ColorType, samples: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(samples).unwrap();
    writer.finish().unwrap();
    bytes
}

fn plain_png(width: u32, height: u32, colour: [u8; 3]) -> Vec<u8> {
    png(width, height, png::ColorType::Rgb, &colour.repeat((width * height) as usize))
}

#[test]
fn cifar_records_become_rows_of_pixels_with_the_usual_numbers() {
    let folder = cifar("images-cifar");
    let data = cifar_data(&folder, Augmentation::None);
    let mut dataset =
        Dataset::open(&job(data.clone(), &inputs(4, 32, 32)), None).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for t in 0..20 {
        let (images, classes) = batch(&mut dataset, t, 0, 4, 3 * PIXELS);
        for (image, class) in images.chunks(3 * PIXELS).zip(classes) {
            let number = |byte: f32, mean, deviation| (byte / 255.0 - mean) / deviation;
            let expected = [
                number(10.0 * class as f32, 0.4914, 0.2470),
                number(100.0, 0.4822, 0.2435),
                number(200.0, 0.4465, 0.2616),
            ];
            let white = number(255.0, 0.4914, 0.2470);
            assert!((image[0] - white).abs() < 1e-5 && (image[96] - white).abs() < 1e-5);
            for (found, expected) in image[3..6].iter().zip(expected) {
                assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            }
            seen.insert(class);
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let (_, classes) =
        batch(&mut held_out(&data, &inputs(2, 32, 32)), 0, 0, 2, 3 * PIXELS);
    assert_eq!(classes, [8, 9], "four examples of two images, in turn");
}

#[test]
fn moved_images_do_not_depend_on_the_split_and_held_out_ones_stay() {
    let folder = cifar("images-moved");
    let all = |examples: u64, augment, t| {
        let data = cifar_data(&folder, augment);
        let job = job(data, &inputs(examples, 32, 32));
        let mut dataset = Dataset::open(&job, None).unwrap();
        (0..4 / examples)
            .map(|i| batch(&mut dataset, t, i, examples as usize, 3 * PIXELS).0)
            .collect::<Vec<_>>()
            .concat()
    };
    let whole = all(4, Augmentation::Shift, 3);
    assert_eq!(whole, all(1, Augmentation::Shift, 3));
    assert_eq!(whole, all(2, Augmentation::Shift, 3));
    assert_ne!(whole, all(4, Augmentation::Shift, 4));
    assert_ne!(whole, all(4, Augmentation::None, 3));
    let seen = |augment| {
        let mut held_out = held_out(&cifar_data(&folder, augment), &inputs(2, 32, 32));
        batch(&mut held_out, 0, 0, 2, 3 * PIXELS)
    };
    assert_eq!(seen(Augmentation::Shift), seen(Augmentation::None));
    let digest = |augment| {
        let job = job(cifar_data(&folder, augment), &inputs(2, 32, 32));
        Dataset::open(&job, None).unwrap().digest()
    };
    assert_ne!(digest(Augmentation::Shift), digest(Augmentation::None));
}

#[test]
fn all_shifts_and_mirrors_occur() {
    let folder = cifar("images-shifts");
    let job = job(cifar_data(&folder, Augmentation::Shift), &inputs(4, 32, 32));
    let images =
        Images::cifar10(&folder.path().join("c"), Augmentation::Shift, &job).unwrap();
    let moves: Vec<Move> = (0..4000)
        .map(|k| images.moved(Example::Training { step: k / 4, index: k % 4 }))
        .collect();
    for k in -4..=4 {
        let [down, right]: [fn(&Move) -> i64; 2] = [|m| m.down, |m| m.right];
        for axis in [down, right] {
            let count = moves.iter().filter(|moved| axis(moved) == k).count();
            assert!((350..540).contains(&count), "{k}: {count}");
        }
    }
    let mirrored = moves.iter().filter(|moved| moved.mirror).count();
    assert!((1850..2150).contains(&mirrored), "{mirrored}");
}

#[test]
fn cifar_files_that_are_missing_or_odd_are_named() {
    let folder = cifar("images-odd");
    let say = || refusal(cifar_data(&folder, Augmentation::None), &inputs(4, 32, 32));
    let path = folder.path().join("c/data_batch_3.bin");
    std::fs::remove_file(&path).unwrap();
    assert!(say().contains("data_batch_3.bin"), "{}", say());
    let whole = record(3, [1; 3]);
    let cases = [
        (&[][..], "has 0 bytes, not one or more records of 3073"),
        (&whole[..3072], "has 3072 bytes"),
        (&[whole.clone(), vec![1]].concat(), "has 3074 bytes"),
        (
            &[whole.clone(), record(10, [0; 3])].concat(),
            "record 1: class 10 is not below 10",
        ),
    ];
    for (bytes, expected) in cases {
        std::fs::write(&path, bytes).unwrap();
        assert!(
            say().contains(expected) && say().contains("data_batch_3.bin"),
            "{}",
            say()
        );
    }
    std::fs::write(&path, whole).unwrap();
    let small = refusal(cifar_data(&folder, Augmentation::None), &inputs(4, 28, 28));
    assert!(small.contains("have [32, 32] pixels, the model takes [28, 28]"), "{small}");
}

#[test]
fn folders_are_classes_and_every_tenth_file_is_held_out() {
    let folder = Scratch::new("images-folder");
    for k in 0..20 {
        folder.write(&format!("b cats/{k:02}.png"), &plain_png(8, 6, [k, 0, 0]));
    }
    folder.write("a dogs/one.jpeg", HALVES);
    folder.write("a dogs/.hidden", b"no image");
    folder.write(".cache/x", b"no class");
    folder.write("readme.txt", b"no class either");
    let data = images_data(&folder);
    let job = job(data.clone(), &inputs(4, 6, 8));
    let images = Images::folder(folder.path(), &job).unwrap();
    assert_eq!((images.stock.training(), images.held_out().unwrap()), (19, 2));
    assert_eq!((images.stock.class(0), images.stock.class(1)), (0, 1));
    let first = |image| images.stock.pixel(image, Move::default(), 0, 0)[0];
    let red = |image| ((first(image) * 0.229 + 0.485) * 255.0).round() as u8;
    let training = (0..20).filter(|k| k % 10 != 9);
    let expected: Vec<u8> = training.chain([9, 19]).collect();
    assert_eq!((1..21).map(red).collect::<Vec<u8>>(), expected);
    let (seen, classes) =
        batch(&mut held_out(&data, &inputs(4, 6, 8)), 0, 0, 4, 6 * 8 * 3);
    assert_eq!(classes, [1; 4]);
    let red = |byte: f32| (byte / 255.0 - 0.485) / 0.229;
    assert!((seen[0] - red(9.0)).abs() < 1e-5 && (seen[144] - red(19.0)).abs() < 1e-5);
}

#[test]
fn a_file_that_breaks_off_is_refused() {
    let folder = Scratch::new("images-cut");
    let refused = |bytes: &[u8]| {
        folder.write("x", bytes);
        decode::file(&folder.path().join("x")).is_err()
    };
    assert!(!refused(HALVES));
    assert!(refused(&HALVES[..HALVES.len() * 3 / 4]));
    assert!(refused(&HALVES[..HALVES.len() / 2]));
}

#[test]
fn every_kind_of_file_becomes_red_green_and_blue() {
    let folder = Scratch::new("images-kinds");
    let read = |bytes: &[u8]| {
        folder.write("x", bytes);
        decode::file(&folder.path().join("x")).unwrap()
    };
    let image = read(&plain_png(3, 2, [1, 2, 3]));
    assert_eq!((image.height, image.width, image.pixels), (2, 3, [1, 2, 3].repeat(6)));
    let cases = [
        (png::ColorType::Rgba, &[7, 8, 9, 100][..], [7, 8, 9]),
        (png::ColorType::Grayscale, &[5], [5; 3]),
        (png::ColorType::GrayscaleAlpha, &[6, 0], [6; 3]),
    ];
    for (color, sample, expected) in cases {
        assert_eq!(read(&png(1, 1, color, sample)).pixels, expected);
    }
    let near = |bytes: &[u8], colours: [[u8; 3]; 2]| {
        let image = read(bytes);
        assert_eq!((image.height, image.width), (16, 32));
        for (at, colour) in [3, 29].into_iter().zip(colours) {
            let found = &image.pixels[3 * at..][..3];
            let apart = |(a, b): (&u8, u8)| a.abs_diff(b) <= 3;
            assert!(found.iter().zip(colour).all(apart), "{found:?} {colour:?}");
        }
    };
    near(HALVES, [[200, 30, 40], [20, 60, 210]]);
    near(GREY, [[82; 3], [65; 3]]);
}

#[test]
fn images_that_cannot_be_read_are_named() {
    let folder = Scratch::new("images-damaged");
    let whole = plain_png(9, 9, [1, 2, 3]);
    let mut huge = whole.clone();
    huge[16..20].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    let cases = [
        (&b"not an image"[..], "neither PNG nor JPEG"),
        (&[], "neither PNG nor JPEG"),
        (&whole[..40], "cannot read the image"),
        (&huge, "cannot read the image"),
        (&HALVES[..100], "cannot read the image"),
        (&[0xff, 0xd8, 0xff, 0xd9], "cannot read the image"),
    ];
    for (bytes, expected) in cases {
        folder.write("a/broken.png", bytes);
        let said = refusal(images_data(&folder), &inputs(4, 8, 8));
        assert!(said.contains(expected) && said.contains("broken.png"), "{said}");
    }
}

#[test]
fn a_folder_without_images_is_refused() {
    let folder = Scratch::new("images-none");
    let say = |data| refusal(data, &inputs(4, 8, 8));
    assert!(say(images_data(&folder)).contains("no training images"));
    let missing = Data::Images { root: "nowhere".into(), folder: "x".into() };
    let said = say(missing);
    assert_eq!(said.matches("nowhere/x").count(), 1, "{said}");
    folder.write("a/1.png", &plain_png(2, 2, [0; 3]));
    let job = job(images_data(&folder), &inputs(4, 8, 8));
    let error = Dataset::open(&job, None).unwrap().held_out(4).unwrap_err().to_string();
    assert!(error.contains("no held-out images"), "{error}");
    std::fs::create_dir(folder.path().join("b")).unwrap();
    let said = say(images_data(&folder));
    assert!(said.contains("/b` has no image"), "{said}");
}

/// What systems and people leave in folders is passed over; images count under whatever name.
#[test]
fn files_are_images_by_their_names_or_their_beginnings() {
    let folder = Scratch::new("images-stray");
    for name in ["a/1.png", "a/2.PNG", "b/1.jpg", "b/2"] {
        folder.write(name, &plain_png(2, 2, [0; 3]));
    }
    let clean = Dataset::open(&job(images_data(&folder), &inputs(4, 8, 8)), None);
    for name in ["a/Thumbs.db", "a/notes.txt", "b/png"] {
        folder.write(name, b"not an image");
    }
    std::fs::create_dir(folder.path().join("b/more")).unwrap();
    let pipe = folder.path().join("b/pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success(), "nobody writes to it");
    let data = Dataset::open(&job(images_data(&folder), &inputs(4, 8, 8)), None);
    let (clean, data) = (clean.unwrap(), data.unwrap());
    assert_eq!(data.digest(), clean.digest());
    let facts = ImageFacts { parts: Some([4, 0]), classes: 2, left_out: 5 };
    assert_eq!(data.images(), Some(facts));
    assert_eq!(clean.images(), Some(ImageFacts { left_out: 0, ..facts }));
    folder.write("c/notes.txt", b"not an image");
    let said = refusal(images_data(&folder), &inputs(4, 8, 8));
    assert!(said.contains("/c` has no image; put PNG or JPEG"), "{said}");
}
