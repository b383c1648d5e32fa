typedef standard::Lanes<dst_t, squall::Pack<dst_t>::lanes> Wide;
constexpr u32 WIDE = squall::Pack<dst_t>::lanes;
// The side of a tile, in elements, and the threads that take a line of it together.
constexpr u32 SIDE = sizeof(dst_t) < 8 ? 64 : 32, LINE = 32;

// How to go about it, worked out by one thread of each block for all.
struct Plan {
    // The axes of `dst`, the fastest first, without those of length 1; axes that are neighbours in `src` too are one.
    u32 axes;
    u64 len[8];
    u64 step[8]; // in elements of `src`
    // What an index is divided by, axis by axis: the lengths, or the numbers of tiles.
    standard::Divisor parts[8];
    // The axis of `dst` that is the fastest of `src`, where tiles of it and of axis 0 are turned over in shared memory; else 0.
    u32 across;
    // Whether the fastest axis of `dst` is that of `src` too, and is moved, and counted above, sixteen bytes at a time.
    bool wide;
};

__device__ inline void find_axes(Plan &plan, const squall::List &order, const squall::List &dims) {
    u32 axes = 0;
    for (u64 i = order.len; i-- > 0;) {
        u64 len = (u64)dims[(u64)order[i]], step = 1;
        for (u64 axis = (u64)order[i] + 1; axis < dims.len; ++axis) step *= (u64)dims[axis];
        if (len == 1) continue;
        if (axes > 0 && step == plan.step[axes - 1] * plan.len[axes - 1]) {
            plan.len[axes - 1] *= len;
        } else {
            plan.len[axes] = len;
            plan.step[axes++] = step;
        }
    }
    plan.axes = axes;
}

// `packed`: whether both ranges begin at a multiple of sixteen bytes; `tiles`: whether whole tiles may be written.
__device__ inline void make_plan(Plan &plan, const squall::List &order, const squall::List &dims, bool packed, bool tiles) {
    find_axes(plan, order, dims);
    plan.across = 0;
    plan.wide = packed && plan.axes > 1 && plan.step[0] == 1 && plan.len[0] % WIDE == 0;
    if (plan.wide) plan.len[0] /= WIDE;
    for (u32 axis = 1; axis < plan.axes; ++axis) {
        if (plan.wide) plan.step[axis] /= WIDE;
        // Short axes would leave most of a tile empty.
        if (tiles && plan.step[axis] == 1 && plan.len[axis] >= 8 && plan.len[0] >= 8) plan.across = axis;
    }
    if (plan.wide) plan.across = 0;
    for (u32 axis = 0; axis < plan.axes; ++axis) {
        bool tiled = plan.across != 0 && (axis == 0 || axis == plan.across);
        plan.parts[axis] = standard::Divisor(tiled ? (plan.len[axis] + SIDE - 1) / SIDE : plan.len[axis]);
    }
}

