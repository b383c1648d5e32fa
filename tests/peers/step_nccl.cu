// What `gpu_step` measures, written by hand on CUDA and NCCL: kernel -> all_reduce -> kernel on all GPUs of the machine.
//
//     nvcc -O3 -std=c++17 -arch=native step_nccl.cu -lnccl -o step_nccl
//     ./step_nccl [STEPS] [ELEMENTS,ELEMENTS,...]
//
// A row for each number of elements a rank; times of a step in us, medians of STEPS steps but where another figure is named:
//
//   thr-eager, thr-graph   a thread a GPU, which waits for its stream after every step: three launches, or one of a captured graph
//   one-eager, one-graph   one thread for all GPUs, the same
//   queued-graph           one thread, STEPS graphs a GPU queued without waiting in between: their mean
//   allreduce              the same of graphs with the all_reduce alone, and busbw-GB/s, its bus bandwidth
//
// Every way's result is compared with the right one, in all elements on all GPUs; a wrong one ends the program with status 1.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <nccl.h>

namespace {

constexpr int kWarmUp = 20;
constexpr unsigned kBlock = 256;

void require(cudaError_t result, const char *call) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(result));
    std::exit(1);
}

void require(ncclResult_t result, const char *call) {
    if (result == ncclSuccess) return;
    std::fprintf(stderr, "%s: %s\n", call, ncclGetErrorString(result));
    std::exit(1);
}

#define REQUIRE(call) require((call), #call)

// What element i is on a rank before the all_reduce: small whole numbers, whose sums are exact.
__host__ __device__ float own(size_t i, int rank) { return static_cast<float>(rank + 1 + static_cast<int>(i % 16)); }

__global__ void fill(float *data, size_t n, int rank) {
    const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] = own(i, rank);
}

__global__ void increment(float *data, size_t n) {
    const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] += 1.0f;
}

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

// One GPU and its part of the communicator.
struct Rank {
    int index = 0;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    float *data = nullptr;
    size_t elements = 0;

    void use() const { REQUIRE(cudaSetDevice(index)); }

    void launch_fill() const { fill<<<blocks(), kBlock, 0, stream>>>(data, elements, index); }

    void launch_increment() const { increment<<<blocks(), kBlock, 0, stream>>>(data, elements); }

    void reduce() const { REQUIRE(ncclAllReduce(data, data, elements, ncclFloat, ncclSum, comm, stream)); }

    void step() const {
        launch_fill();
        reduce();
        launch_increment();
        REQUIRE(cudaGetLastError());
    }

    void wait() const { REQUIRE(cudaStreamSynchronize(stream)); }

private:
    unsigned blocks() const { return static_cast<unsigned>((elements + kBlock - 1) / kBlock); }
};

using Graphs = std::vector<cudaGraphExec_t>;

