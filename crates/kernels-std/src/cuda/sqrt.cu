__device__ inline f32 root(f32 x) { return __fsqrt_rn(x); }
__device__ inline f64 root(f64 x) { return __dsqrt_rn(x); }

__device__ void square_roots(squall::Buffer<src_t> src, squall::Buffer<dst_t> dst, const squall::Launch &launch) {
    typedef squall::wide<dst_t> T;
    standard::map(standard::reached(dst.len, launch), [](u64, T x) { return root(x); }, dst.data, src.data);
}
