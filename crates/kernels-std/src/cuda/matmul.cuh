// Matrix products. Every element adds its terms in order, from zero on, whichever thread makes it.

namespace standard {

// A factor as lanes of `depth` terms: a lane is a row of the first factor or a column of the second. A lane's terms lie side by
// side if `deep`, and otherwise the lanes do.
template <class T, bool deep> struct Factor {
    const T *data;
    u64 lanes, depth;
    __device__ sum_type<T> at(u64 lane, u64 term) const {
        return (sum_type<T>)data[deep ? lane * depth + term : term * lanes + lane];
    }
};

__device__ inline f32 add_product(f32 sum, f32 x, f32 y) { return fmaf(x, y, sum); }
__device__ inline f64 add_product(f64 sum, f64 x, f64 y) { return fma(x, y, sum); }
template <class S> __device__ inline S add_product(S sum, S x, S y) { return sum + x * y; }

// The terms of all lanes of a tile that lie in shared memory at a time; the most packs of lanes, and one more against conflicts
// of the memory's banks.
constexpr u32 DEPTH = 16, WIDEST = 32;
template <class S> using Slice = squall::Pack<S>[DEPTH][WIDEST + 1];

// Tiles of `c` for teams of `SIDE` × `SIDE` threads, each of which makes `PACKS` × `PACKS` blocks of `pack` × `pack` elements.
template <u32 SIDE, u32 PACKS, class T, bool deep_a, bool deep_b> struct Tiles {
    typedef sum_type<T> S;
    static constexpr u32 team = SIDE * SIDE, pack = squall::Pack<S>::lanes, width = SIDE * PACKS * pack, each = PACKS * pack;

    Factor<T, deep_a> a;
    Factor<T, deep_b> b;
    T *c;

    __device__ u64 count() const { return (a.lanes + width - 1) / width * ((b.lanes + width - 1) / width); }

    // Brings `DEPTH` terms of `width` lanes to shared memory; zeros stand for what the factor has not.
    template <bool deep> static __device__ void bring(Slice<S> &slice, const Factor<T, deep> &from, u64 lane, u64 term) {
        constexpr u32 lanes_apart = deep ? team / DEPTH : 0, terms_apart = deep ? 0 : team / width;
        u32 x = deep ? rank() / DEPTH : rank() % width, y = deep ? rank() % DEPTH : rank() / width;
        u64 lanes_left = from.lanes - squall::least(from.lanes, lane + x);
        u64 terms_left = from.depth - squall::least(from.depth, term + y);
        u64 at = deep ? (lane + x) * from.depth + term + y : (term + y) * from.lanes + lane + x;
        u64 apart = deep ? lanes_apart * from.depth : terms_apart * from.lanes;
#pragma unroll
        for (u32 k = 0; k < width * DEPTH / team; ++k, at += apart) {
            bool inside = k * lanes_apart < lanes_left && k * terms_apart < terms_left;
            ((S *)slice[y + k * terms_apart])[x + k * lanes_apart] = inside ? (S)from.data[at] : 0;
        }
    }

    // This thread's lanes of one term: packs at a distance, so that neighbours read neighbouring packs.
    static __device__ void take(S (&lanes)[each], const squall::Pack<S> *packs, u32 place) {
#pragma unroll
        for (u32 p = 0; p < PACKS; ++p) {
            squall::Pack<S> taken = packs[p * SIDE + place];
#pragma unroll
            for (u32 i = 0; i < pack; ++i) lanes[p * pack + i] = taken.lane[i];
        }
    }

    // Where lane `i` of those is in the tile.
    static __device__ u32 lane(u32 i, u32 place) { return (i / pack * SIDE + place) * pack + i % pack; }

    // Makes one tile. Called by all threads of the block; those beyond the team wait only.
    __device__ void make(u64 tile, Slice<S> (&slices)[2]) const {
        u64 across = (b.lanes + width - 1) / width, row = tile / across * width, col = tile % across * width;
        u32 x = rank() % SIDE, y = rank() / SIDE;
        bool works = rank() < team;
        S sums[each][each] = {};
        for (u64 term = 0; term < a.depth; term += DEPTH) {
            __syncthreads();
            if (works) {
                bring(slices[0], a, row, term);
                bring(slices[1], b, col, term);
            }
            __syncthreads();
            if (!works) continue;
#pragma unroll 4
            for (u32 d = 0; d < DEPTH; ++d) {
                S down[each], right[each];
                take(down, slices[0][d], y);
                take(right, slices[1][d], x);
#pragma unroll
                for (u32 i = 0; i < each; ++i)
#pragma unroll
                    for (u32 j = 0; j < each; ++j) sums[i][j] = add_product(sums[i][j], down[i], right[j]);
            }
        }
        if (!works) return;
#pragma unroll
        for (u32 i = 0; i < each; ++i)
#pragma unroll
            for (u32 j = 0; j < each; ++j) {
                u64 at_row = row + lane(i, y), at_col = col + lane(j, x);
                if (at_row < a.lanes && at_col < b.lanes) c[at_row * b.lanes + at_col] = (T)sums[i][j];
            }
    }

    // Makes all tiles, each in one block of the first layer.
    __device__ void make_all(Slice<S> (&slices)[2]) const {
        u64 block = (u64)blockIdx.y * gridDim.x + blockIdx.x, blocks = (u64)gridDim.x * gridDim.y;
        for (u64 tile = block; tile < count(); tile += blocks) make(tile, slices);
    }
};

// The element in this thread's column and row.
template <class T, bool deep_a, bool deep_b> __device__ inline void make_one(Factor<T, deep_a> a, Factor<T, deep_b> b, T *c) {
    u64 row = squall::y(), col = squall::x();
    if (row >= a.lanes || col >= b.lanes || squall::z() != 0) return;
    sum_type<T> sum = 0;
    for (u64 term = 0; term < a.depth; ++term) sum = add_product(sum, a.at(row, term), b.at(col, term));
    c[row * b.lanes + col] = (T)sum;
}

// Tiles where the grid covers the product and its blocks are large enough; then a block may make any of them. Else an element a
// thread. Large tiles need fewer loads, small ones leave no processor idle. In the largest blocks a thread has a quarter of the
// registers, and four make what else is one's.
template <class T, bool deep_a, bool deep_b>
__device__ inline void product(Factor<T, deep_a> a, Factor<T, deep_b> b, T *c, const squall::Launch &launch) {
    constexpr u64 ENOUGH = 96;
    constexpr bool many = squall::most_threads == 1024;
    __shared__ Slice<sum_type<T>> slices[2];
    if (team() < 256 || launch.threads[0] < b.lanes || launch.threads[1] < a.lanes) return make_one(a, b, c);
    if (blockIdx.z != 0) return;
    Tiles<many ? 32 : 16, many ? 1 : 2, T, deep_a, deep_b> large = {a, b, c};
    if (large.count() >= ENOUGH && team() >= large.team) return large.make_all(slices);
    Tiles<16, 1, T, deep_a, deep_b>{a, b, c}.make_all(slices);
}

} // namespace standard
