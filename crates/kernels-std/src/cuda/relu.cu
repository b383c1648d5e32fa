__device__ void relu(squall::Buffer<src_t> src, squall::Buffer<dst_t> dst, const squall::Launch &launch) {
    typedef squall::wide<dst_t> T;
    standard::map(standard::reached(dst.len, launch), [](u64, T x) { return x < 0 ? (T)0 : x; }, dst.data, src.data);
}
