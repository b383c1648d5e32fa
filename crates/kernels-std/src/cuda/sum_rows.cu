// From so many rows on a column is cut into parts; below, its rows are added in order.
constexpr u64 MANY_ROWS = 64;
// The parts of a column, each of every 32nd row, and the columns that a block takes at a time.
constexpr u32 PARTS = 32, COLS = 32;

template <class S> __device__ inline S sum_column(const data_t *at, u64 rows, u64 stride) {
    S sum = 0;
#pragma unroll 8
    for (u64 row = 0; row < rows; ++row) sum += (S)at[row * stride];
    return sum;
}

// The columns from `first` on, `width` of them. All threads of the block share the parts, side by side along the rows; then the
// upper half of the parts is added to the lower until one is left.
template <class S> __device__ inline void sum_tile(const data_t *data, out_t *out, u64 rows, u64 cols, u32 width) {
    __shared__ S parts[PARTS * COLS];
    for (u32 i = standard::rank(); i < PARTS * width; i += standard::team()) {
        u32 part = i / width, col = i % width;
        parts[i] = sum_column<S>(data + part * cols + col, (rows - part + PARTS - 1) / PARTS, PARTS * cols);
    }
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
        if (squall::x() < standard::reached(cols, launch))
            out[squall::x()] = (out_t)sum_column<S>(data.data + squall::x(), rows, cols);
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
