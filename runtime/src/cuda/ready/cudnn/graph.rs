//! Graphs of operations under construction.

use super::{
    ALIGNMENT, Done, Refused, SINGLE, attribute, data_type,
    descriptor::{Attribute, Correlation, Data, Descriptor, Kind, Mode, Operator},
};
use roundelay_kernels::cuda::{Convolved, Number, Strides};

/// `CUDNN_DATA_FLOAT`, `CUDNN_DATA_INT32` and `CUDNN_DATA_BOOLEAN`.
pub(in crate::cuda::ready) const REAL: Data = Data(SINGLE);
pub(in crate::cuda::ready) const WHOLE: Data = Data(4);
pub(in crate::cuda::ready) const TRUTH: Data = Data(11);

/// `CUDNN_CROSS_CORRELATION`: filters are not turned.
const CROSS_CORRELATION: Correlation = Correlation(1);
/// `CUDNN_POINTWISE_GEN_INDEX`.
const INDEX: Mode = Mode(501);

/// The first number of what a graph is given by value; arrays in memory have those before.
pub(super) const FIRST_VALUE: i64 = 16;
/// The first number of what is in between.
const FIRST_BETWEEN: i64 = 64;

/// How a type of number is called.
///
/// # Errors
/// When the library takes no such.
pub(in crate::cuda::ready) fn data(number: Number) -> Done<Data> {
    data_type(number).map(Data).ok_or(Refused::Offerless)
}

/// Where an array of a graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Given,
    Value,
    Between,
}

/// Extents and steps from one number to the next: examples, heads, rows and columns, or images, channels,
/// rows and columns, or filters and what each of them has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda::ready) struct Layout {
    pub(in crate::cuda::ready) extents: [i64; 4],
    pub(in crate::cuda::ready) strides: [i64; 4],
}

impl Layout {
    /// Without gaps.
    pub(in crate::cuda::ready) fn dense(extents: [i64; 4]) -> Self {
        let [_, heads, rows, columns] = extents;
        Self { extents, strides: [heads * rows * columns, rows * columns, columns, 1] }
    }

    /// Of tokens, the numbers of a head side by side.
    pub(in crate::cuda::ready) fn of_tokens(extents: [i64; 4], strides: Strides) -> Self {
        let [_, _, rows, _] = extents;
        let [position, head] = [strides.position, strides.head].map(|step| step as i64);
        Self { extents, strides: [rows * position, head, position, 1] }
    }

    /// Of images whose channels lie side by side.
    pub(in crate::cuda::ready) fn of_images(
        batch: i64,
        channels: i64,
        [rows, columns]: [i64; 2],
    ) -> Self {
        let extents = [batch, channels, rows, columns];
        let strides = [rows * columns * channels, 1, columns * channels, channels];
        Self { extents, strides }
    }

    /// With rows and columns exchanged.
    pub(in crate::cuda::ready) fn transposed(self) -> Self {
        let turned =
            |[batch, heads, rows, columns]: [i64; 4]| [batch, heads, columns, rows];
        Self { extents: turned(self.extents), strides: turned(self.strides) }
    }
}

/// The place of a descriptor among those of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(usize);

/// An array of a graph.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda::ready) struct Tensor {
    place: Place,
    pub(in crate::cuda::ready) layout: Layout,
}

/// What else an operation takes number by number, under which name.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda::ready) enum Other {
    /// A second operand.
    Second(Tensor),
    /// Which of both is taken.
    Selector(Tensor),
}

/// How the library calls what makes an array of a convolution, and the number of its first attribute: the
/// factor of the result, behind which are that of what is there, the window, and three arrays.
fn operation_of(pass: Convolved) -> (Kind, i32) {
    match pass {
        Convolved::Results => (Kind::ConvolutionForward, 700),
        Convolved::Images => (Kind::ConvolutionImages, 706),
        Convolved::Filters => (Kind::ConvolutionFilters, 712),
    }
}

/// How a window moves over images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda::ready) struct Window {
    pub(in crate::cuda::ready) padding: i64,
    pub(in crate::cuda::ready) stride: i64,
}

/// A graph under construction. What is made of other descriptors keeps no hold of them, so all are kept.
#[derive(Default)]
pub(in crate::cuda::ready) struct Draft {
    all: Vec<Descriptor>,
    operations: Vec<Place>,
    /// How many arrays in memory it has, and which numbers.
    given: i64,
    values: Vec<f32>,
}

