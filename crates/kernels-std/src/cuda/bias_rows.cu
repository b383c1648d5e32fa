template <class I> __device__ inline void add_bias(u64 n, data_t *data, const bias_t *bias, u64 cols) {
    typedef squall::wide<data_t> T;
    standard::Divisor by(cols);
    auto sum = [=](u64 i, T x) {
        I column = (I)i - by.quotient((I)i) * (I)cols;
        return standard::plus(x, (T)bias[column]);
    };
    standard::map(n, sum, data, data);
}

__device__ void bias_rows(squall::Buffer<data_t> data, squall::Buffer<bias_t> bias, const squall::Launch &launch) {
    u64 n = standard::reached(data.len, launch);
    if (n == 0) return; // also where there are no columns
    if (n >> 32 == 0 && bias.len >> 32 == 0) add_bias<u32>(n, data.data, bias.data, bias.len);
    else add_bias<u64>(n, data.data, bias.data, bias.len);
}
