# SPDX-License-Identifier: GPL-2.0
"""A tenant of a shared GPU that is like one of production: what it does in a span of time, and how
long what it waits for takes, as JSON. Says "ready" and counts from the moment that the first line
of its standard input says, as burn.py does.

    tenant.py [--turns N [--pauses]] KIND SECONDS [TOKEN_MS]

KIND: `llm`, decoding from a CUDA graph, which waits for each token; `serve@LOAD`, requests of 16
such tokens that come at random and want LOAD of the GPU, if a token takes TOKEN_MS; `train`,
training steps of a ResNet-50 with pictures of which the processor launches each kernel; `hpc`,
products of large fp32 matrices.

With turns the span is twice as long, and cut into N: in half of each a tenant that pauses does
nothing, and the other is alone (turns.py). So a pace that changes during a run, as of a processor
that others use too, is that of both. `ends_s` says when each step ended, in seconds of the span.
"""

import argparse
import random
import time

import torch

import cuda
from count import Count, line
from turns import Turns, rate_beside

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


def rest(begins, turns):
    """Waits until a pause is over, if it is one; what time it is then."""
    now = time.monotonic()
    while begins <= now < begins + turns.span_s and not turns.works(now - begins):
        time.sleep(turns.left_s(now - begins))
        now = time.monotonic()
    return now


def go_on(step, depth, turns, pauses):
    """Always has work, but for pauses: steps, `depth` of them queued."""
    took, ends = [], []

    def say(**figures):
        if turns.count:
            figures["ends_s"] = [round(end - count.begins, 6) for end in ends]
            figures["rate"] = rate_beside(turns, figures["ends_s"])
        cuda.say(waits_ms=waits_ms(took), **figures)

    ended = [torch.cuda.Event() for _ in range(depth)]
    count = Count(turns.span_s, say)
    launched, last = 0, time.monotonic()
    while True:
        slot = ended[launched % depth]
        if launched >= depth:
            slot.synchronize()
            now = time.monotonic()
            if count.begins is not None and last >= count.begins and not count.is_said:
                ends.append(now)
                if turns.works(last - count.begins):
                    took.append(now - last)
            if not count.goes_on(last, now):
                break
            last = now
            if pauses and count.begins is not None:
                torch.cuda.synchronize()
                last = rest(count.begins, turns)
        step()
        slot.record()
        launched += 1


def at_random(begins, mean_s, chances):
    """When requests come from a moment on."""
    while True:
        begins += chances.expovariate(1 / mean_s)
        yield begins


def as_many(begins, turns, mean_s):
    """The same, with exactly as many in the span as there are on average; none in a pause."""
    chances = random.Random(SEED)
    count = round(turns.seconds / mean_s)
    times = sorted(chances.uniform(0, turns.seconds) for _ in range(count))
    yield from (begins + turns.at(worked) for worked in times)
    yield from at_random(begins + turns.span_s, mean_s, chances)


def serve(step, mean_s, turns):
    """Requests come whether or not those before were answered, and are answered in their order.
    The span begins with none left to answer."""
    begins, is_said = None, False
    took, first, ends, ended = [], [], [], 0.0
    coming = at_random(time.monotonic(), mean_s, random.Random(SEED_BEFORE))
    arrival = next(coming)
    while True:
        said = line() if begins is None or is_said else None
        if said is not None and is_said:
            return
        if said is not None:
            begins = float(said) if said else time.monotonic()
            coming = as_many(begins, turns, mean_s)
            arrival = next(coming)
        counts = begins is not None and not is_said
        if counts and arrival >= begins + turns.span_s:
            late = max(ended - begins - turns.span_s, 0.0)
            cuda.say(
                kernels=len(took) * TOKENS,
                seconds=turns.seconds,
                rate=len(took) / (turns.seconds + late),
                longest_wait_ms=max(took, default=0.0) * 1e3,
                waits_ms=waits_ms(took),
                ttft_ms=waits_ms(first),
                ends_s=ends if turns.count else None,
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
            ends.append(round(ended - begins, 6))
        arrival = next(coming)


def main():
    """Runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--pauses", action="store_true")
    parser.add_argument("kind")
    parser.add_argument("seconds", type=float)
    parser.add_argument("token_ms", type=float, nargs="?", default=TOKEN_MS)
    options = parser.parse_args()
    turns = Turns(options.seconds, options.turns)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    name, _, load = options.kind.partition("@")
    kinds = {"serve": decoding, "llm": decoding, "train": training, "hpc": products}
    step, depth = kinds[name]()
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    print("ready", flush=True)
    if load:
        serve(step, TOKENS * options.token_ms / 1e3 / float(load), turns)
    else:
        go_on(step, depth, turns, options.pauses)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