// Records what `work` enqueues for each rank. A thread a rank: NCCL may wait for all ranks in it.
Graphs captured(const std::vector<Rank> &ranks, const std::function<void(const Rank &)> &work) {
    Graphs graphs(ranks.size());
    std::vector<std::thread> threads;
    for (const Rank &rank : ranks) {
        threads.emplace_back([&] {
            cudaGraph_t graph;
            rank.use();
            REQUIRE(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
            work(rank);
            REQUIRE(cudaStreamEndCapture(rank.stream, &graph));
            REQUIRE(cudaGraphInstantiate(&graphs[rank.index], graph, 0));
            REQUIRE(cudaGraphDestroy(graph));
        });
    }
    for (std::thread &thread : threads) thread.join();
    return graphs;
}

void destroy(const Graphs &graphs) {
    for (cudaGraphExec_t graph : graphs) REQUIRE(cudaGraphExecDestroy(graph));
}

// Steps by a thread a rank, which polls for the next step and waits for its stream; the time from the call of all to the end of the last.
double by_threads(const std::vector<Rank> &ranks, int steps, const std::function<void(const Rank &)> &step) {
    std::atomic<int> called{0}, busy{0};
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (const Rank &rank : ranks) {
        threads.emplace_back([&] {
            rank.use();
            for (int done = 0;; ++done) {
                while (called.load(std::memory_order_acquire) == done) {
                    if (over.load(std::memory_order_acquire)) return;
                }
                step(rank);
                rank.wait();
                busy.fetch_sub(1, std::memory_order_release);
            }
        });
    }
    std::vector<double> times;
    for (int i = 0; i < kWarmUp + steps; ++i) {
        busy.store(static_cast<int>(ranks.size()), std::memory_order_relaxed);
        const Clock::time_point start = Clock::now();
        called.fetch_add(1, std::memory_order_release);
        while (busy.load(std::memory_order_acquire) != 0) {
        }
        if (i >= kWarmUp) times.push_back(microseconds_since(start));
    }
    over.store(true, std::memory_order_release);
    for (std::thread &thread : threads) thread.join();
    return median(std::move(times));
}

void wait_for_all(const std::vector<Rank> &ranks) {
    for (const Rank &rank : ranks) {
        rank.use();
        rank.wait();
    }
}

// Steps of all ranks by this thread.
double by_one(const std::vector<Rank> &ranks, int steps, const std::function<void()> &step) {
    std::vector<double> times;
    for (int i = 0; i < kWarmUp + steps; ++i) {
        const Clock::time_point start = Clock::now();
        step();
        wait_for_all(ranks);
        if (i >= kWarmUp) times.push_back(microseconds_since(start));
    }
    return median(std::move(times));
}

void launch_all(const std::vector<Rank> &ranks, const Graphs &graphs) {
    for (const Rank &rank : ranks) {
        rank.use();
        REQUIRE(cudaGraphLaunch(graphs[rank.index], rank.stream));
    }
}

// The mean of steps that nothing waits for in between; the second of two batches.
double queued(const std::vector<Rank> &ranks, int steps, const Graphs &graphs) {
    double mean = 0;
    for (int batch = 0; batch < 2; ++batch) {
        const Clock::time_point start = Clock::now();
        for (int i = 0; i < steps; ++i) launch_all(ranks, graphs);
        wait_for_all(ranks);
        mean = microseconds_since(start) / steps;
    }
    return mean;
}

// Holds the data against a step's result, and overwrites them with NaN, so that a way that does nothing is found.
void check(const std::vector<Rank> &ranks, const char *way) {
    std::vector<float> found(ranks.front().elements);
    for (const Rank &rank : ranks) {
        const size_t bytes = found.size() * sizeof(float);
        rank.use();
        REQUIRE(cudaMemcpy(found.data(), rank.data, bytes, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < found.size(); ++i) {
            float wanted = 1.0f;
            for (const Rank &other : ranks) wanted += own(i, other.index);
            if (found[i] != wanted) {
                std::fprintf(stderr, "%s, %zu elements: element %zu of rank %d is %g, not %g\n", way, found.size(), i, rank.index,
                             found[i], wanted);
                std::exit(1);
            }
        }
        REQUIRE(cudaMemset(rank.data, 0xff, bytes));
        // The memset is on another stream than the steps.
        REQUIRE(cudaDeviceSynchronize());
    }
}

void measure(std::vector<Rank> &ranks, int steps, size_t elements) {
    for (Rank &rank : ranks) rank.elements = elements;

    const double thread_eager = by_threads(ranks, steps, [](const Rank &rank) { rank.step(); });
    check(ranks, "thr-eager");

    // NCCL has connected by now, which cannot be captured.
    const Graphs whole = captured(ranks, [](const Rank &rank) { rank.step(); });
    const Graphs reduces = captured(ranks, [](const Rank &rank) { rank.reduce(); });
    const double thread_graph =
        by_threads(ranks, steps, [&](const Rank &rank) { REQUIRE(cudaGraphLaunch(whole[rank.index], rank.stream)); });
    check(ranks, "thr-graph");

    const double one_eager = by_one(ranks, steps, [&] {
        for (const Rank &rank : ranks) {
            rank.use();
            rank.launch_fill();
        }
        REQUIRE(ncclGroupStart());
        for (const Rank &rank : ranks) rank.reduce();
        REQUIRE(ncclGroupEnd());
        for (const Rank &rank : ranks) {
            rank.use();
            rank.launch_increment();
        }
        REQUIRE(cudaGetLastError());
    });
    check(ranks, "one-eager");

    const double one_graph = by_one(ranks, steps, [&] { launch_all(ranks, whole); });
    check(ranks, "one-graph");

    const double queued_graph = queued(ranks, steps, whole);
    check(ranks, "queued-graph");

    // Zeros, whose sums stay finite.
    for (const Rank &rank : ranks) {
        rank.use();
        REQUIRE(cudaMemset(rank.data, 0, elements * sizeof(float)));
        REQUIRE(cudaDeviceSynchronize());
    }
    const double reduce = queued(ranks, steps, reduces);
    const double world = static_cast<double>(ranks.size());
    const double bytes = static_cast<double>(elements * sizeof(float));
    // Bytes a us are MB/s; the factor is that of nccl-tests.
    const double bus = bytes / reduce / 1e3 * 2 * (world - 1) / world;

    std::printf("%12zu %14.2f %14.2f %14.2f %14.2f %14.2f %14.2f %14.2f\n", elements, thread_eager, thread_graph, one_eager, one_graph,
                queued_graph, reduce, bus);
    std::fflush(stdout);
    destroy(whole);
    destroy(reduces);
}

std::vector<size_t> numbers(const std::string &list) {
    std::vector<size_t> numbers;
    for (size_t begin = 0; begin <= list.size();) {
        const size_t end = std::min(list.find(',', begin), list.size());
        const unsigned long long number = std::strtoull(list.substr(begin, end - begin).c_str(), nullptr, 10);
        if (number == 0) {
            std::fprintf(stderr, "`%s` is no list of numbers of elements\n", list.c_str());
            std::exit(2);
        }
        numbers.push_back(number);
        begin = end + 1;
    }
    return numbers;
}

}  // namespace

int main(int argc, char **argv) {
    const int steps = argc > 1 ? std::atoi(argv[1]) : 500;
    const std::vector<size_t> sizes = numbers(argc > 2 ? argv[2] : "1024,65536,1048576,16777216,67108864");
    int gpus = 0, version = 0;
    REQUIRE(cudaGetDeviceCount(&gpus));
    if (steps < 1 || gpus < 1) {
        std::fprintf(stderr, "%d steps on %d GPUs cannot be measured\n", steps, gpus);
        return 2;
    }
    REQUIRE(ncclGetVersion(&version));

    std::vector<ncclComm_t> comms(gpus);
    REQUIRE(ncclCommInitAll(comms.data(), gpus, nullptr));
    std::vector<Rank> ranks(gpus);
    const size_t most = *std::max_element(sizes.begin(), sizes.end());
    for (int index = 0; index < gpus; ++index) {
        Rank &rank = ranks[index];
        rank.index = index;
        rank.comm = comms[index];
        rank.use();
        REQUIRE(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
        REQUIRE(cudaMalloc(&rank.data, most * sizeof(float)));
    }

    std::printf("# step_nccl: NCCL %d.%d.%d, %d GPUs, %d steps, medians in us\n", version / 10000, version / 100 % 100, version % 100, gpus,
                steps);
    std::printf("%12s %14s %14s %14s %14s %14s %14s %14s\n", "elements", "thr-eager", "thr-graph", "one-eager", "one-graph", "queued-graph",
                "allreduce", "busbw-GB/s");
    for (size_t elements : sizes) measure(ranks, steps, elements);

    for (Rank &rank : ranks) {
        rank.use();
        REQUIRE(ncclCommDestroy(rank.comm));
        REQUIRE(cudaFree(rank.data));
        REQUIRE(cudaStreamDestroy(rank.stream));
    }
    return 0;
}
