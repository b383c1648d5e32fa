// Up to so many classes a thread takes a row, and beyond a warp.
constexpr u64 FEW_CLASSES = 32;

// The task's own memory. Zero before every launch.
struct Tally {
    u32 finished; // blocks that have counted their rows
    u64 correct;
    u64 wrong; // ~ the first row with a label that is no class, or 0
};

// Whether one of the logits that `lane` of `lanes` looks at speaks against the label: one as great before it, or a greater one
// after it. Every comparison with a NaN is false, the label's with itself too.
__device__ inline bool refuted(const logits_t *logits, u64 classes, u64 label, u32 lane, u32 lanes) {
    typedef squall::wide<logits_t> wide;
    wide best = (wide)logits[label];
    bool refuted = false;
    for (u64 c = lane; c < classes && !refuted; c += lanes) {
        wide x = (wide)logits[c];
        refuted = c < label ? !(x < best) : !(x <= best);
    }
    return refuted;
}

__device__ void accuracy_count(squall::Buffer<logits_t> logits, squall::Buffer<labels_t> labels, squall::Buffer<count_t> count,
                               const squall::Launch &launch) {
    using namespace standard;
    Tally *tally = (Tally *)launch.scratch;
    u64 rows = labels.len, classes = rows ? logits.len / rows : 0;
    if ((blockIdx.y | blockIdx.z) != 0) return;
    // The rows of this block's threads, shared among teams of one thread or of a warp, of which the last may be short.
    u64 begin = (u64)blockIdx.x * blockDim.x, end = squall::least(rows, begin + blockDim.x);
    u32 full = classes <= FEW_CLASSES ? 1 : 32, first = rank() / full * full;
    u32 lanes = first + full <= team() ? full : team() - first, teams = (team() + full - 1) / full;
    u32 warp = lanes == 32 ? ~0u : (1u << lanes) - 1, correct = 0;
    for (u64 row = begin + rank() / full; row < end; row += teams) {
        i64 label = labels[row];
        if (label >= (i64)classes) atomicMax(&tally->wrong, ~row);
        if (label < 0 || label >= (i64)classes) continue;
        bool against = refuted(logits.data + row * classes, classes, label, rank() - first, lanes);
        if (full > 1) against = __any_sync(warp, against);
        correct += !against && rank() == first;
    }
    if (correct) atomicAdd(&tally->correct, (u64)correct);
    if (!last(&tally->finished, gridDim.x) || rank() != 0) return;
    volatile Tally *all = tally;
    if (all->wrong) launch.fail(0, ~all->wrong);
    else count[0] = (count_t)((u64)count[0] + all->correct);
    all->correct = all->wrong = 0;
}
