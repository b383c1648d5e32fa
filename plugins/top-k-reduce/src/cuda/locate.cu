// Every chunk's count becomes the sum of the counts before it.
__device__ inline void sum_up(u32 *counts) {
    using namespace top_k;
    constexpr u32 own = CHUNKS / BLOCK;
    u32 values[own], sum = 0, all;
    for (u32 i = 0; i < own; ++i) sum += values[i] = ((volatile u32 *)counts)[threadIdx.x * own + i];
    sum = before(sum, all);
    for (u32 i = 0; i < own; ++i) {
        counts[threadIdx.x * own + i] = sum;
        sum += values[i];
    }
}

// Counts what every chunk has beyond the bound and at it, and turns the counts into how much lies in the chunks before.
__device__ void locate(squall::Buffer<f32> data, squall::Buffer<u32> words, const squall::Launch &) {
    using namespace top_k;
    State &state = *(State *)words.data;
    u32 bound = state.bound;
    for (u32 chunk = blockIdx.x; chunk < CHUNKS; chunk += gridDim.x) {
        Chunk part(data.len, chunk);
        u32 greater = 0, equal = 0, all;
#pragma unroll 4
        for (u64 i = part.begin + threadIdx.x; i < part.end; i += BLOCK) {
            u32 bits = magnitude(data[i]);
            greater += bits > bound;
            equal += bits == bound;
        }
        before(greater, all);
        if (threadIdx.x == 0) state.greater[chunk] = all;
        before(equal, all);
        if (threadIdx.x == 0) state.equal[chunk] = all;
    }
    if (!last(state)) return;
    sum_up(state.greater);
    sum_up(state.equal);
}
