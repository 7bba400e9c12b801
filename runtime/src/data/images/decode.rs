//! From a PNG or JPEG file to pixels.

use crate::{data::DataError, regular};
use std::{io::Cursor, path::Path};

/// The most bytes of one file.
const BYTES: u64 = 256 << 20;

/// The most pixels of one image, whatever its file says.
const PIXELS: usize = 1 << 26;

/// An image of red, green and blue.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// Rows.
    pub(super) height: usize,
    /// Pixels of a row.
    pub(super) width: usize,
    /// Three bytes for each pixel, row by row.
    pub(super) pixels: Vec<u8>,
}

/// Reads an image file; what it is stands in its first bytes, not in its name.
pub(super) fn file(path: &Path) -> Result<Image, DataError> {
    let mut bytes = Vec::new();
    let read =
        regular::read(path, BYTES + 1, &mut bytes).map_err(|error| error.to_string());
    let image = read.and_then(|()| match bytes.as_slice() {
        _ if bytes.len() as u64 > BYTES => Err(format!("it has more than {BYTES} bytes")),
        [0x89, b'P', b'N', b'G', ..] => png(&bytes),
        [0xff, 0xd8, ..] => jpeg(&bytes),
        _ => Err("it is neither PNG nor JPEG".to_owned()),
    });
    image.map_err(|reason| DataError::Image { path: path.to_owned(), reason })
}

fn sized(width: usize, height: usize) -> Result<(), String> {
    let fits = width.checked_mul(height).is_some_and(|all| (1..=PIXELS).contains(&all));
    let wrong = || format!("it has {width} x {height} pixels, at most {PIXELS} are read");
    fits.then_some(()).ok_or_else(wrong)
}

fn png(bytes: &[u8]) -> Result<Image, String> {
    let text = |error: png::DecodingError| error.to_string();
    let limits = png::Limits { bytes: 8 * PIXELS };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(text)?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    sized(width, height)?;
    let size = reader.output_buffer_size().ok_or("it is too large")?;
    let mut samples = vec![0; size];
    let frame = reader.next_frame(&mut samples).map_err(text)?;
    samples.truncate(frame.buffer_size());
    let pixels = match frame.color_type {
        png::ColorType::Rgb => samples,
        png::ColorType::Rgba => {
            samples.chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]]).collect()
        }
        png::ColorType::Grayscale => samples.iter().flat_map(|grey| [*grey; 3]).collect(),
        png::ColorType::GrayscaleAlpha => {
            samples.chunks_exact(2).flat_map(|pair| [pair[0]; 3]).collect()
        }
        png::ColorType::Indexed => return Err("its palette is missing".to_owned()),
    };
    Ok(Image { height, width, pixels })
}

fn jpeg(bytes: &[u8]) -> Result<Image, String> {
    use zune_jpeg::{
        JpegDecoder,
        zune_core::{
            bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions,
        },
    };
    // Otherwise what a file that breaks off does not say would be grey.
    let options = DecoderOptions::default().set_strict_mode(true);
    let options = options.jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| error.to_string())?;
    let (width, height) = decoder.dimensions().ok_or("it has no size")?;
    sized(width, height)?;
    let pixels = decoder.decode().map_err(|error| error.to_string())?;
    if pixels.len() != 3 * width * height {
        return Err("its channels are not red, green and blue".to_owned());
    }
    Ok(Image { height, width, pixels })
}
