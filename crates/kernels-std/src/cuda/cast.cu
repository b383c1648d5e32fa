// Cut toward zero; what the integer cannot hold saturates. The machine does it for integers of 32 and 64 bits.
__device__ inline void cut(f32 x, i32 &y) { y = __float2int_rz(x); }
__device__ inline void cut(f32 x, u32 &y) { y = __float2uint_rz(x); }
__device__ inline void cut(f32 x, i64 &y) { y = __float2ll_rz(x); }
__device__ inline void cut(f32 x, u64 &y) { y = __float2ull_rz(x); }
__device__ inline void cut(f64 x, i32 &y) { y = __double2int_rz(x); }
__device__ inline void cut(f64 x, u32 &y) { y = __double2uint_rz(x); }
__device__ inline void cut(f64 x, i64 &y) { y = __double2ll_rz(x); }
__device__ inline void cut(f64 x, u64 &y) { y = __double2ull_rz(x); }
template <class S> __device__ inline void cut(S x, i8 &y) {
    i32 whole;
    cut(x, whole);
    y = (i8)(whole < -128 ? -128 : whole > 127 ? 127 : whole);
}
template <class S> __device__ inline void cut(S x, u8 &y) {
    u32 whole;
    cut(x, whole);
    y = (u8)(whole > 255 ? 255 : whole);
}

template <class T> constexpr bool is_float = (T)0.5 != 0;

template <class D, class S> __device__ inline D convert(S x) {
    if constexpr (is_float<S> && !is_float<D>) {
        D y;
        cut(x, y);
        return x == x ? y : (D)0; // NaN: the machine's answer depends on the types
    } else {
        return (D)x; // integers wrap, floats round to nearest
    }
}

__device__ void cast(squall::Buffer<src_t> src, squall::Buffer<dst_t> dst, const squall::Launch &launch) {
    typedef squall::wide<src_t> S;
    typedef squall::wide<dst_t> D;
    standard::map(standard::reached(dst.len, launch), [](u64, S x) { return convert<D>(x); }, dst.data, src.data);
}
