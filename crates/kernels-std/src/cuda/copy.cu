__device__ void copy(squall::Buffer<src_t> src, squall::Buffer<dst_t> dst, const squall::Launch &launch) {
    standard::each(standard::reached(dst.len, launch), [](u64, src_t x) { return x; }, dst.data, src.data);
}
