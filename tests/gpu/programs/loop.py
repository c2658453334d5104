# SPDX-License-Identifier: GPL-2.0
"""PyTorch loops that compete for the GPU: training steps of which many are queued, or inference
that waits for each answer. Counts the steps in a span of time, as burn.py counts kernels.

    loop.py train|infer SECONDS
"""

import sys
import time

import torch

import cuda
from count import Count

QUEUED = 4


def network():
    """A few layers of matrix products, large enough to keep a GPU busy."""
    return torch.nn.Sequential(
        torch.nn.Linear(2048, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 2048)
    ).cuda()


def training():
    """A step of training, and the longest that is in the queue."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(2048, 2048, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        torch.nn.functional.mse_loss(model(data), data).backward()
        optimizer.step()

    return step, QUEUED


def inference():
    """An answer to one request."""
    model = network().eval()
    data = torch.randn(64, 2048, device="cuda")

    def step():
        with torch.inference_mode():
            model(data)

    return step, 1


def main():
    """Runs."""
    seconds = float(sys.argv[2])
    torch.manual_seed(1)
    step, depth = {"train": training, "infer": inference}[sys.argv[1]]()
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    ended = [torch.cuda.Event() for _ in range(depth)]
    print("ready", flush=True)
    count = Count(seconds, cuda.say)
    launched = 0
    while True:
        slot = ended[launched % depth]
        if launched >= depth:
            waited = time.monotonic()
            slot.synchronize()
            if not count.goes_on(waited, time.monotonic()):
                break
        step()
        slot.record()
        launched += 1
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
