// What a window sees of images as a matrix: rows are places of the window, columns (tap, channel).
// Turned round, rows are pixels of the image and columns what sees them: (tap, filter).

// Channels and filters of one group, and how many groups there are.
struct Groups {
    u32 count, channels, filters;
};
#define GROUPS u32 groups, u32 channels, u32 filters
#define GROUPS_OF Groups{groups, channels, filters}

constexpr u64 NOTHING = ~0ull;

// Along one axis, the pixels that the same taps of a window see: those whose number and the padding
// leave `residue` when they are divided by the stride, as the numbers of these taps do. Between
// neighbours of either lies one stride, so among themselves they are as a window without one.
struct Residue {
    u32 taps, pixels;
    // The first of these pixels, which tap `residue` sees from this place.
    u32 pixel, place;
    // Taps of smaller residues.
    u32 before;

    __device__ Residue(const Window& window, int axis, u32 residue) {
        u32 stride = window.stride, kernel = window.kernel[axis], extent = window.input[axis];
        before = kernel / stride * residue + least(kernel % stride, residue);
        taps = kernel / stride + (residue < kernel % stride);
        pixel = (residue + stride - window.padding % stride) % stride;
        place = (pixel + window.padding) / stride;
        pixels = pixel < extent ? (extent - pixel - 1) / stride + 1 : 0;
    }
};

// The residues that pixels leave, by their numbers from 0 on: all of them, most taps first, or one
// for each pixel where there are fewer.
__device__ inline u32 residue(const Window& window, int axis, u32 number) {
    return window.stride <= window.input[axis] ? number : (number + window.padding) % window.stride;
}

// Where a row's window lies: the column in numbers, not in pixels.
struct Spot {
    u32 image, row, column;
    bool valid;
};

// A column of such a matrix.
struct Tap {
    u32 u, v, channel;
};

// Sums wrap round where the padding is; so they are right again later.
template <bool TURNED>
struct View {
    // Of the images that are read: rows, numbers in a row, numbers from a pixel to the next.
    u32 rows, length, pitch;
    // What the matrix has rows for: how many, where the first looks, and how much further the next.
    u32 extents[2], first[2], step[2];
    u32 taps[2], channels;

    // Of places. With one group the taps of a kernel's row see neighbouring numbers, so they are one.
    __device__ View(const Window& window, const Groups& groups)
        : rows(window.input[0]), pitch(groups.count * groups.channels),
          extents{window.output[0], window.output[1]}, taps{window.kernel[0], window.kernel[1]},
          channels(groups.channels) {
        length = window.input[1] * pitch;
        step[0] = window.stride, step[1] = window.stride * pitch;
        first[0] = 0 - window.padding, first[1] = 0 - window.padding * pitch;
        if (groups.count == 1) pitch = channels = taps[1] * channels, taps[1] = 1;
    }
    // Of the pixels of two residues.
    __device__ View(const Window& window, const Groups& groups, const Residue& down, const Residue& along)
        : rows(window.output[0]), pitch(groups.count * groups.filters), extents{down.pixels, along.pixels},
          taps{down.taps, along.taps}, channels(groups.filters) {
        length = window.output[1] * pitch;
        step[0] = 1, step[1] = pitch;
        first[0] = down.place, first[1] = along.place * pitch;
    }

    __device__ u64 depth() const { return u64(taps[0]) * taps[1] * channels; }
    // Whether eight neighbouring columns, from a multiple of eight on, are nothing or 16 bytes.
    template <class N>
    __device__ bool packed(const N* from) const {
        return is_aligned(from) && (length | pitch | first[1] | step[1] | channels) % 8 == 0;
    }
    // Row `number` of `count`.
    __device__ Spot spot(u64 number, u64 count) const {
        u64 line = number / extents[1];
        u32 column = number - line * extents[1], image = line / extents[0];
        u32 row = line - u64(image) * extents[0];
        return Spot{image, row * step[0] + first[0], column * step[1] + first[1], number < count};
    }
    // Where the row of the image begins that a tap reads, or NOTHING.
    __device__ u64 line(const Spot& spot, const Tap& tap) const {
        u32 row = TURNED ? spot.row - tap.u : spot.row + tap.u;
        bool valid = spot.valid && tap.u < taps[0] && row < rows;
        return valid ? (u64(spot.image) * rows + row) * length : NOTHING;
    }
    // The number of that row that it reads; none where it is `length` or more.
    __device__ u32 place(const Spot& spot, const Tap& tap) const {
        u32 pixel = tap.v * pitch;
        return (TURNED ? spot.column - pixel : spot.column + pixel) + tap.channel;
    }
    __device__ Tap tap(u64 column) const {
        u32 number = column / channels;
        return Tap{number / taps[1], number % taps[1], u32(column - u64(number) * channels)};
    }
    __device__ void next(Tap& tap) const {
        if (++tap.v == taps[1]) tap.v = 0, tap.u++;
    }
    // So many columns further on.
    __device__ void advance(Tap& tap, u32 by) const {
        for (tap.channel += by; tap.channel >= channels; next(tap)) tap.channel -= channels;
    }
    // One number of the matrix.
    template <class N>
    __device__ Wide<N> number(const N* from, const Spot& spot, const Tap& tap) const {
        u64 begin = line(spot, tap);
        u32 at = place(spot, tap);
        return begin != NOTHING && at < length ? Wide<N>(widen(from[begin + at])) : Wide<N>(0);
    }
    // Eight neighbouring columns of a row into shared memory.
    template <class N>
    __device__ void fetch(N* to, const N* from, const Spot& spot, Tap tap, bool packed) const {
        u64 begin = line(spot, tap);
        u32 at = place(spot, tap);
        if (packed) {
            bool valid = begin != NOTHING && at < length;
            copy_async(to, valid ? from + begin + at : from, valid);
            return;
        }
        Pack<N, 8> pack;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            pack.at[k] = begin != NOTHING && at < length ? from[begin + at] : N{0};
            at++;
            if (++tap.channel == channels) {
                tap.channel = 0;
                next(tap);
                begin = line(spot, tap);
                at = place(spot, tap);
            }
        }
        store(to, pack);
    }
};
