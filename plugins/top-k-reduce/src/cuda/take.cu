// Writes the entries that are selected, in the order of the buffer, and takes them out of it.
__device__ void take(squall::Buffer<f32> data, squall::Buffer<u32> words, squall::Buffer<u64> entries, const squall::Launch &) {
    using namespace top_k;
    const State &state = *(const State *)words.data;
    u32 bound = state.bound, ties = state.ties;
    for (u32 chunk = blockIdx.x; chunk < CHUNKS; chunk += gridDim.x) {
        Chunk part(data.len, chunk);
        u32 greater = state.greater[chunk], equal = state.equal[chunk];
        for (u64 tile = part.begin; tile < part.end; tile += BLOCK) {
            u64 i = tile + threadIdx.x;
            f32 x = i < part.end ? data[i] : 0;
            u32 bits = magnitude(x), is_greater = i < part.end && bits > bound, is_equal = i < part.end && bits == bound;
            // Both counts in one word: a tile has too few elements for the lower half to overflow.
            u32 all, earlier = before(is_greater | is_equal << 16, all);
            u32 greater_before = greater + (earlier & 0xffff), equal_before = equal + (earlier >> 16);
            if (is_greater || (is_equal && equal_before < ties)) {
                u64 place = greater_before + squall::least(equal_before, ties);
                if (place < entries.len) entries[place] = i << 32 | __float_as_uint(x);
                data[i] = 0;
            }
            greater += all & 0xffff;
            equal += all >> 16;
        }
    }
}
