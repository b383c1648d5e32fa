// Up to so many classes a thread takes a row, and beyond a warp.
constexpr u64 FEW_CLASSES = 32;

// The task's own memory. Zero before every launch.
struct Tally {
    u32 finished; // blocks that have counted their rows
    u64 correct;
    u64 wrong; // ~ the first row with a label that is no class, or 0
};

// Whether one of the logits that `lane` of `lanes` looks at speaks against the label: one as great before it, or a greater one
// after it. Every comparison with a NaN is false, the label's with itself too. Sixteen bytes at a time, several of them before
// the first is looked at; what lies before the first multiple of sixteen bytes and after the last one by one.
__device__ inline bool refuted(const logits_t *logits, u64 classes, u64 label, u32 lane, u32 lanes) {
    typedef squall::wide<logits_t> wide;
    typedef squall::Pack<logits_t> Pack;
    constexpr u32 deep = 4;
    wide best = (wide)logits[label];
    auto speaks = [=](u64 c, logits_t x) { return c < label ? !((wide)x < best) : !((wide)x <= best); };
    u64 before = squall::least(standard::lead<Pack::lanes>(logits), classes), packs = (classes - before) / Pack::lanes;
    bool refuted = false;
    for (u64 i = lane; i < packs && !refuted; i += deep * lanes) {
        Pack held[deep];
#pragma unroll
        for (u32 k = 0; k < deep; ++k)
            if (i + k * lanes < packs) held[k] = squall::load(logits + before, i + k * lanes);
#pragma unroll
        for (u32 k = 0; k < deep; ++k) {
            u64 at = i + k * lanes;
            if (at >= packs) break;
#pragma unroll
            for (u32 n = 0; n < Pack::lanes; ++n) refuted |= speaks(before + at * Pack::lanes + n, held[k].lane[n]);
        }
    }
    for (u64 i = lane; i < classes - packs * Pack::lanes && !refuted; i += lanes) {
        u64 c = i < before ? i : i + packs * Pack::lanes;
        refuted = speaks(c, logits[c]);
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
