__device__ void sgd(squall::Buffer<param_t> param, squall::Buffer<grad_t> grad, squall::Scalar<lr_t> lr, const squall::Launch &launch) {
    typedef squall::wide<param_t> T;
    u64 n = standard::reached(param.len, launch);
    if (n == 0) return;
    T rate = (T)lr.get();
    standard::map(n, [rate](u64, T x, T grad) { return x - rate * grad; }, param.data, param.data, grad.data);
}
