__device__ void iota(squall::Buffer<dst_t> dst, squall::Scalar<start_t> start, const squall::Launch &launch) {
    typedef squall::wide<dst_t> T;
    u64 n = standard::reached(dst.len, launch);
    if (n == 0) return;
    T first = (T)start.get(); // 0 when absent
    standard::map(n, [first](u64 i) { return standard::plus(first, (T)i); }, dst.data);
}
