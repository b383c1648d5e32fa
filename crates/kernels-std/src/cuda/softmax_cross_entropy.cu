typedef squall::wide<logits_t> wide_t;

// The logits that a thread can load at once.
constexpr u32 PACK = squall::Pack<logits_t>::lanes;
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
    typedef squall::Pack<labels_t> Pack;
    __shared__ u32 piece, counted;
    u64 pieces = (labels.len + PIECE - 1) / PIECE;
    for (;;) {
        if (standard::rank() == 0) {
            piece = atomicAdd(&tally->taken, 1);
            counted = 0;
        }
        __syncthreads();
        if (piece >= pieces) break;
        u64 begin = piece * PIECE, end = squall::least(labels.len, begin + PIECE);
        u64 packs = squall::packed(labels.data) ? (end - begin) / Pack::lanes : 0;
        u32 mine = 0;
        auto look = [&](u64 row, i64 label) {
            if (label >= (i64)classes) atomicMax(&tally->wrong, ~row);
            mine += label >= 0;
        };
        for (u64 i = standard::rank(); i < packs; i += standard::team()) {
            Pack pack = squall::load(labels.data + begin, i);
#pragma unroll
            for (u32 lane = 0; lane < Pack::lanes; ++lane) look(begin + i * Pack::lanes + lane, pack.lane[lane]);
        }
        for (u64 row = begin + packs * Pack::lanes + standard::rank(); row < end; row += standard::team()) look(row, labels[row]);
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

// An element of the gradient.
__device__ inline grad_t gradient(wide_t x, wide_t most, wide_t sum, bool is_label, wide_t counted) {
    return (grad_t)((exponential(x - most) / sum - (wide_t)is_label) / counted);
}

// The loss of a row, by one thread; writes its gradient. Loads and stores `n` classes at a time.
template <u32 n>
__device__ inline wide_t row_of_thread(const logits_t *logits, grad_t *grad, u64 classes, u64 label, wide_t counted) {
    typedef standard::Lanes<logits_t, n> Lanes;
    wide_t most = -(wide_t)__int_as_float(0x7f800000), sum = 0;
#pragma unroll 4
    for (u64 c = 0; c < classes; c += n) {
        Lanes x = *(const Lanes *)(logits + c);
#pragma unroll
        for (u32 lane = 0; lane < n; ++lane) most = greater(most, (wide_t)x.lane[lane]);
    }
    // From here on the row is in the cache.
    for (u64 c = 0; c < classes; c += n) {
        Lanes x = *(const Lanes *)(logits + c);
#pragma unroll
        for (u32 lane = 0; lane < n; ++lane) sum += exponential((wide_t)x.lane[lane] - most);
    }
    for (u64 c = 0; c < classes; c += n) {
        Lanes x = *(const Lanes *)(logits + c);
        standard::Lanes<grad_t, n> out;
#pragma unroll
        for (u32 lane = 0; lane < n; ++lane) out.lane[lane] = gradient((wide_t)x.lane[lane], most, sum, c + lane == label, counted);
        *(standard::Lanes<grad_t, n> *)(grad + c) = out;
    }
    return logarithm(sum) - ((wide_t)logits[label] - most);
}

// The losses of every 256th row from `row` on, by one thread. As many classes at a time as all rows allow: threads side by side
// are rows apart, so that an access of a warp touches as many lines of the cache as it has threads, however narrow it is.
template <u32 n>
__device__ inline wide_t rows_of_thread(u64 row, u64 end, squall::Buffer<logits_t> logits, squall::Buffer<labels_t> labels,
                                        squall::Buffer<grad_t> grad, u64 classes, wide_t counted) {
    if constexpr (n > 1) {
        bool fits = (classes % n | standard::lead<n>(logits.data) | standard::lead<n>(grad.data)) == 0;
        if (!fits) return rows_of_thread<n / 2>(row, end, logits, labels, grad, classes, counted);
    }
    wide_t sum = 0;
    for (; row < end; row += standard::LANES) {
        grad_t *to = grad.data + row * classes;
        i64 label = labels[row];
        if (label >= 0) sum += row_of_thread<n>(logits.data + row * classes, to, classes, label, counted);
        else for (u64 c = 0; c < classes; c += n) *(standard::Lanes<grad_t, n> *)(to + c) = {};
    }
    return sum;
}

// The greatest of the logits that are a lane's, in no order: sixteen bytes at a time, but for the row's ends.
__device__ inline wide_t most_of_lane(const logits_t *logits, u64 classes, u32 lane) {
    u64 before = squall::least(standard::lead<PACK>(logits), classes), packs = (classes - before) / PACK;
    wide_t most = -(wide_t)__int_as_float(0x7f800000);
#pragma unroll 4
    for (u64 i = lane; i < packs; i += standard::LANES) {
        squall::Pack<logits_t> x = squall::load(logits + before, i);
#pragma unroll
        for (u32 k = 0; k < PACK; ++k) most = greater(most, (wide_t)x.lane[k]);
    }
    for (u64 i = lane; i < classes - packs * PACK; i += standard::LANES)
        most = greater(most, (wide_t)logits[i < before ? i : i + packs * PACK]);
    return most;
}

// `grad[c] = f(c, logits[c])` for a row, by all threads of a block. Sixteen bytes at a time where both ranges lie alike, but for
// the row's ends.
template <class F> __device__ inline void each_of_block(u64 classes, F f, grad_t *grad, const logits_t *logits) {
    u64 before = squall::least(standard::lead<PACK>(grad), classes);
    u64 packs = standard::lead<PACK>(logits) == standard::lead<PACK>(grad) ? (classes - before) / PACK : 0;
    for (u64 i = standard::rank(); i < packs; i += standard::team()) {
        squall::Pack<logits_t> x = squall::load(logits + before, i);
        squall::Pack<grad_t> out;
#pragma unroll
        for (u32 k = 0; k < PACK; ++k) out.lane[k] = f(before + i * PACK + k, (wide_t)x.lane[k]);
        squall::store(grad + before, i, out);
    }
    for (u64 i = standard::rank(); i < classes - packs * PACK; i += standard::team()) {
        u64 c = i < before ? i : i + packs * PACK;
        grad[c] = f(c, (wide_t)logits[c]);
    }
}

// The loss of a row, by all threads of a block, each of which gets it; writes its gradient.
__device__ inline wide_t row_of_block(const logits_t *logits, grad_t *grad, u64 classes, u64 label, wide_t counted, wide_t *lanes) {
    using namespace standard;
    for (u32 lane = rank(); lane < LANES; lane += team()) lanes[lane] = most_of_lane(logits, classes, lane);
    wide_t most = join(lanes, [](wide_t a, wide_t b) { return greater(a, b); });
    // A lane's terms are 256 apart, so that a pack would span lanes: one by one, and from the cache.
    for (u32 lane = rank(); lane < LANES; lane += team()) {
        wide_t sum = 0;
#pragma unroll 4
        for (u64 c = lane; c < classes; c += LANES) sum += exponential((wide_t)logits[c] - most);
        lanes[lane] = sum;
    }
    wide_t sum = join(lanes, add<wide_t>);
    each_of_block(classes, [=](u64 c, wide_t x) { return gradient(x, most, sum, c == label, counted); }, grad, logits);
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
        for (u32 lane = rank(); few && lane < LANES; lane += team())
            lanes[lane] = rows_of_thread<PACK>(begin + lane, end, logits, labels, grad, classes, counted);
        if (few) sum = join(lanes, add<wide_t>);
        for (u64 row = begin; !few && row < end; ++row) {
            const logits_t *from = logits.data + row * classes;
            grad_t *to = grad.data + row * classes;
            i64 label = labels[row];
            if (label >= 0) sum += row_of_block(from, to, classes, label, counted, lanes);
            else each_of_block(classes, [](u64, wide_t) { return (grad_t)(wide_t)0; }, to, from);
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
