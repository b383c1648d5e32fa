// The quotient as on the host; false where there is none.
__device__ inline bool over(f32 a, f32 b, f32 &quotient) { return quotient = a / b, true; }
__device__ inline bool over(f64 a, f64 b, f64 &quotient) { return quotient = a / b, true; }
template <class T> __device__ inline bool over(T a, T b, T &quotient) {
    if (b == 0) return false;
    // The least integer over -1 wraps, where the machine's division would be undefined.
    quotient = (T)-1 < 0 && b == (T)-1 ? standard::minus((T)0, a) : (T)(a / b);
    return true;
}

__device__ void div(squall::Buffer<a_t> a, squall::Buffer<b_t> b, squall::Buffer<out_t> out, const squall::Launch &launch) {
    typedef squall::wide<out_t> T;
    u64 n = standard::reached(out.len, launch);
    auto quotient = [&](u64 i, T x, T y) {
        T quotient;
        if (over(x, y, quotient)) return quotient;
        launch.fail(0, i);
        return (T)out[i]; // the element stays as it was
    };
    standard::map(n, quotient, out.data, a.data, b.data);
}
