__device__ void dot(squall::Buffer<a_t> a, squall::Buffer<b_t> b, squall::Buffer<out_t> out, const squall::Launch &launch) {
    typedef standard::sum_type<out_t> S;
    standard::sum_all(a.len, [](S x, S y) { return x * y; }, out.data, launch, a.data, b.data);
}
