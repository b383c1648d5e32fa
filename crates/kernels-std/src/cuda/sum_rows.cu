// From so many rows on a column is cut into parts; below, its rows are added in order.
constexpr u64 MANY_ROWS = 64;
// The parts of a column, each of every 32nd row, and the columns that a block takes at a time: 128 bytes of a row at least, so
// that what the block loads at a time are whole lines of the cache, sixteen bytes a thread.
constexpr u32 PARTS = 32, COLS = sizeof(data_t) < 4 ? 128 / sizeof(data_t) : 32;
// The columns that a thread can load at once.
constexpr u32 PACK = squall::Pack<data_t>::lanes;

// The sums of `n` columns side by side, eight rows under way. Four bytes of each would be too few: a block adds all rows of its
// columns, and where there are few columns, few blocks have work.
template <u32 n, class S> __device__ inline standard::Lanes<S, n> sum_columns(const data_t *at, u64 rows, u64 stride) {
    standard::Lanes<S, n> sum = {};
#pragma unroll 8
    for (u64 row = 0; row < rows; ++row) {
        standard::Lanes<data_t, n> x = *(const standard::Lanes<data_t, n> *)(at + row * stride);
#pragma unroll
        for (u32 lane = 0; lane < n; ++lane) sum.lane[lane] += (S)x.lane[lane];
    }
    return sum;
}

// The columns of few rows, `n` a thread: from `first` on, as many times `n` of them as `threads`.
template <u32 n, class S>
__device__ inline void sum_few(u64 first, u64 threads, const data_t *data, out_t *out, u64 rows, u64 cols) {
    if (squall::x() >= threads) return;
    u64 col = first + squall::x() * n;
    standard::Lanes<S, n> sum = sum_columns<n, S>(data + col, rows, cols);
    standard::Lanes<out_t, n> narrow;
#pragma unroll
    for (u32 lane = 0; lane < n; ++lane) narrow.lane[lane] = (out_t)sum.lane[lane];
    *(standard::Lanes<out_t, n> *)(out + col) = narrow;
}

// The parts of `width` columns, side by side along the rows; `n` columns a thread, where `width` is a multiple of it.
template <u32 n, class S> __device__ inline void sum_parts(const data_t *data, u64 rows, u64 cols, u32 width, S *parts) {
    for (u32 i = standard::rank() * n; i < PARTS * width; i += standard::team() * n) {
        u32 part = i / width, col = i % width;
        standard::Lanes<S, n> sum = sum_columns<n, S>(data + part * cols + col, (rows - part + PARTS - 1) / PARTS, PARTS * cols);
#pragma unroll
        for (u32 lane = 0; lane < n; ++lane) parts[i + lane] = sum.lane[lane];
    }
}

// The columns from `first` on, `width` of them. All threads of the block share the parts; then the upper half of the parts is
// added to the lower until one is left.
template <class S> __device__ inline void sum_tile(const data_t *data, out_t *out, u64 rows, u64 cols, u32 width) {
    __shared__ S parts[PARTS * COLS];
    if (squall::packed(data) && cols % PACK == 0 && width % PACK == 0) sum_parts<PACK>(data, rows, cols, width, parts);
    else sum_parts<1>(data, rows, cols, width, parts);
    for (u32 half = PARTS / 2; half > 0; half /= 2) {
        __syncthreads();
        for (u32 i = standard::rank(); i < half * width; i += standard::team()) parts[i] += parts[i + half * width];
    }
    __syncthreads();
    for (u32 col = standard::rank(); col < width; col += standard::team()) out[col] = (out_t)parts[col];
    __syncthreads(); // before the parts are used again
}

__device__ void sum_rows(squall::Buffer<data_t> data, squall::Buffer<out_t> out, const squall::Launch &launch) {
    typedef standard::sum_type<out_t> S;
    u64 cols = out.len, rows = cols ? data.len / cols : 0;
    if (rows < MANY_ROWS) {
        u64 n = standard::reached(cols, launch);
        bool wide = squall::packed(data.data) && squall::packed(out.data) && cols % PACK == 0;
        u64 packs = wide ? n / PACK : 0;
        sum_few<PACK, S>(0, packs, data.data, out.data, rows, cols);
        sum_few<1, S>(packs * PACK, n - packs * PACK, data.data, out.data, rows, cols);
        return;
    }
    if ((blockIdx.y | blockIdx.z) != 0) return;
    // The columns of this block's threads.
    u64 begin = (u64)blockIdx.x * blockDim.x, end = squall::least(cols, begin + blockDim.x);
    for (u64 col = begin; col < end; col += COLS) {
        u32 width = (u32)squall::least(COLS, end - col);
        sum_tile<S>(data.data + col, out.data + col, rows, cols, width);
    }
}