/// What a graph is made of, and what plans of it take.
pub(super) struct Parts {
    _all: Vec<Descriptor>,
    pub(super) given: i64,
    pub(super) values: Vec<f32>,
}

impl Draft {
    fn keep(&mut self, descriptor: Descriptor) -> Place {
        self.all.push(descriptor);
        Place(self.all.len() - 1)
    }

    fn get(&self, place: Place) -> &Descriptor {
        &self.all[place.0]
    }

    fn operation(&mut self, descriptor: Descriptor) {
        let place = self.keep(descriptor);
        self.operations.push(place);
    }

    fn tensor(
        &mut self,
        own: i64,
        number: Data,
        layout: Layout,
        held: Held,
    ) -> Done<Tensor> {
        let descriptor = Descriptor::new(Kind::Tensor)?
            .with(attribute::TENSOR_DATA_TYPE, &[number])?
            .with(attribute::TENSOR_DIMENSIONS, &layout.extents)?
            .with(attribute::TENSOR_STRIDES, &layout.strides)?
            .with(attribute::TENSOR_UNIQUE_ID, &[own])?
            .with(attribute::TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT as i64])?
            .with(attribute::TENSOR_IS_VIRTUAL, &[held == Held::Between])?
            .with(attribute::TENSOR_IS_BY_VALUE, &[held == Held::Value])?
            .finish()?;
        Ok(Tensor { place: self.keep(descriptor), layout })
    }

    /// An array in memory: plans take the addresses of these in the order in which they are said.
    pub(in crate::cuda::ready) fn given(
        &mut self,
        number: Data,
        layout: Layout,
    ) -> Done<Tensor> {
        self.given += 1;
        self.tensor(self.given - 1, number, layout, Held::Given)
    }

    /// A number.
    pub(in crate::cuda::ready) fn value(&mut self, value: f32) -> Done<Tensor> {
        let own = FIRST_VALUE + self.values.len() as i64;
        self.values.push(value);
        self.tensor(own, REAL, Layout::dense([1; 4]), Held::Value)
    }

    /// An array that is nowhere: one operation makes it and others take it.
    pub(in crate::cuda::ready) fn between(
        &mut self,
        number: Data,
        layout: Layout,
    ) -> Done<Tensor> {
        let own = FIRST_BETWEEN + self.all.len() as i64;
        self.tensor(own, number, layout, Held::Between)
    }

    /// Products of matrices, example by example and head by head.
    pub(in crate::cuda::ready) fn product(&mut self, [a, b, into]: [Tensor; 3]) -> Done {
        let how = Descriptor::new(Kind::Matmul)?
            .with(attribute::MATMUL_COMP_TYPE, &[REAL])?
            .finish()?;
        let how = self.keep(how);
        let operation = Descriptor::new(Kind::MatmulOperation)?
            .with_parts(attribute::OPERATION_MATMUL_ADESC, &[self.get(a.place)])?
            .with_parts(attribute::OPERATION_MATMUL_BDESC, &[self.get(b.place)])?
            .with_parts(attribute::OPERATION_MATMUL_CDESC, &[self.get(into.place)])?
            .with_parts(attribute::OPERATION_MATMUL_DESC, &[self.get(how)])?
            .finish()?;
        self.operation(operation);
        Ok(())
    }

    /// Of every row one number.
    pub(in crate::cuda::ready) fn reduction(
        &mut self,
        operator: Operator,
        x: Tensor,
    ) -> Done<Tensor> {
        let [batch, heads, rows, _] = x.layout.extents;
        let y = self.between(REAL, Layout::dense([batch, heads, rows, 1]))?;
        let how = Descriptor::new(Kind::Reduction)?
            .with(attribute::REDUCTION_OPERATOR, &[operator])?
            .with(attribute::REDUCTION_COMP_TYPE, &[REAL])?
            .finish()?;
        let how = self.keep(how);
        let operation = Descriptor::new(Kind::ReductionOperation)?
            .with_parts(attribute::OPERATION_REDUCTION_XDESC, &[self.get(x.place)])?
            .with_parts(attribute::OPERATION_REDUCTION_YDESC, &[self.get(y.place)])?
            .with_parts(attribute::OPERATION_REDUCTION_DESC, &[self.get(how)])?
            .finish()?;
        self.operation(operation);
        Ok(y)
    }

    /// What is done number by number, in numbers of a type, to `x` and to others besides.
    pub(in crate::cuda::ready) fn by_number(
        &mut self,
        (mode, precision): (Mode, Data),
        [x, y]: [Tensor; 2],
        others: &[Other],
    ) -> Done {
        let how = Descriptor::new(Kind::Pointwise)?
            .with(attribute::POINTWISE_MODE, &[mode])?
            .with(attribute::POINTWISE_MATH_PREC, &[precision])?;
        self.pointwise(how, [x, y], others)
    }

    /// Of every number of `x`, where it stands along an axis.
    pub(in crate::cuda::ready) fn index(&mut self, axis: i64, x: Tensor) -> Done<Tensor> {
        let y = self.between(WHOLE, x.layout)?;
        let how = Descriptor::new(Kind::Pointwise)?
            .with(attribute::POINTWISE_MODE, &[INDEX])?
            .with(attribute::POINTWISE_MATH_PREC, &[REAL])?
            .with(attribute::POINTWISE_AXIS, &[axis])?;
        self.pointwise(how, [x, y], &[])?;
        Ok(y)
    }

    fn pointwise(
        &mut self,
        how: Descriptor,
        [x, y]: [Tensor; 2],
        others: &[Other],
    ) -> Done {
        let how = self.keep(how.finish()?);
        let mut operation = Descriptor::new(Kind::PointwiseOperation)?
            .with_parts(attribute::OPERATION_POINTWISE_PW_DESCRIPTOR, &[self.get(how)])?
            .with_parts(attribute::OPERATION_POINTWISE_XDESC, &[self.get(x.place)])?
            .with_parts(attribute::OPERATION_POINTWISE_YDESC, &[self.get(y.place)])?;
        for other in others {
            let (name, tensor) = match other {
                Other::Second(own) => (attribute::OPERATION_POINTWISE_BDESC, own),
                Other::Selector(own) => (attribute::OPERATION_POINTWISE_TDESC, own),
            };
            operation = operation.with_parts(name, &[self.get(tensor.place)])?;
        }
        self.operation(operation.finish()?);
        Ok(())
    }

    /// A convolution or a gradient of one, of images `x`, filters and results `y`; what is made is added to
    /// what is there, times a factor.
    pub(in crate::cuda::ready) fn convolution(
        &mut self,
        pass: Convolved,
        Window { padding, stride }: Window,
        [x, weight, y]: [Tensor; 3],
        factor: f32,
    ) -> Done {
        let window = Descriptor::new(Kind::Convolution)?
            .with(attribute::CONVOLUTION_COMP_TYPE, &[REAL])?
            .with(attribute::CONVOLUTION_CONV_MODE, &[CROSS_CORRELATION])?
            .with(attribute::CONVOLUTION_SPATIAL_DIMS, &[2])?
            .with(attribute::CONVOLUTION_DILATIONS, &[1, 1])?
            .with(attribute::CONVOLUTION_FILTER_STRIDES, &[stride; 2])?
            .with(attribute::CONVOLUTION_PRE_PADDINGS, &[padding; 2])?
            .with(attribute::CONVOLUTION_POST_PADDINGS, &[padding; 2])?
            .finish()?;
        let window = self.keep(window);
        let (kind, first) = operation_of(pass);
        let part = |behind: i32| Attribute::<Descriptor>::new(first + behind);
        let operation = Descriptor::new(kind)?
            .with(Attribute::<f32>::new(first), &[1.0])?
            .with(Attribute::<f32>::new(first + 1), &[factor])?
            .with_parts(part(2), &[self.get(window)])?
            .with_parts(part(3), &[self.get(weight.place)])?
            .with_parts(part(4), &[self.get(x.place)])?
            .with_parts(part(5), &[self.get(y.place)])?
            .finish()?;
        self.operation(operation);
        Ok(())
    }

    /// The operations, in order.
    pub(super) fn operations(&self) -> Vec<&Descriptor> {
        self.operations.iter().map(|place| self.get(*place)).collect()
    }

    /// Nothing more is added but the graph itself.
    pub(super) fn finish(mut self, graph: Descriptor) -> Parts {
        self.keep(graph);
        Parts { _all: self.all, given: self.given, values: self.values }
    }
}
