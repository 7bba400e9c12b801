// A window that moves over the two extents of images (batch, height, width, channels), padded.

struct Window {
    u32 input[2], output[2], kernel[2], stride, padding;

    // The row or column of the image that a tap sees from a place; none is beyond the image.
    __device__ u32 seen(int axis, u32 place, u32 tap) const { return place * stride + tap - padding; }
    // The place from which a tap sees a row or column; beyond the result if there is none.
    __device__ u32 place(int axis, u32 at, u32 tap) const {
        u32 from = at + padding - tap;
        return at + padding >= tap && from % stride == 0 ? from / stride : 0xffffffff;
    }
    __device__ u32 pixels() const { return input[0] * input[1]; }
    __device__ u32 places() const { return output[0] * output[1]; }
    __device__ u32 taps() const { return kernel[0] * kernel[1]; }
    // The first and one behind the last place that sees a row or column.
    __device__ u32 first_place(int axis, u32 at) const {
        u32 reach = kernel[axis] - 1;
        return at + padding > reach ? (at + padding - reach + stride - 1) / stride : 0;
    }
    __device__ u32 end_place(int axis, u32 at) const { return least((at + padding) / stride + 1, output[axis]); }
};

#define WINDOW \
    u32 height, u32 width, u32 rows, u32 columns, u32 kernel_height, u32 kernel_width, u32 stride, u32 padding
#define WINDOW_OF Window{{height, width}, {rows, columns}, {kernel_height, kernel_width}, stride, padding}
