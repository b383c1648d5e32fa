__device__ void axpy(squall::Scalar<a_t> a, squall::Buffer<x_t> x, squall::Buffer<y_t> y, bool negate, const squall::Launch &launch) {
    typedef squall::wide<y_t> T;
    u64 n = standard::reached(y.len, launch);
    if (n == 0) return;
    T by = (T)a.get();
    auto sum = [=](u64, T x, T y) {
        T product = standard::times(by, x);
        return negate ? standard::minus(y, product) : standard::plus(y, product);
    };
    standard::map(n, sum, y.data, x.data, y.data);
}
