__device__ void copy_2d(squall::Buffer<src_t> src, squall::Buffer<dst_t> dst, u64 rows, u64 cols, u64 src_at, u64 src_stride,
                        u64 dst_at, u64 dst_stride, const squall::Launch &launch) {
    u64 row = squall::y();
    if (row >= rows || squall::z() != 0) return;
    standard::each(squall::least(cols, launch.threads[0]), [](u64, src_t x) { return x; },
                   dst.data + dst_at + row * dst_stride, src.data + src_at + row * src_stride);
}
