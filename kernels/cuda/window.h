// A window that moves over the two extents of images (batch, height, width, channels), padded.

// Rows and columns of an image, each from the first to before the end.
struct Box {
    u32 first[2], end[2];
};

struct Window {
    u32 input[2], output[2], kernel[2], stride, padding;

    __device__ u32 taps() const { return kernel[0] * kernel[1]; }
    // What a place sees of its image.
    __device__ Box seen(u32 row, u32 column) const {
        return {{first_seen(row), first_seen(column)}, {end_seen(0, row), end_seen(1, column)}};
    }
    // The places that see a pixel.
    __device__ Box places_of(u32 row, u32 column) const {
        return {{first_place(0, row), first_place(1, column)}, {end_place(0, row), end_place(1, column)}};
    }
    // The cells with pixels of the image: each is stride × stride pixels, from the one that a place's first tap sees.
    __device__ Box cells() const { return {{padding / stride, padding / stride}, {end_cell(0), end_cell(1)}}; }
    // The tap through which a place sees a row or column that it sees.
    __device__ u32 tap(u32 place, u32 at) const { return at + padding - place * stride; }

  private:
    __device__ u32 first_seen(u32 place) const {
        return place * stride > padding ? place * stride - padding : 0;
    }
    __device__ u32 end_seen(int axis, u32 place) const {
        return least(place * stride + kernel[axis] - padding, input[axis]);
    }
    __device__ u32 first_place(int axis, u32 at) const {
        u32 reach = kernel[axis] - 1;
        return at + padding > reach ? (at + padding - reach + stride - 1) / stride : 0;
    }
    __device__ u32 end_place(int axis, u32 at) const { return least((at + padding) / stride + 1, output[axis]); }
    __device__ u32 end_cell(int axis) const { return (input[axis] - 1 + padding) / stride + 1; }
};

#define WINDOW \
    u32 height, u32 width, u32 rows, u32 columns, u32 kernel_height, u32 kernel_width, u32 stride, u32 padding
#define WINDOW_OF Window{{height, width}, {rows, columns}, {kernel_height, kernel_width}, stride, padding}
