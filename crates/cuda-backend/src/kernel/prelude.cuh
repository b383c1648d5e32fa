// What every kernel that squall compiles may use. It stands before the kernel's own text, after the types of its arguments.
// Nothing is included: the compiler's library alone has no headers.

typedef signed char i8;
typedef unsigned char u8;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

// Half precision and bfloat16 as storage: arithmetic is done in f32, as on the host.
struct alignas(2) f16 {
    unsigned short bits;
    f16() = default;
    __device__ explicit f16(f32 x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    __device__ operator f32() const {
        f32 x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
};

struct alignas(2) bf16 {
    unsigned short bits;
    bf16() = default;
    // To nearest, ties to even; a NaN stays one.
    __device__ explicit bf16(f32 x) {
        u32 u = __float_as_uint(x);
        bits = (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    }
    __device__ operator f32() const { return __uint_as_float((u32)bits << 16); }
};

namespace squall {

// The type in which a dtype's arithmetic is done: f32 for the half types, itself for all others.
template <class T> struct Wide { typedef T type; };
template <> struct Wide<f16> { typedef f32 type; };
template <> struct Wide<bf16> { typedef f32 type; };
template <class T> using wide = typename Wide<T>::type;

// A range of a buffer: its elements in row-major order.
template <class T> struct Buffer {
    T *data;
    u64 len;
    u64 axes;
    u64 shape[8];
    __device__ T &operator[](u64 i) const { return data[i]; }
};

// A number: a constant, or the element that a buffer holds when the kernel runs.
template <class T> struct Scalar {
    const T *at;
    T value;
    alignas(8) u32 given; // 0 when the argument is absent; then the number is 0
    __device__ T get() const { return at ? *at : value; }
};

// A list of whole numbers.
struct List {
    u64 len;
    i64 values[16];
    __device__ i64 operator[](u64 i) const { return values[i]; }
};

// The launch: the last argument of every kernel.
struct Launch {
    u64 threads[3];       // the threads of the grid on each axis, the surplus of the last block included
    volatile u64 *position; // where the stream's position is told: the runs that have ended, and below them the tasks of this one
    volatile u64 *failure;  // where a failure is told
    void *scratch;        // the task's own memory, as many bytes as its descriptor asks for; zero before the first launch
    u64 place;            // the position when this kernel begins
    u64 tell;             // how much of it is told: 0 all, 1 one run more than was told last, 2 the tasks alone

    // Says that the kernel cannot do what it was asked: the message `message` of its descriptor, with a number. The rank fails
    // once the stream has been waited for. Of several threads that call it, any one is heard.
    __device__ void fail(u32 message, u64 number) const { *failure = (u64)(message + 1) << 56 | (number & 0xffffffffffffffull); }

    // One thread of the first block and one of the last tell how far the stream is: stores to the GPU's own memory that nobody waits
    // for. All other blocks leave after one comparison.
    __device__ void begin() const {
        if (blockIdx.x == 0 && (threadIdx.x | threadIdx.y | threadIdx.z | blockIdx.y | blockIdx.z) == 0) {
            if (tell == 0) *position = place;
            else {
                *(volatile u32 *)position = (u32)place;
                if (tell == 1) atomicAdd((u32 *)position + 1, 1); // its result is not used: nobody waits for it either
            }
        }
    }
    __device__ void end() const {
        if (blockIdx.x == gridDim.x - 1 && (threadIdx.x | threadIdx.y | threadIdx.z) == 0 && blockIdx.y == gridDim.y - 1 &&
            blockIdx.z == gridDim.z - 1) *(volatile u32 *)position = (u32)place + 1;
    }
};

// This thread's place on the axes, and the threads of the launch on axis x: the stride of a kernel that loops.
__device__ inline u64 x() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline u64 y() { return (u64)blockIdx.y * blockDim.y + threadIdx.y; }
__device__ inline u64 z() { return (u64)blockIdx.z * blockDim.z + threadIdx.z; }
__device__ inline u64 stride() { return (u64)gridDim.x * blockDim.x; }

__device__ inline u64 least(u64 a, u64 b) { return a < b ? a : b; }

// Sixteen bytes of elements, the widest that one instruction loads or stores.
template <class T> struct alignas(16) Pack {
    static constexpr u32 lanes = 16 / sizeof(T);
    T lane[lanes];
};

template <class T> __device__ inline bool packed(const T *p) { return ((u64)p & 15) == 0; }
template <class T> __device__ inline Pack<T> load(const T *p, u64 pack) { return ((const Pack<T> *)p)[pack]; }
template <class T> __device__ inline void store(T *p, u64 pack, const Pack<T> &v) { ((Pack<T> *)p)[pack] = v; }

} // namespace squall
