"""What the examples give, worked out by numpy.

    python3 tests/reference/workloads.py           writes the expected arrays to tests/reference/expected
    python3 tests/reference/workloads.py --check   compares those that are there with what numpy gives here
    python3 tests/reference/workloads.py --data    writes the examples' own data again

The tests run every example and compare it with these arrays (`tests/all/workloads.rs`). Nothing here knows of squall: each
function is the whole problem on one machine, or, where the number of ranks changes what is computed, a loop over ranks.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
EXPECTED = Path(__file__).resolve().parent / "expected"
WORLDS = [1, 2, 3, 4, 7]
f32 = np.float32


def fill(shape, element):
    """An array by the index of each element in row-major order."""
    count = int(np.prod(shape))
    return np.array([element(i) for i in range(count)]).astype(f32).reshape(shape)


def shares(n, world):
    """How `share` and `offset` deal n to the ranks: the first n % world get one more."""
    sizes = [n // world + (1 if rank < n % world else 0) for rank in range(world)]
    return [(sum(sizes[:rank]), sum(sizes[: rank + 1])) for rank in range(world)]


# Tensor parallelism: the whole network at once.


def mlp():
    tokens = np.load(EXAMPLES / "tensor-parallel/data/tokens.npy")
    w1, w2 = mlp_weights()
    return {"mlp": np.maximum(tokens @ w1.T, 0) @ w2.T}


def mlp_weights(d=24, h=40):
    w1 = fill((h, d), lambda i: (i * 37 % 101 - 50) / 200)
    w2 = fill((d, h), lambda i: (i * 53 % 97 - 48) / 200)
    return w1, w2


# Pipeline parallelism: a stack of as many linear layers as ranks, trained on all rows at once.


def pipeline(micro=4, rows=6, d=8, lr=0.01, steps=10):
    x0 = fill((micro * rows, d), lambda i: (i * 37 % 101 - 50) / 50)
    target = fill((micro * rows, d), lambda i: (i * 53 % 97 - 48) / 48)
    results = {}
    for world in WORLDS:
        layers = [
            fill((d, d), lambda i, r=rank: (1 if i % (d + 1) == 0 else 0) + ((i * 29 + r) % 83 - 41) / 400)
            for rank in range(world)
        ]
        for _ in range(steps):
            inputs = [x0]
            for w in layers:
                inputs.append(inputs[-1] @ w)
            grad = inputs.pop() - target
            for rank in reversed(range(world)):
                w_grad = inputs[rank].T @ grad
                grad = grad @ layers[rank].T
                layers[rank] = layers[rank] - f32(lr) * w_grad
        results[f"pipeline-{world}"] = np.stack(layers)
    return results


# Heat: one plate.


def heat(n, steps, k=f32(0.25)):
    u = np.zeros((n + 2, n + 2), f32)
    u[0] = 1
    for _ in range(steps):
        neighbours = (u[1:-1, :-2] + u[1:-1, 2:]) + (u[:-2, 1:-1] + u[2:, 1:-1])
        u[1:-1, 1:-1] += k * (neighbours - 4 * u[1:-1, 1:-1])
    return u


def plates():
    return {"heat": heat(128, 200)[1:-1], "heat-grid": heat(48, 301)[1:-1, 1:-1]}


# A mixture of experts: what every token comes back as.

ROUTES = np.array(
    [
        [3, 5, 1, 0, 2, 4, 1],
        [2, 0, 2, 2, 1, 0, 3],
        [0, 0, 0, 9, 0, 1, 0],
        [1, 1, 1, 1, 1, 1, 1],
        [0, 4, 0, 2, 0, 0, 5],
        [6, 0, 1, 0, 3, 2, 0],
        [0, 1, 2, 3, 0, 1, 2],
    ]
)


def experts(d=16):
    results = {}
    for world in WORLDS:
        back = []
        for rank in range(world):
            routes = ROUTES[rank, :world]
            tokens = rank * 1000 + np.arange(routes.sum() * d, dtype=f32).reshape(-1, d)
            back.append(tokens * np.repeat(np.arange(1, world + 1, dtype=f32), routes)[:, None])
        results[f"experts-{world}"] = np.concatenate(back)
    return results


# Digits: softmax regression, where a step's gradient is the mean of the ranks' means.


def gradient(w, b, x, labels):
    """The loss, and its gradients at the weights and the bias, over the rows whose label is not negative."""
    counted = labels >= 0
    x, labels = x[counted], labels[counted]
    if len(labels) == 0:
        return f32(0), np.zeros_like(w), np.zeros_like(b)
    scores = x @ w + b
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    p = scores / scores.sum(axis=1, keepdims=True)
    loss = -np.log(p[np.arange(len(labels)), labels]).mean()
    p[np.arange(len(labels)), labels] -= 1
    p /= f32(len(labels))
    return loss, x.T @ p, p.sum(axis=0)


def train(world, batches, steps, lr=f32(0.5)):
    """`batches(rank, step)` gives a rank's rows and labels."""
    w, b = np.zeros((64, 10), f32), np.zeros(10, f32)
    for step in range(steps):
        grads = [gradient(w, b, *batches(rank, step))[1:] for rank in range(world)]
        w = w - lr * np.mean([g[0] for g in grads], axis=0, dtype=f32)
        b = b - lr * np.mean([g[1] for g in grads], axis=0, dtype=f32)
    return w, b


