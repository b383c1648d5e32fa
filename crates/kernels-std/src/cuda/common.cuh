// What the standard kernels share. It stands between squall's prelude and a kernel's own text.

namespace standard {

using squall::wide;

// The unsigned type in which an integer's arithmetic wraps; a float's own type.
template <class T> struct Wrapping { typedef T type; };
template <> struct Wrapping<i8> { typedef u8 type; };
template <> struct Wrapping<i32> { typedef u32 type; };
template <> struct Wrapping<i64> { typedef u64 type; };
template <class T> using wrapping = typename Wrapping<T>::type;

// Arithmetic as on the host: integers wrap, floats follow IEEE 754. For the types that `wide` gives.
template <class T> __device__ inline T plus(T a, T b) { return (T)((wrapping<T>)a + (wrapping<T>)b); }
template <class T> __device__ inline T minus(T a, T b) { return (T)((wrapping<T>)a - (wrapping<T>)b); }
template <class T> __device__ inline T times(T a, T b) { return (T)((wrapping<T>)a * (wrapping<T>)b); }

// A divisor known before the loop, not 0. Dividing a number below 2^32 by one is a product and a shift.
struct Divisor {
    u64 by;
    u32 factor, shift;
    Divisor() = default;
    // With 2^shift the least power of two that is not below `by`, (2^32 + factor) / 2^(32 + shift) exceeds 1 / by by so little
    // that no quotient changes.
    __device__ explicit Divisor(u64 by) : by(by), shift(by > 1 ? 32 - __clz((u32)by - 1) : 0) {
        factor = (u32)(((((u64)1 << shift) - by) << 32) / by + 1);
    }
    // For a divisor below 2^32.
    __device__ u32 quotient(u32 n) const { return (u32)(((u64)__umulhi(n, factor) + n) >> shift); }
    __device__ u64 quotient(u64 n) const { return n / by; }
};

// How many of `len` elements this thread's row of the launch works on: those that have a thread on axis x, and none on the
// rows beyond the first, for kernels that cover axis x alone.
__device__ inline u64 reached(u64 len, const squall::Launch &launch) {
    return squall::y() == 0 && squall::z() == 0 ? squall::least(len, launch.threads[0]) : 0;
}

// So many elements side by side, loaded or stored by one instruction when they take at most sixteen bytes and lie at a
// multiple of their size.
template <class T, u32 n> struct alignas(n * sizeof(T)) Lanes { T lane[n]; };

// How many elements lie before the first place where `n` of them can be loaded at once.
template <u32 n, class T> __device__ inline u64 lead(const T *p) { return (0 - (u64)p / sizeof(T)) % n; }

// What a thread loads before it stores anything, so that its loads are under way together: so many, a launch's width apart.
// Fewer of many lanes, which take a register each.
template <u32 lanes> constexpr u32 deep = lanes > 4 ? 2 : 4;
template <class T, u32 lanes> struct Batch { Lanes<T, lanes> at[deep<lanes>]; };

template <u32 lanes, class T> __device__ inline Batch<T, lanes> load_batch(u64 i, u64 n, const T *src) {
    Batch<T, lanes> batch;
#pragma unroll
    for (u32 k = 0; k < deep<lanes>; ++k)
        if (i + k * squall::stride() < n) batch.at[k] = ((const Lanes<T, lanes> *)src)[i + k * squall::stride()];
    return batch;
}

template <u32 lanes, class F, class D, class... S>
__device__ inline void store_batch(u64 first, u64 i, u64 n, F f, D *dst, const Batch<S, lanes> &...src) {
#pragma unroll
    for (u32 k = 0; k < deep<lanes>; ++k) {
        u64 at = i + k * squall::stride();
        if (at >= n) break;
        Lanes<D, lanes> out;
#pragma unroll
        for (u32 lane = 0; lane < lanes; ++lane) out.lane[lane] = f(first + at * lanes + lane, src.at[k].lane[lane]...);
        ((Lanes<D, lanes> *)dst)[at] = out;
    }
}

// `each` over `n` times `lanes` elements from `first` on.
template <u32 lanes, class F, class D, class... S>
__device__ inline void each_lanes(u64 first, u64 n, F f, D *dst, const S *...src) {
    for (u64 i = squall::x(); i < n; i += deep<lanes> * squall::stride())
        store_batch<lanes>(first, i, n, f, dst + first, load_batch<lanes>(i, n, src + first)...);
}

// `dst[i] = f(i, src[i]...)` for all i below `n`, shared among the threads on axis x. A source may be `dst` itself. Sixteen
// bytes of the widest type at a time where all ranges allow it.
template <class F, class D, class... S> __device__ inline void each(u64 n, F f, D *dst, const S *...src) {
    constexpr u64 sizes[] = {sizeof(D), sizeof(S)...};
    constexpr u32 widest = [](const u64 *sizes, u32 count) {
        u64 widest = 0;
        for (u32 i = 0; i < count; ++i) widest = sizes[i] > widest ? sizes[i] : widest;
        return (u32)widest;
    }(sizes, 1 + sizeof...(S));
    constexpr u32 lanes = 16 / widest;
    if (!((lead<lanes>(src) == lead<lanes>(dst)) && ...)) return each_lanes<1>(0, n, f, dst, src...);
    u64 before = squall::least(lead<lanes>(dst), n), packs = (n - before) / lanes;
    each_lanes<lanes>(before, packs, f, dst, src...);
    // What lies before the first pack and after the last.
    for (u64 i = squall::x(); i < n - packs * lanes; i += squall::stride()) {
        u64 at = i < before ? i : i + packs * lanes;
        dst[at] = f(at, src[at]...);
    }
}

// The same in the types that arithmetic is done in, rounded once when stored.
template <class F, class D, class... S> __device__ inline void map(u64 n, F f, D *dst, const S *...src) {
    each(n, [&](u64 i, S... x) { return (D)f(i, (wide<S>)x...); }, dst, src...);
}

} // namespace standard
