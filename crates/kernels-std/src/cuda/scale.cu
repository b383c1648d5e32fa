__device__ void scale(squall::Buffer<data_t> data, squall::Scalar<factor_t> factor, const squall::Launch &launch) {
    typedef squall::wide<data_t> T;
    u64 n = standard::reached(data.len, launch);
    if (n == 0) return;
    T by = (T)factor.get();
    standard::map(n, [by](u64, T x) { return standard::times(x, by); }, data.data, data.data);
}