def digits():
    x = np.load(EXAMPLES / "digits/data/digits-train-x.npy")
    y = np.load(EXAMPLES / "digits/data/digits-train-y.npy")
    results = {}
    for world in WORLDS:
        parts = shares(len(x), world)

        def wrapping(rank, step, rows=40):
            begin, end = parts[rank]
            taken = begin + (step * rows + np.arange(rows)) % (end - begin)
            return x[taken], y[taken]

        w, b = train(world, wrapping, 60)
        results[f"digits-{world}"] = np.concatenate([w.ravel(), b])

        def padded(rank, step, rows=37):
            begin, end = parts[rank]
            first = begin + step * rows % (-(-(end - begin) // rows) * rows)
            taken = np.arange(first, min(first + rows, end))
            return x[taken], y[taken]

        steps = -(-max(end - begin for begin, end in parts) // 37)
        w, b = train(world, lambda rank, step: padded(rank, step), 3 * steps)
        results[f"digits-epochs-{world}"] = np.concatenate([w.ravel(), b])
    return results


# Conjugate gradients: the solution.


def cg():
    a = np.load(EXAMPLES / "conjugate-gradient/data/a.npy")
    b = np.load(EXAMPLES / "conjugate-gradient/data/b.npy")
    return {"cg": np.linalg.solve(a, b)}


# A distributed transpose.


def transposes(rows=3):
    return {
        f"transpose-{world}": np.arange((rows * world) ** 2, dtype=np.int32).reshape(rows * world, -1).T
        for world in WORLDS
    }


def data():
    """The examples' own data, without a random generator, so that it is the same everywhere."""
    folder = EXAMPLES / "tensor-parallel/data"
    np.save(folder / "tokens.npy", fill((20, 24), lambda i: (i * 29 % 83 - 41) / 41))
    w1, w2 = mlp_weights()
    safetensors(folder / "mlp.safetensors", {"fc1.weight": w1, "fc2.weight": w2})
    folder = EXAMPLES / "conjugate-gradient/data"
    n = 60
    half = np.array([[((i * 37 + j * 53) % 101 - 50) / 50 for j in range(n)] for i in range(n)])
    np.save(folder / "a.npy", half @ half.T / n + np.eye(n))
    np.save(folder / "b.npy", np.array([(i * 29 % 83 - 41) / 41 for i in range(n)]))


def safetensors(path, tensors):
    header, at, body = {}, 0, b""
    for name, array in tensors.items():
        bytes_ = array.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + len(bytes_)]}
        at, body = at + len(bytes_), body + bytes_
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def main():
    if "--data" in sys.argv:
        return data()
    results = {}
    for part in (mlp, pipeline, plates, experts, digits, cg, transposes):
        results.update(part())
    EXPECTED.mkdir(exist_ok=True)
    for name, array in results.items():
        path = EXPECTED / f"{name}.npy"
        if "--check" not in sys.argv:
            np.save(path, np.ascontiguousarray(array))
            continue
        found = np.load(path)
        assert found.shape == array.shape and found.dtype == array.dtype, name
        assert np.allclose(found, array, rtol=1e-5, atol=1e-6), f"{name} differs by {abs(found - array).max()}"
    known = {f"{name}.npy" for name in results}
    extra = {path.name for path in EXPECTED.iterdir()} - known
    assert not extra, f"nothing gives {sorted(extra)}"


main()
