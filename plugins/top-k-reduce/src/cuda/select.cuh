// The largest magnitudes of a buffer, by radix: three passes find the magnitude of the last one that is selected, 11 and twice 10 bits at a
// time from the top, and two more write what is selected in the order of the buffer. Counts alone are added atomically, and a sum of whole
// numbers has one value: the result does not depend on who comes first.

namespace top_k {

constexpr u32 BINS = 2048;
constexpr u32 CHUNKS = 1024;
constexpr u32 BLOCK = 256; // threads of a block: `select.rs` launches no other
constexpr u32 WARPS = BLOCK / 32;

// What the passes leave for one another, zero before the first: `select.rs` reserves the memory.
struct State {
    u32 bound;    // the bits of the last magnitude that is selected, as far as they are known
    u32 ties;     // how many are selected of those with these bits
    u32 finished; // blocks that have come to the end of a pass
    u32 unused;
    u32 bins[BINS];
    u32 greater[CHUNKS]; // magnitudes beyond the bound in the chunks before this one
    u32 equal[CHUNKS];   // and at it
};

// The order of magnitudes, in 31 bits. All NaNs are alike, beyond the infinities.
__device__ inline u32 magnitude(f32 x) {
    u32 bits = __float_as_uint(x) & 0x7fffffffu;
    return bits > 0x7f800000u ? 0x7f800001u : bits;
}

// Whether this is the last block to come here: then what the others have written is there to be read, past the caches.
__device__ inline bool last(State &state) {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(&state.finished, 1) == gridDim.x - 1;
        if (is_last) state.finished = 0;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}

// The sum of what the threads before this one have, and of all.
__device__ inline u32 before(u32 own, u32 &all) {
    __shared__ u32 sums[WARPS];
    u32 lane = threadIdx.x % 32, sum = own;
    for (u32 step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    u32 result = sum - own;
    all = 0;
    for (u32 warp = 0; warp < WARPS; ++warp) {
        if (warp < threadIdx.x / 32) result += sums[warp];
        all += sums[warp];
    }
    __syncthreads(); // before the sums are used again
    return result;
}

// A contiguous part of the buffer.
struct Chunk {
    u64 begin, end;
    __device__ Chunk(u64 n, u32 chunk) {
        u64 length = (n + CHUNKS - 1) / CHUNKS;
        begin = squall::least(n, chunk * length);
        end = squall::least(n, begin + length);
    }
};

} // namespace top_k
