"""What `gpu_step` measures, as it is written with PyTorch: kernel -> all_reduce -> kernel, a process a GPU.

    python3 -m torch.distributed.run --standalone --nproc-per-node 2 step_torch.py [STEPS] [ELEMENTS,ELEMENTS,...]

A row for each number of elements a rank: the median time of STEPS steps in us, each waited for, eager and replayed from a CUDA graph. A wrong
result in any element ends the program with an error.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

WARM_UP = 20
SIZES = "1024,65536,1048576,16777216,67108864"


def median_time(step, steps):
    """The median of `steps` times in us, after some that do not count."""
    dist.barrier()
    torch.cuda.synchronize()
    times = []
    for _ in range(WARM_UP + steps):
        start = time.perf_counter_ns()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(times[WARM_UP:])


def captured(step):
    """The step as a graph. It runs once on a stream aside before, as capturing asks for."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        step()
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def measure(rank, world, steps, elements):
    """The times of a step, eager and as a graph."""
    # Small whole numbers, whose sums are exact.
    base = (torch.arange(elements, device="cuda") % 16).to(torch.float32)
    data = torch.empty_like(base)
    wanted = base * world + (world * (world + 1) // 2 + 1)

    def step():
        torch.add(base, rank + 1, out=data)
        dist.all_reduce(data)
        data.add_(1)

    def checked(way, run):
        data.fill_(float("nan"))
        took = median_time(run, steps)
        if not torch.equal(data, wanted):
            raise SystemExit(f"{way}, {elements} elements: rank {rank} has a wrong result")
        return took

    eager = checked("eager", step)
    graph = captured(step)
    replayed = checked("graph", graph.replay)
    # Before the tensors that it uses.
    graph.reset()
    return eager, replayed


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    sizes = [int(size) for size in (sys.argv[2] if len(sys.argv) > 2 else SIZES).split(",")]
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        nccl = ".".join(str(part) for part in torch.cuda.nccl.version())
        print(f"# step_torch: PyTorch {torch.__version__}, NCCL {nccl}, {world} ranks, {steps} steps, medians in us")
        print(f"{'elements':>12} {'eager':>14} {'graph':>14}", flush=True)
    for elements in sizes:
        eager, graph = measure(rank, world, steps, elements)
        if rank == 0:
            print(f"{elements:>12} {eager:>14.2f} {graph:>14.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
