// What is done element by element.

// residual += grad
__device__ void accumulate(squall::Buffer<f32> residual, squall::Buffer<f32> grad, const squall::Launch &) {
    u64 n = squall::least(residual.len, grad.len);
    for (u64 i = squall::x(); i < n; i += squall::stride()) residual[i] += grad[i];
}

// data = 0
__device__ void clear(squall::Buffer<f32> data, const squall::Launch &) {
    for (u64 i = squall::x(); i < data.len; i += squall::stride()) data[i] = 0;
}

// data[index] += value, for every entry. No index comes twice.
__device__ void scatter(squall::Buffer<u64> entries, squall::Buffer<f32> data, const squall::Launch &) {
    for (u64 i = squall::x(); i < entries.len; i += squall::stride()) {
        u64 entry = entries[i], index = entry >> 32;
        if (index < data.len) data[index] += __uint_as_float((u32)entry);
    }
}
