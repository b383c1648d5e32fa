__device__ void add(squall::Buffer<a_t> a, squall::Buffer<b_t> b, squall::Buffer<out_t> out, const squall::Launch &launch) {
    typedef squall::wide<out_t> T;
    u64 n = standard::reached(out.len, launch);
    standard::map(n, [](u64, T x, T y) { return standard::plus(x, y); }, out.data, a.data, b.data);
}
