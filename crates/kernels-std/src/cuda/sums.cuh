// Sums in an order that depends on shapes alone, on any grid: the terms are cut into chunks, a chunk into lanes, and the lanes
// are shared among as many threads as the block has.

namespace standard {

// The type in which a dtype's terms are multiplied and added. An integer's is unsigned, and at least as long: its low bits are
// the wrapped result.
template <class T> struct Sum { typedef u32 type; };
template <> struct Sum<i64> { typedef u64 type; };
template <> struct Sum<u64> { typedef u64 type; };
template <> struct Sum<f16> { typedef f32 type; };
template <> struct Sum<bf16> { typedef f32 type; };
template <> struct Sum<f32> { typedef f32 type; };
template <> struct Sum<f64> { typedef f64 type; };
template <class T> using sum_type = typename Sum<T>::type;

// The lanes of a chunk.
constexpr u32 LANES = 256;
// The most chunks: enough to fill a GPU with blocks. `reduce.rs` and `loss.rs` reserve the memory.
constexpr u32 CHUNKS = 1024;

// The threads of this block, and this thread's number among them. Which thread does what is no matter where a block works as one.
__device__ inline u32 team() { return blockDim.x * blockDim.y * blockDim.z; }
__device__ inline u32 rank() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }

// `n` things in chunks of at least `least`, the same for every grid. The blocks of the first row share them, as far as there
// are chunks; the first of these works even if there are none.
struct Chunks {
    u64 n, length;
    u32 count, blocks;

    __device__ Chunks(u64 n, u64 least) : n(n) {
        u64 most = least * CHUNKS;
        length = n <= most ? least : (n + most - 1) / most * least;
        count = (u32)((n + length - 1) / length);
        blocks = count > gridDim.x ? gridDim.x : count > 0 ? count : 1;
    }
    __device__ bool idle() const { return (blockIdx.y | blockIdx.z) != 0 || blockIdx.x >= blocks; }
    __device__ u64 begin(u32 chunk) const { return chunk * length; }
    __device__ u64 end(u32 chunk) const { return squall::least(n, (chunk + 1) * length); }
};

// A chunk's sum each, and how many blocks have left theirs. Zero before every launch.
template <class S> struct alignas(8) Partials {
    u32 finished;
    alignas(8) S sums[CHUNKS];
};

// What all lanes come to: the upper half of them is joined to the lower until one is left. Every thread gets it.
template <class S, class F> __device__ inline S join(S *lanes, F f) {
    for (u32 width = LANES / 2; width > 0; width /= 2) {
        __syncthreads();
        for (u32 lane = rank(); lane < width; lane += team()) lanes[lane] = f(lanes[lane], lanes[lane + width]);
    }
    __syncthreads();
    S result = lanes[0];
    __syncthreads(); // before the lanes are used again
    return result;
}

template <class S> __device__ inline S add(S a, S b) { return a + b; }

// Whether this is the last of the `blocks` that come here: then what the others have written is there to be read, past the
// caches of this processor.
__device__ inline bool last(u32 *finished, u32 blocks) {
    __shared__ bool is_last;
    __syncthreads();
    if (rank() == 0) {
        __threadfence();
        is_last = atomicAdd(finished, 1) == blocks - 1;
        if (is_last) *finished = 0;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}

// The sum of the chunks' sums, for the last block.
template <class S> __device__ inline S sum_partials(Partials<S> *partials, const Chunks &chunks, S *lanes) {
    for (u32 lane = rank(); lane < LANES; lane += team()) {
        S sum = 0;
        for (u32 chunk = lane; chunk < chunks.count; chunk += LANES) sum += ((volatile S *)partials->sums)[chunk];
        lanes[lane] = sum;
    }
    return join(lanes, add<S>);
}

template <bool whole, class T> __device__ inline squall::Pack<T> load(const T *p) {
    if (whole) return *(const squall::Pack<T> *)p;
    squall::Pack<T> pack;
#pragma unroll
    for (u32 lane = 0; lane < pack.lanes; ++lane) pack.lane[lane] = p[lane];
    return pack;
}

template <class S, class F, class... T> __device__ inline S add_terms(S sum, F f, const squall::Pack<T> &...x) {
#pragma unroll
    for (u32 lane = 0; lane < (squall::Pack<T>::lanes, ...); ++lane) sum += f((S)x.lane[lane]...);
    return sum;
}

// One lane's sum: the packs from `i` on, each `LANES` after the one before, and what the last of them has before `end`.
template <bool whole, class S, class F, class T, class... Rest>
__device__ inline S sum_lane(u64 i, u64 end, F f, const T *first, const Rest *...rest) {
    constexpr u32 lanes = squall::Pack<T>::lanes;
    S sum = 0;
#pragma unroll 4
    for (; i + lanes <= end; i += LANES * lanes) sum = add_terms(sum, f, load<whole>(first + i), load<whole>(rest + i)...);
    for (; i < end; ++i) sum += f((S)first[i], (S)rest[i]...);
    return sum;
}

// `out[0] = the sum of f(src[i]...)` for all `i` below `n`. The ranges are of one type.
template <class T, class F, class... Rest>
__device__ inline void sum_all(u64 n, F f, T *out, const squall::Launch &launch, const T *first, const Rest *...rest) {
    typedef sum_type<T> S;
    constexpr u32 pack = squall::Pack<T>::lanes;
    __shared__ S lanes[LANES];
    Partials<S> *partials = (Partials<S> *)launch.scratch;
    Chunks chunks(n, 4 * LANES * pack);
    if (chunks.idle()) return;
    bool whole = squall::packed(first) && (squall::packed(rest) && ...);
    for (u32 chunk = blockIdx.x; chunk < chunks.count; chunk += chunks.blocks) {
        u64 end = chunks.end(chunk);
        for (u32 lane = rank(); lane < LANES; lane += team()) {
            u64 i = chunks.begin(chunk) + lane * pack;
            lanes[lane] = whole ? sum_lane<true, S>(i, end, f, first, rest...) : sum_lane<false, S>(i, end, f, first, rest...);
        }
        S sum = join(lanes, add<S>);
        if (rank() == 0) partials->sums[chunk] = sum;
    }
    if (!last(&partials->finished, chunks.blocks)) return;
    S sum = sum_partials(partials, chunks, lanes);
    if (rank() == 0) out[0] = (T)sum;
}

} // namespace standard
