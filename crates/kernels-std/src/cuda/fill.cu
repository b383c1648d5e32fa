__device__ void fill(squall::Buffer<dst_t> dst, squall::Scalar<value_t> value, const squall::Launch &launch) {
    u64 n = standard::reached(dst.len, launch);
    if (n == 0) return;
    dst_t x = value.get();
    standard::each(n, [x](u64) { return x; }, dst.data);
}
