// Fixes the next bits of the bound: counts the magnitudes that agree with it so far by their next `width` bits, which begin at bit `shift`, and
// goes down from the greatest until enough are counted.
__device__ void narrow(squall::Buffer<f32> data, squall::Buffer<u32> words, u64 k, u64 shift, u64 width, const squall::Launch &) {
    using namespace top_k;
    State &state = *(State *)words.data;
    __shared__ u32 bins[BINS];
    u32 count = 1u << width, known = (u32)(shift + width), bound = known < 31 ? state.bound : 0;
    for (u32 bin = threadIdx.x; bin < count; bin += BLOCK) bins[bin] = 0;
    __syncthreads();
#pragma unroll 4
    for (u64 i = squall::x(); i < data.len; i += squall::stride()) {
        u32 bits = magnitude(data[i]);
        if (bits >> known == bound >> known) atomicAdd(&bins[(bits >> shift) & (count - 1)], 1);
    }
    __syncthreads();
    for (u32 bin = threadIdx.x; bin < count; bin += BLOCK)
        if (bins[bin] != 0) atomicAdd(&state.bins[bin], bins[bin]);
    if (!last(state)) return;
    // Every thread has some bins, the first thread the greatest.
    u32 wanted = known < 31 ? state.ties : (u32)k, own = count / BLOCK, first = count - 1 - threadIdx.x * own, sum = 0, all;
    for (u32 i = 0; i < own; ++i) sum += ((volatile u32 *)state.bins)[first - i];
    u32 above = before(sum, all);
    if (above < wanted && wanted <= above + sum) {
        u32 bin = first, in_bin;
        while (above + (in_bin = ((volatile u32 *)state.bins)[bin]) < wanted) above += in_bin, --bin;
        state.bound = bound | bin << shift;
        state.ties = wanted - above;
    }
    __syncthreads();
    for (u32 bin = threadIdx.x; bin < count; bin += BLOCK) state.bins[bin] = 0;
}
