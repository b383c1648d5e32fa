__device__ void matmul_nn(squall::Buffer<a_t> a, squall::Buffer<b_t> b, squall::Buffer<c_t> c, u64 m, u64 k, u64 n,
                          const squall::Launch &launch) {
    typedef standard::Factor<c_t, true> A;
    typedef standard::Factor<c_t, false> B;
    standard::product(A{a.data, m, k}, B{b.data, n, k}, c.data, launch);
}
