#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""weights.py [--bin DIR] [--json FILE] [--seconds S] [CASE...]: how the module's scheduler shares a real GPU. A
line of JSON for each case: what each program did of what it does alone (`got`), its part of what all
did together (`share`), the part that it should have (`wanted`), and the error as a fraction of that.

A case is BACKEND/POLICY/WEIGHT:KERNEL_US:DEPTH,... with backend native, doorbell or rmapi; `+` after a weight is high
priority. Instead of KERNEL_US: `train` or `infer`, a PyTorch loop, or `wake`, a program that thinks, launches
one short kernel and waits for it. Without cases: those of docs/measurements. --pairs WEIGHTS: two programs of each kind
in all pairs, `rmapi`.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BACKENDS = {"native": ["--native"], "doorbell": ["--doorbell"], "rmapi": []}
MIXES = (
    "75:15:8,25:15:8",
    "75:800:8,25:800:8",
    "75:16000:8,25:16000:8",
    "75:81000:8,25:81000:8",
    "50:15:1,50:81000:8",
    "75:15:1,25:81000:8",
    "25:800:1,75:15:8",
    "75:16000:1,25:800:1",
    "90:800:8,10:16000:8",
    "1:800:8,2:15:8,3:16000:8,4:800:1",
)
LENGTHS = ("15", "800", "16000", "81000")
CAPS = ("30:15:8", "30:800:1", "30:16000:8", "30:81000:8", "50:800:8")
FIXED = 3
WEIGHT = 2
# Cases with kernels of more than LONG_US take LONGER times as long.
LONG_US = 50_000
LONGER = 2.5
# A case takes a few seconds.
MOST_S = 60


def words(kernel, depth, seconds, steps_per_us):
    """The program of an instance."""
    if kernel in ("train", "infer"):
        return f"loop.py {kernel} {seconds}"
    if kernel == "wake":
        return f"wake.py 15 {seconds} {steps_per_us}"
    return f"burn.py {kernel} {depth} {seconds} {steps_per_us}".strip()


def weigh(folder, backend, policy, instances, seconds, steps_per_us="", log=None):
    """Runs programs under the scheduler."""
    specs = [
        f"{weight}:{sys.executable} {HERE / 'programs'}/{words(kernel, depth, seconds, steps_per_us)}"
        for weight, kernel, depth in instances
    ]
    logged = ["--log", log] if log else []
    command = [folder / "cgpu-gpu", "weigh", "--policy", str(policy), *BACKENDS[backend], *logged, *specs]
    # In a group of their own, so that what does not end leaves nobody behind on the GPU.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as tool:
        try:
            output, _ = tool.communicate(timeout=MOST_S)
        finally:
            if tool.poll() != 0:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(tool.pid, signal.SIGKILL)
    if tool.returncode:
        raise subprocess.SubprocessError(f"cgpu-gpu weigh ended with {tool.returncode}")
    return json.loads(output)


def parse(case):
    """A case's backend, policy and instances."""
    backend, policy, mix = case.split("/")
    return backend, int(policy), [tuple(part.split(":")) for part in mix.split(",")]


def default_cases():
    """Those of docs/measurements."""
    for mix in MIXES:
        for backend in BACKENDS:
            yield f"{backend}/{WEIGHT}/{mix}"
    for mix in CAPS:
        yield f"rmapi/{FIXED}/{mix}"
        yield f"doorbell/{FIXED}/{mix}"


def span(instances, seconds):
    """How long a case is measured: of kernels that are very long few are counted."""
    lengths = [float(kernel) for _, kernel, _ in instances if kernel.isdigit()]
    return seconds * (LONGER if max(lengths, default=0) > LONG_US else 1)


def pairs(weights):
    """All kinds of programs beside all kinds, with these weights."""
    kinds = [f"{length}:{depth}" for length in LENGTHS for depth in (1, 8)]
    first, second = weights.split(":")
    for one in kinds:
        for other in kinds:
            yield f"rmapi/{WEIGHT}/{first}:{one},{second}:{other}"


def measure(folder, cases, seconds, logs=None):
    """Runs cases; what came of each."""
    alone = {}
    # Once, on a GPU that nobody else uses.
    seen = weigh(folder, "native", WEIGHT, [("1", "800", "8")], seconds)
    steps = seen["programs"][0]["steps_per_us"]
    for place, case in enumerate(cases):
        backend, policy, instances = parse(case)
        try:
            for _, kernel, depth in instances:
                if (kernel, depth) not in alone:
                    one = [("1", kernel, depth)]
                    seen = weigh(folder, "native", WEIGHT, one, span(one, seconds), steps)
                    alone[kernel, depth] = seen["programs"][0]["rate"]
            log = logs / f"{place}.log" if logs else None
            seen = weigh(folder, backend, policy, instances, span(instances, seconds), steps, log)
        except (subprocess.SubprocessError, json.JSONDecodeError, TypeError) as failure:
            yield {"case": case, "failed": f"{type(failure).__name__}: {failure}"[-200:]}
            continue
        rates = [said["rate"] if said else 0 for said in seen["programs"]]
        got = [rate / alone[kernel, depth] for rate, (_, kernel, depth) in zip(rates, instances)]
        parts = [int(weight.rstrip("+")) for weight, _, _ in instances]
        if policy == FIXED:
            wanted = [part / 100 for part in parts]
            share = got
        else:
            wanted = [part / sum(parts) for part in parts]
            share = [part / sum(got) if sum(got) else 0 for part in got]
        yield {
            "backend": backend,
            "case": case,
            "wanted": [round(part, 4) for part in wanted],
            "share": [round(part, 4) for part in share],
            "got": [round(part, 4) for part in got],
            "error": [round((s - w) / w, 4) for s, w in zip(share, wanted)],
            "total": round(sum(got), 4),
            "longest_wait_ms": [round(said["longest_wait_ms"], 2) if said else None for said in seen["programs"]],
            "waits_ms": [said.get("waits_ms") if said else None for said in seen["programs"]],
            "scheduler": seen["scheduler"],
        }


def main():
    """Runs the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, default=HERE / "../../target/release")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--logs", type=Path, help="folder for a log of the scheduler's for each case")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--pairs", metavar="WEIGHTS", help="75:25")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    cases = options.cases or (pairs(options.pairs) if options.pairs else default_cases())
    lines = []
    for line in measure(options.bin.resolve(), cases, options.seconds, options.logs):
        lines.append(line)
        print(json.dumps(line), flush=True)
    if options.json:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
