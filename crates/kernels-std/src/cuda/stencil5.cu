// Steps `n` times `lanes` elements of an inner row from column `first` on. The neighbours in a row come from the elements at
// hand, and from the cache at either end of them.
template <u32 lanes>
__device__ inline void step_row(u64 first, u64 n, u64 width, const src_t *row, dst_t *out, squall::wide<src_t> k) {
    typedef squall::wide<src_t> T;
    typedef standard::Lanes<src_t, lanes> Pack;
    for (u64 i = squall::x(); i < n; i += squall::stride()) {
        u64 at = first + i * lanes;
        Pack old = *(const Pack *)(row + at);
        Pack up = *(const Pack *)(row - width + at);
        Pack down = *(const Pack *)(row + width + at);
        src_t before = row[at > 0 ? at - 1 : at], after = row[at + lanes < width ? at + lanes : at];
        Pack stepped;
#pragma unroll
        for (u32 lane = 0; lane < lanes; ++lane) {
            T left = (T)(lane == 0 ? before : old.lane[lane - 1]);
            T right = (T)(lane == lanes - 1 ? after : old.lane[lane + 1]);
            T centre = (T)old.lane[lane];
            T around = left + right + ((T)up.lane[lane] + (T)down.lane[lane]);
            bool border = at + lane == 0 || at + lane == width - 1;
            stepped.lane[lane] = border ? old.lane[lane] : (dst_t)(centre + k * (around - 4 * centre));
        }
        *(Pack *)(out + at) = stepped;
    }
}

__device__ void stencil5(squall::Buffer<src_t> src, squall::Buffer<dst_t> dst, squall::Scalar<k_t> k, const squall::Launch &launch) {
    typedef squall::wide<src_t> T;
    u64 height = dst.shape[0], width = dst.shape[1], y = squall::y();
    if (y >= height || squall::z() != 0) return;
    u64 n = squall::least(width, launch.threads[0]);
    const src_t *row = src.data + y * width;
    dst_t *out = dst.data + y * width;
    if (y == 0 || y == height - 1) return standard::each(n, [](u64, src_t x) { return x; }, out, row);
    constexpr u32 lanes = squall::Pack<src_t>::lanes;
    T by = (T)k.get();
    u64 packs = width % lanes == 0 && squall::packed(src.data) && squall::packed(dst.data) ? n / lanes : 0;
    step_row<lanes>(0, packs, width, row, out, by);
    step_row<1>(packs * lanes, n - packs * lanes, width, row, out, by);
}
