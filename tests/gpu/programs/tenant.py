# SPDX-License-Identifier: GPL-2.0
"""A tenant of a shared GPU that is like one of production: what it does in a span of time, and how
long what it waits for takes, as JSON. Says "ready" and counts from the moment that the first line
of its standard input says, as burn.py does.

    tenant.py KIND SECONDS [TOKEN_MS]

KIND: `llm`, decoding from a CUDA graph, which waits for each token; `serve@LOAD`, requests of 16
such tokens that come at random and want LOAD of the GPU, if a token takes TOKEN_MS; `train`,
training steps of a ResNet-50 with pictures of which the processor launches each kernel; `hpc`,
products of large fp32 matrices.
"""

import random
import sys
import time

import torch

import cuda
from count import Count, line

TOKENS = 16
# Of an H200, alone.
TOKEN_MS = 1.06
# Requests come before the span as well; those of the span are the same in every run.
SEED_BEFORE, SEED = 3, 7


class Decoder(torch.nn.Module):
    """A layer of a transformer that makes one token for each of a few sequences."""

    WIDTH, HEADS, SEQUENCES, CONTEXT = 2048, 16, 8, 512

    def __init__(self):
        super().__init__()
        like = {"device": "cuda", "dtype": torch.bfloat16}
        width = self.WIDTH
        self.projected = torch.nn.Linear(width, 3 * width, bias=False, **like)
        self.output = torch.nn.Linear(width, width, bias=False, **like)
        self.wide = torch.nn.Linear(width, 4 * width, bias=False, **like)
        self.narrow = torch.nn.Linear(4 * width, width, bias=False, **like)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width, **like) for _ in range(2))
        seen = (self.SEQUENCES, self.HEADS, self.CONTEXT, width // self.HEADS)
        self.keys, self.values = torch.randn(seen, **like), torch.randn(seen, **like)

    def forward(self, x):
        """The layer's output for the newest token of each sequence."""
        query = self.projected(self.norms[0](x)).chunk(3, -1)[0]
        query = query.view(self.SEQUENCES, self.HEADS, 1, -1)
        seen = torch.nn.functional.scaled_dot_product_attention(query, self.keys, self.values)
        x = x + self.output(seen.reshape(self.SEQUENCES, self.WIDTH))
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.norms[1](x))))


def decoding():
    """A token for each sequence, and how many are queued."""
    layers = torch.nn.Sequential(*(Decoder() for _ in range(16)))
    x = torch.randn(Decoder.SEQUENCES, Decoder.WIDTH, device="cuda", dtype=torch.bfloat16)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        # Things that are made once are not part of the graph.
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                layers(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            layers(x)
    return graph.replay, 1


def training():
    """A step of training, and how many are queued."""
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    pictures = torch.randn(32, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (32,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()

    return step, 3


def products():
    """A product, and how many are queued."""
    a, b, c = (torch.randn(8192, 8192, device="cuda") for _ in range(3))
    return (lambda: torch.mm(a, b, out=c)), 8


def waits_ms(seconds):
    """Median, 95 %, 99 % and the longest of these."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    at = (min(len(ordered) - 1, int(part * len(ordered))) for part in (0.5, 0.95, 0.99, 1.0))
    return [round(ordered[place] * 1e3, 3) for place in at]


def go_on(step, depth, seconds):
    """Always has work: steps, `depth` of them queued."""
    took = []

    def say(**figures):
        cuda.say(waits_ms=waits_ms(took), **figures)

    ended = [torch.cuda.Event() for _ in range(depth)]
    count = Count(seconds, say)
    launched, last = 0, time.monotonic()
    while True:
        slot = ended[launched % depth]
        if launched >= depth:
            slot.synchronize()
            now = time.monotonic()
            if count.begins is not None and last >= count.begins and not count.is_said:
                took.append(now - last)
            if not count.goes_on(last, now):
                break
            last = now
        step()
        slot.record()
        launched += 1


def at_random(begins, mean_s, chances):
    """When requests come from a moment on."""
    while True:
        begins += chances.expovariate(1 / mean_s)
        yield begins


def as_many(begins, seconds, mean_s):
    """The same, with exactly as many in the span as there are on average."""
    chances = random.Random(SEED)
    count = round(seconds / mean_s)
    yield from sorted(begins + chances.uniform(0, seconds) for _ in range(count))
    yield from at_random(begins + seconds, mean_s, chances)


def serve(step, mean_s, seconds):
    """Requests come whether or not those before were answered, and are answered in their order.
    The span begins with none left to answer."""
    begins, is_said = None, False
    took, first, ended = [], [], 0.0
    coming = at_random(time.monotonic(), mean_s, random.Random(SEED_BEFORE))
    arrival = next(coming)
    while True:
        said = line() if begins is None or is_said else None
        if said is not None and is_said:
            return
        if said is not None:
            begins = float(said) if said else time.monotonic()
            coming = as_many(begins, seconds, mean_s)
            arrival = next(coming)
        counts = begins is not None and not is_said
        if counts and arrival >= begins + seconds:
            cuda.say(
                kernels=len(took) * TOKENS,
                seconds=seconds,
                rate=len(took) / max(ended - begins, seconds),
                longest_wait_ms=max(took, default=0.0) * 1e3,
                waits_ms=waits_ms(took),
                ttft_ms=waits_ms(first),
            )
            is_said = True
            continue
        if time.monotonic() < arrival:
            time.sleep(min(max(arrival - time.monotonic(), 0.0), 5e-4))
            continue
        for token in range(TOKENS):
            step()
            torch.cuda.synchronize()
            ended = time.monotonic()
            if counts and token == 0:
                first.append(ended - arrival)
        if counts:
            took.append(ended - arrival)
        arrival = next(coming)


def main():
    """Runs."""
    kind, seconds = sys.argv[1], float(sys.argv[2])
    token_ms = float(sys.argv[3]) if len(sys.argv) > 3 else TOKEN_MS
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    name, _, load = kind.partition("@")
    kinds = {"serve": decoding, "llm": decoding, "train": training, "hpc": products}
    step, depth = kinds[name]()
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    print("ready", flush=True)
    if load:
        serve(step, TOKENS * token_ms / 1e3 / float(load), seconds)
    else:
        go_on(step, depth, seconds)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
