// What a window sees of images as a matrix: rows are places of the window, columns (tap, channel).
// Turned round, rows are pixels of the image and columns what sees them: (tap, filter).

// Channels and filters of one group, and how many groups there are.
struct Groups {
    u32 count, channels, filters;
};
#define GROUPS u32 groups, u32 channels, u32 filters
#define GROUPS_OF Groups{groups, channels, filters}

constexpr u64 NOTHING = ~0ull;

// Where a row's window lies.
struct Spot {
    u64 image;
    u32 row, column;
    bool valid;
};

// A column of such a matrix.
struct Tap {
    u32 u, v, channel;
};

template <bool TURNED>
struct View {
    Window window;
    // Of the array that is read: of all groups, and of the one that is seen.
    u32 all, channels;

    __device__ const u32 (&read_extents() const)[2] { return TURNED ? window.output : window.input; }
    __device__ const u32 (&own_extents() const)[2] { return TURNED ? window.input : window.output; }

    // Row `number` of `count`. Sums wrap round where the padding is; so they are right again later.
    __device__ Spot spot(u64 number, u64 count) const {
        u32 width = own_extents()[1], height = own_extents()[0];
        u64 line = number / width;
        u32 column = number - line * width;
        u64 image = line / height;
        u32 row = line - image * height, step = TURNED ? 1 : window.stride;
        u32 before = TURNED ? window.padding : 0 - window.padding;
        return Spot{image, row * step + before, column * step + before, number < count};
    }
    // Where the channels begin that a tap reads, or NOTHING.
    __device__ u64 at(const Spot& spot, u32 u, u32 v) const {
        u32 row = TURNED ? spot.row - u : spot.row + u, column = TURNED ? spot.column - v : spot.column + v;
        bool valid = spot.valid && u < window.kernel[0];
        if (TURNED) {
            valid = valid && spot.row >= u && spot.column >= v;
            if (window.stride > 1) {
                valid = valid && row % window.stride == 0 && column % window.stride == 0;
                row /= window.stride;
                column /= window.stride;
            }
        }
        const u32(&extents)[2] = read_extents();
        valid = valid && row < extents[0] && column < extents[1];
        return valid ? ((spot.image * extents[0] + row) * extents[1] + column) * all : NOTHING;
    }
    __device__ Tap tap(u64 column) const {
        u32 number = column / channels;
        return Tap{number / window.kernel[1], number % window.kernel[1], u32(column - u64(number) * channels)};
    }
    // So many columns further on.
    __device__ void advance(Tap& tap, u32 by) const {
        tap.channel += by;
        while (tap.channel >= channels) {
            tap.channel -= channels;
            if (++tap.v == window.kernel[1]) tap.v = 0, tap.u++;
        }
    }
    // One number of the matrix.
    template <class N>
    __device__ Wide<N> number(const N* from, const Spot& spot, const Tap& tap) const {
        u64 place = at(spot, tap.u, tap.v);
        return place == NOTHING ? Wide<N>(0) : Wide<N>(widen(from[place + tap.channel]));
    }
    // Eight neighbouring columns of a row into shared memory; packed if they are of one tap and
    // aligned.
    template <class N>
    __device__ void fetch(N* to, const N* from, const Spot& spot, Tap tap, bool packed) const {
        if (packed) {
            u64 place = at(spot, tap.u, tap.v);
            bool valid = place != NOTHING;
            copy_async(to, valid ? from + place + tap.channel : from, valid);
            return;
        }
        for (int k = 0; k < 8; k++, advance(tap, 1)) {
            u64 place = at(spot, tap.u, tap.v);
            to[k] = place == NOTHING ? N{0} : from[place + tap.channel];
        }
    }
};