// Turns tiles over: lines along the fastest axis of `src` come in, lines along that of `dst` go out. Only for grids that cover
// `dst`: a tile is written by whichever block has it.
__device__ inline void turn_tiles(const Plan &plan, dst_t *dst, const src_t *src) {
    // One more bank a line, so that the elements of a column lie in different banks.
    __shared__ dst_t tile[SIDE][SIDE + (sizeof(dst_t) < 4 ? 4 / sizeof(dst_t) : 1)];
    constexpr u32 spans = SIDE / LINE, deep = 8 / spans;
    if ((blockIdx.y | blockIdx.z) != 0) return;
    u32 lines = blockDim.x / LINE, lane = threadIdx.x % LINE, line = threadIdx.x / LINE;
    if (line >= lines || (threadIdx.y | threadIdx.z) != 0) line = SIDE; // has no part, but waits with the others
    u64 src_step = plan.step[0], tiles = 1;
    for (u32 axis = 0; axis < plan.axes; ++axis) tiles *= plan.parts[axis].by;
    for (u64 index = blockIdx.x; index < tiles; index += gridDim.x) {
        // Where the tile begins, and how far it reaches: `height` on axis 0, `width` on the axis across.
        u32 rest = (u32)index, height = 0, width = 0;
        u64 from = 0, to = 0, step = 1, dst_step = 0;
        for (u32 axis = 0; axis < plan.axes; ++axis) {
            u32 next = plan.parts[axis].quotient(rest);
            u64 at = rest - next * (u32)plan.parts[axis].by;
            rest = next;
            if (axis == 0 || axis == plan.across) {
                at *= SIDE;
                u32 reach = (u32)squall::least(SIDE, plan.len[axis] - at);
                if (axis == 0) height = reach;
                else width = reach, dst_step = step;
            }
            from += at * plan.step[axis];
            to += at * step;
            step *= plan.len[axis];
        }
        for (u32 row = line; row < height; row += deep * lines) {
            dst_t held[deep][spans];
#pragma unroll
            for (u32 k = 0; k < deep * spans; ++k) {
                u32 y = row + k / spans * lines, x = lane + k % spans * LINE;
                if (y < height && x < width) held[k / spans][k % spans] = src[from + y * src_step + x];
            }
#pragma unroll
            for (u32 k = 0; k < deep * spans; ++k) {
                u32 y = row + k / spans * lines, x = lane + k % spans * LINE;
                if (y < height && x < width) tile[y][x] = held[k / spans][k % spans];
            }
        }
        __syncthreads();
#pragma unroll 4
        for (u32 x = line; x < width; x += lines) {
#pragma unroll
            for (u32 y = lane; y < SIDE; y += LINE)
                if (y < height) dst[to + x * dst_step + y] = tile[y][x];
        }
        __syncthreads();
    }
}

// Where in `src` the element is that belongs to `dst[i]`; both counted as the plan counts.
template <class I> __device__ inline u64 source(const Plan &plan, I i) {
    u64 at = 0;
#pragma unroll 1
    for (u32 axis = 0; axis + 1 < plan.axes; ++axis) {
        I next = plan.parts[axis].quotient(i);
        at += (u64)(i - next * (I)plan.len[axis]) * plan.step[axis];
        i = next;
    }
    return at + i * plan.step[plan.axes - 1];
}

// Each thread fetches the elements of `dst` that are its own, several at a time.
template <class I, class T> __device__ inline void fetch(const Plan &plan, u64 n, T *dst, const T *src) {
    constexpr u32 deep = 4;
    for (u64 i = squall::x(); i < n; i += deep * squall::stride()) {
        T held[deep];
#pragma unroll
        for (u32 k = 0; k < deep; ++k) {
            u64 at = i + k * squall::stride();
            if (at < n) held[k] = src[source<I>(plan, (I)at)];
        }
#pragma unroll
        for (u32 k = 0; k < deep; ++k) {
            u64 at = i + k * squall::stride();
            if (at < n) dst[at] = held[k];
        }
    }
}

template <class I> __device__ inline void gather(const Plan &plan, u64 n, dst_t *dst, const src_t *src) {
    if (!plan.wide) return fetch<I>(plan, n, dst, src);
    fetch<I>(plan, n / WIDE, (Wide *)dst, (const Wide *)src);
    for (u64 i = n - n % WIDE + squall::x(); i < n; i += squall::stride())
        dst[i] = src[source<I>(plan, (I)(i / WIDE)) * WIDE + i % WIDE];
}

__device__ void permute(squall::Buffer<src_t> src, squall::Buffer<dst_t> dst, const squall::List &order,
                        const squall::List &dims, const squall::Launch &launch) {
    __shared__ Plan plan;
    if (dst.len == 0) return;
    if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) {
        // A tile has 64 elements at least, and its index 32 bits.
        bool tiles = launch.threads[0] >= dst.len && blockDim.x >= LINE && dst.len >> 37 == 0;
        make_plan(plan, order, dims, squall::packed(src.data) && squall::packed(dst.data), tiles);
    }
    __syncthreads();
    if (plan.across != 0) return turn_tiles(plan, dst.data, src.data);
    u64 n = standard::reached(dst.len, launch);
    if (plan.axes <= 1) standard::each(n, [](u64, src_t x) { return x; }, dst.data, src.data); // the order stays
    else if (dst.len >> 32 == 0) gather<u32>(plan, n, dst.data, src.data);
    else gather<u64>(plan, n, dst.data, src.data);
}
