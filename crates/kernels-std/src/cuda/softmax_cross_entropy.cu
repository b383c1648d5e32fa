typedef squall::wide<logits_t> wide_t;

// Up to so many classes a thread takes a row, and beyond a block.
constexpr u64 FEW_CLASSES = 32;
// The labels that a block counts at a time.
constexpr u64 PIECE = 4096;

__device__ inline f32 exponential(f32 x) { return expf(x); }
__device__ inline f64 exponential(f64 x) { return exp(x); }
__device__ inline f32 logarithm(f32 x) { return logf(x); }
__device__ inline f64 logarithm(f64 x) { return log(x); }
// Passes over NaNs; the sum of the exponentials finds them.
__device__ inline f32 greater(f32 a, f32 b) { return fmaxf(a, b); }
__device__ inline f64 greater(f64 a, f64 b) { return fmax(a, b); }

// The task's own memory. Zero before every launch.
struct Tally {
    u32 taken;   // pieces of the labels that blocks have taken
    u32 done;    // and that they have counted
    u64 counted; // rows with a class
    u64 wrong;   // ~ the first row with a label that is no class, or 0
    standard::Partials<wide_t> losses;
};

// Rows with a class, and whether a label is none: each block takes pieces of the labels while there are any, and then waits
// for those that others have taken. They are at work on them, so that it does not wait for blocks that have yet to begin.
__device__ inline void count(squall::Buffer<labels_t> labels, u64 classes, Tally *tally) {
    __shared__ u32 piece, counted;
    u64 pieces = (labels.len + PIECE - 1) / PIECE;
    for (;;) {
        if (standard::rank() == 0) {
            piece = atomicAdd(&tally->taken, 1);
            counted = 0;
        }
        __syncthreads();
        if (piece >= pieces) break;
        u64 end = squall::least(labels.len, (piece + 1) * PIECE);
        u32 mine = 0;
        for (u64 row = piece * PIECE + standard::rank(); row < end; row += standard::team()) {
            i64 label = labels[row];
            if (label >= (i64)classes) atomicMax(&tally->wrong, ~row);
            mine += label >= 0;
        }
        atomicAdd(&counted, mine);
        __syncthreads();
        if (standard::rank() == 0) {
            atomicAdd(&tally->counted, (u64)counted);
            __threadfence();
            atomicAdd(&tally->done, 1);
        }
    }
    if (standard::rank() == 0) {
        while (((volatile Tally *)tally)->done < pieces) {}
        __threadfence();
    }
    __syncthreads();
}

// The loss of a row, by one thread; writes its gradient.
__device__ inline wide_t row_of_thread(const logits_t *logits, grad_t *grad, u64 classes, u64 label, wide_t counted) {
    wide_t most = -(wide_t)__int_as_float(0x7f800000), sum = 0;
    for (u64 c = 0; c < classes; ++c) most = greater(most, (wide_t)logits[c]);
    for (u64 c = 0; c < classes; ++c) sum += exponential((wide_t)logits[c] - most);
    for (u64 c = 0; c < classes; ++c)
        grad[c] = (grad_t)((exponential((wide_t)logits[c] - most) / sum - (wide_t)(c == label)) / counted);
    return logarithm(sum) - ((wide_t)logits[label] - most);
}

// The same, by all threads of a block. Each gets the loss.
__device__ inline wide_t row_of_block(const logits_t *logits, grad_t *grad, u64 classes, u64 label, wide_t counted, wide_t *lanes) {
    using namespace standard;
    for (u32 lane = rank(); lane < LANES; lane += team()) {
        lanes[lane] = -(wide_t)__int_as_float(0x7f800000);
        for (u64 c = lane; c < classes; c += LANES) lanes[lane] = greater(lanes[lane], (wide_t)logits[c]);
    }
    wide_t most = join(lanes, [](wide_t a, wide_t b) { return greater(a, b); });
    for (u32 lane = rank(); lane < LANES; lane += team()) {
        wide_t sum = 0;
        for (u64 c = lane; c < classes; c += LANES) sum += exponential((wide_t)logits[c] - most);
        lanes[lane] = sum;
    }
    wide_t sum = join(lanes, add<wide_t>);
    for (u64 c = rank(); c < classes; c += team())
        grad[c] = (grad_t)((exponential((wide_t)logits[c] - most) / sum - (wide_t)(c == label)) / counted);
    return logarithm(sum) - ((wide_t)logits[label] - most);
}

__device__ void softmax_cross_entropy(squall::Buffer<logits_t> logits, squall::Buffer<labels_t> labels,
                                      squall::Buffer<loss_t> loss, squall::Buffer<grad_t> grad, const squall::Launch &launch) {
    using namespace standard;
    __shared__ wide_t lanes[LANES];
    Tally *tally = (Tally *)launch.scratch;
    u64 rows = labels.len, classes = rows ? logits.len / rows : 0;
    bool few = classes <= FEW_CLASSES;
    Chunks chunks(rows, few ? LANES : 1);
    if (chunks.idle()) return;
    count(labels, classes, tally);
    u64 wrong = ((volatile Tally *)tally)->wrong, rows_counted = ((volatile Tally *)tally)->counted;
    wide_t counted = (wide_t)(rows_counted ? rows_counted : 1);

    for (u32 chunk = blockIdx.x; chunk < chunks.count && wrong == 0; chunk += chunks.blocks) {
        u64 begin = chunks.begin(chunk), end = chunks.end(chunk);
        wide_t sum = 0;
        for (u32 lane = rank(); few && lane < LANES; lane += team()) {
            lanes[lane] = 0;
            for (u64 row = begin + lane; row < end; row += LANES) {
                const logits_t *from = logits.data + row * classes;
                grad_t *to = grad.data + row * classes;
                i64 label = labels[row];
                if (label >= 0) lanes[lane] += row_of_thread(from, to, classes, label, counted);
                else for (u64 c = 0; c < classes; ++c) to[c] = (grad_t)(wide_t)0;
            }
        }
        if (few) sum = join(lanes, add<wide_t>);
        for (u64 row = begin; !few && row < end; ++row) {
            const logits_t *from = logits.data + row * classes;
            grad_t *to = grad.data + row * classes;
            i64 label = labels[row];
            if (label >= 0) sum += row_of_block(from, to, classes, label, counted, lanes);
            else for (u64 c = rank(); c < classes; c += team()) to[c] = (grad_t)(wide_t)0;
        }
        if (rank() == 0) tally->losses.sums[chunk] = sum;
    }

    if (!last(&tally->losses.finished, chunks.blocks)) return;
    wide_t sum = wrong ? 0 : sum_partials(&tally->losses, chunks, lanes);
    if (rank() != 0) return;
    if (wrong) launch.fail(0, ~wrong);
    else loss[0] = (loss_t)(sum / counted);
    tally->taken = tally->done = 0;
    tally->counted = tally->wrong = 0;
}
