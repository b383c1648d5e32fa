__device__ void relu_grad(squall::Buffer<src_t> src, squall::Buffer<dst_grad_t> dst_grad, squall::Buffer<src_grad_t> src_grad,
                          const squall::Launch &launch) {
    typedef squall::wide<src_t> T;
    u64 n = standard::reached(src_grad.len, launch);
    standard::map(n, [](u64, T x, T grad) { return x <= 0 ? (T)0 : grad; }, src_grad.data, src.data, dst_grad.data);
}
