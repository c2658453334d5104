# SPDX-License-Identifier: GPL-2.0
"""A small PyTorch training loop, with and without a CUDA graph, and one that keeps the GPU busy.
Prints what a step takes as JSON.

    train.py [STEPS]
"""

import json
import statistics
import sys
import time

import torch

import loop

steps = int(sys.argv[1] if len(sys.argv) > 1 else 100)
torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
data = torch.randn(256, 1024, device="cuda")


def step():
    """One step of training."""
    optimizer.zero_grad(set_to_none=False)
    loss = torch.nn.functional.mse_loss(model(data), data)
    loss.backward()
    optimizer.step()
    return loss


def timed(work):
    """Median time of a step, and the tenth part's that is shortest, microseconds."""
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return round(statistics.median(times) * 1e6, 1), round(
        statistics.quantiles(times, n=10)[0] * 1e6, 1
    )


side = torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        first = step()
torch.cuda.synchronize()
seen = {"first_loss": first.item()}
seen["step_us"], seen["short_step_us"] = timed(step)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = step()
seen["graph_step_us"], seen["short_graph_step_us"] = timed(graph.replay)
seen["last_loss"] = captured.item()


def busy():
    """The mean of steps that are longer than what the processor does for them, microseconds."""
    work, _ = loop.training()
    for _ in range(10):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        work()
    torch.cuda.synchronize()
    return round((time.perf_counter() - began) * 1e6 / steps, 1)


seen["busy_step_us"] = busy()
free, total = torch.cuda.mem_get_info()
seen.update(total=total, free=free)
try:
    torch.empty(total * 2, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    seen["out_of_memory"] = str(error).split("\n", maxsplit=1)[0][:200]
print(json.dumps(seen))
