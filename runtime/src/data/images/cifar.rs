//! CIFAR-10 in its binary form (Krizhevsky 2009): records of one byte for the class and 1024 for
//! each of red, green and blue, row by row.

use super::stock::{Norms, Stock};
use crate::{data::DataError, regular};
use std::path::{Path, PathBuf};

/// Height and width.
pub(super) const SIDE: u64 = 32;

const PIXELS: usize = (SIDE * SIDE) as usize;
const RECORD: usize = 1 + 3 * PIXELS;
const CLASSES: u8 = 10;

const TRAINING: [&str; 5] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
];
const HELD_OUT: &str = "test_batch.bin";

/// The most bytes of one file; the original ones have 10,000 records.
const LIMIT: u64 = 256 << 20;

/// Means and standard deviations of the training images' channels, as they are usually given.
const NORMS: Norms = [(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)];

/// All images of a folder; those of `test_batch.bin` are held out.
pub(super) fn read(folder: &Path) -> Result<Stock, DataError> {
    let name = folder.display().to_string();
    let mut stock = Stock::new(name.clone(), [SIDE; 2], NORMS);
    for file in TRAINING {
        append(&mut stock, &folder.join(file), &name)?;
    }
    stock.end_training();
    append(&mut stock, &folder.join(HELD_OUT), &name)?;
    Ok(stock)
}

/// The files of a folder, those to train on first.
pub(in crate::data) fn files(folder: &Path) -> Vec<PathBuf> {
    TRAINING.iter().chain([&HELD_OUT]).map(|file| folder.join(file)).collect()
}

fn append(stock: &mut Stock, path: &Path, folder: &str) -> Result<(), DataError> {
    let bytes = contents(path, folder)?;
    if bytes.is_empty() || bytes.len() % RECORD != 0 {
        let (path, bytes) = (path.to_owned(), bytes.len() as u64);
        return Err(DataError::Records { path, bytes, record: RECORD as u64 });
    }
    stock.reserve((bytes.len() / RECORD) as u64)?;
    for (index, record) in bytes.chunks_exact(RECORD).enumerate() {
        let (class, planes) = (record[0], &record[1..]);
        if class >= CLASSES {
            let (path, index) = (path.to_owned(), index as u64);
            return Err(DataError::Class { path, index, class, classes: CLASSES });
        }
        stock.push(u32::from(class), |pixels| interleave(planes, pixels));
    }
    Ok(())
}

fn contents(path: &Path, folder: &str) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    let unreadable = |source| {
        let (path, pattern) = (path.to_owned(), folder.to_owned());
        DataError::Unreadable { path, pattern, source }
    };
    regular::read(path, LIMIT + 1, &mut bytes).map_err(unreadable)?;
    let found = bytes.len() as u64;
    if found > LIMIT {
        let pattern = path.display().to_string();
        return Err(DataError::TooLarge { pattern, found, limit: LIMIT });
    }
    Ok(bytes)
}

/// Three planes become pixels of three bytes.
fn interleave(planes: &[u8], pixels: &mut Vec<u8>) {
    let (red, others) = planes.split_at(PIXELS);
    let (green, blue) = others.split_at(PIXELS);
    for ((red, green), blue) in red.iter().zip(green).zip(blue) {
        pixels.extend([red, green, blue]);
    }
}
