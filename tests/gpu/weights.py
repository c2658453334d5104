#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""weights.py [--bin DIR] [--json FILE] [--alone FILE] [--gpu MINOR]... [--seconds S] [--warm-up S]
[--period PERIOD] [CASE...]: how the module's scheduler shares a real GPU. A line of JSON for each
case: what each program did of what it does alone (`got`), its part of what all did together
(`share`), the part that it should have (`wanted`), and the error as a fraction of that.

A case is BACKEND/POLICY/WEIGHT:KERNEL_US:DEPTH,... with backend native or rmapi; `+` after a weight
is high priority. Instead of KERNEL_US: `train` or `infer`, a PyTorch loop, or `wake`, a program
that thinks, launches one short kernel and waits for it. Without cases: those of docs/measurements.
--pairs WEIGHTS: two programs of each kind in all pairs, `rmapi`. --alone FILE: keeps what each
program does alone for the next start on the same machine. Several --gpu: a case on each of them at
a time, which begin and end together.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BACKENDS = {"native": ["--native"], "rmapi": []}
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
# Measured first, to know how long steps are.
FIRST_KIND = "800:8"
KINDS = tuple(f"{length}:{depth}" for length in LENGTHS for depth in (1, 8))
CAPS = ("30:15:8", "30:800:1", "30:16000:8", "30:81000:8", "50:800:8")
FIXED = 3
WEIGHT = 2
# Programs whose pace is the processor's, which changes: what they do alone is measured again before
# each case with one of them.
PACED_BY_PROCESSOR = {"15:1", "15:8"}
# Cases with kernels of more than LONG_US take LONGER times as long.
LONG_US = 50_000
LONGER = 1.6
# A case takes a few seconds.
MOST_S = 60


def words(kernel, depth, seconds, steps_per_us):
    """The program of an instance."""
    if kernel in ("train", "infer"):
        return f"loop.py {kernel} {seconds}"
    if kernel == "wake":
        return f"wake.py 15 {seconds} {steps_per_us}"
    return f"burn.py {kernel} {depth} {seconds} {steps_per_us}".strip()


def weigh(tool, backend, policy, instances, seconds, steps_per_us="", log=None):
    """Runs programs under the scheduler; `tool` is how `cgpu-gpu weigh` is started."""
    specs = [
        f"{weight}:{sys.executable} {HERE / 'programs'}/{words(kernel, depth, seconds, steps_per_us)}"
        for weight, kernel, depth in instances
    ]
    logged = ["--log", log] if log else []
    command = [*tool, "--policy", str(policy), *BACKENDS[backend], *logged, *specs]
    # In a group of their own, so that what does not end leaves nobody behind on the GPU.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=MOST_S)
        finally:
            if process.poll() != 0:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise subprocess.SubprocessError(f"cgpu-gpu weigh ended with {process.returncode}")
    return json.loads(output)


def parse(case):
    """A case's backend, policy and instances."""
    backend, policy, mix = case.split("/")
    return backend, int(policy), [tuple(part.split(":")) for part in mix.split(",")]


def default_cases():
    """Those of docs/measurements."""
    # All kinds at once, and all twice.
    every = (",".join(f"1:{kind}" for kind in KINDS * count) for count in (1, 2))
    for mix in (*MIXES, *every):
        for backend in BACKENDS:
            yield f"{backend}/{WEIGHT}/{mix}"
    for mix in CAPS:
        yield f"rmapi/{FIXED}/{mix}"


def span(instances, seconds):
    """How long a case is measured: of kernels that are very long few are counted."""
    lengths = [float(kernel) for _, kernel, _ in instances if kernel.isdigit()]
    return seconds * (LONGER if max(lengths, default=0) > LONG_US else 1)


def pairs(weights):
    """All kinds of programs beside all kinds, with these weights."""
    first, second = weights.split(":")
    for one in KINDS:
        for other in KINDS:
            yield f"rmapi/{WEIGHT}/{first}:{one},{second}:{other}"


class Gpu:
    """A GPU, and what each kind of program does alone on it under the driver."""

    def __init__(self, folder, minor, kept=None, options=()):
        self.tool = [
            folder / "cgpu-gpu",
            "weigh",
            *(["--gpu", str(minor)] if minor is not None else []),
        ]
        self.options = [*map(str, options)]
        self.kept = kept and kept.with_suffix(f".{minor or 0}.json")
        self.alone = json.loads(self.kept.read_text()) if kept and self.kept.exists() else {}

    def know(self, kind, seconds):
        """Measures a kind of program, unless that was done and still holds."""
        if kind in self.alone and kind not in PACED_BY_PROCESSOR:
            return
        one = [("1", *kind.split(":"))]
        # The first one of all finds out itself how many steps a microsecond is.
        seen = weigh(self.tool, "native", WEIGHT, one, span(one, seconds), self.steps())
        self.alone[kind] = seen["programs"][0]
        if self.kept:
            self.kept.write_text(json.dumps(self.alone))

    def steps(self):
        """Steps of a kernel in a microsecond."""
        return self.alone.get(FIRST_KIND, {}).get("steps_per_us", "")

    def measure(self, case, seconds, log=None):
        """Runs a case; what came of it."""
        backend, policy, instances = parse(case)
        try:
            tool = [*self.tool, *self.options]
            seen = weigh(
                tool, backend, policy, instances, span(instances, seconds), self.steps(), log
            )
        except (subprocess.SubprocessError, json.JSONDecodeError) as failure:
            return {"case": case, "failed": f"{type(failure).__name__}: {failure}"[-200:]}
        rates = [said["rate"] if said else 0 for said in seen["programs"]]
        got = [
            rate / self.alone[f"{kernel}:{depth}"]["rate"]
            for rate, (_, kernel, depth) in zip(rates, instances)
        ]
        parts = [int(weight.rstrip("+")) for weight, _, _ in instances]
        if policy == FIXED:
            wanted = [part / 100 for part in parts]
            share = got
        else:
            wanted = [part / sum(parts) for part in parts]
            share = [part / sum(got) if sum(got) else 0 for part in got]
        return {
            "backend": backend,
            "case": case,
            "wanted": [round(part, 4) for part in wanted],
            "share": [round(part, 4) for part in share],
            "got": [round(part, 4) for part in got],
            "error": [round((s - w) / w, 4) for s, w in zip(share, wanted)],
            "total": round(sum(got), 4),
            "alone": [round(self.alone[f"{k}:{d}"]["rate"], 2) for _, k, d in instances],
            "longest_wait_ms": [
                round(said["longest_wait_ms"], 2) if said else None for said in seen["programs"]
            ],
            "waits_ms": [said.get("waits_ms") if said else None for said in seen["programs"]],
            "scheduler": seen["scheduler"],
        }


def measure(folder, cases, seconds, gpus=(None,), logs=None, kept=None, options=()):
    """Runs cases, one on each GPU at a time, which begin together; what came of each. `options` are
    those of `cgpu-gpu weigh` for the cases."""
    gpus = [Gpu(folder, minor, kept, options) for minor in gpus]
    # Of one length together, so that nobody starts or ends while another one is measured.
    cases = (
        sorted(cases, key=lambda case: span(parse(case)[2], seconds))
        if len(gpus) > 1
        else list(cases)
    )
    kinds = dict.fromkeys(
        [FIRST_KIND]
        + [f"{kernel}:{depth}" for case in cases for _, kernel, depth in parse(case)[2]]
    )
    with concurrent.futures.ThreadPoolExecutor(len(gpus)) as pool:

        def know(kinds):
            for kind in kinds:
                for done in [pool.submit(gpu.know, kind, seconds) for gpu in gpus]:
                    done.result()

        know(kind for kind in kinds if kind not in PACED_BY_PROCESSOR)
        for first in range(0, len(cases), len(gpus)):
            together = cases[first : first + len(gpus)]
            here = {f"{kernel}:{depth}" for c in together for _, kernel, depth in parse(c)[2]}
            know(sorted(here & PACED_BY_PROCESSOR))
            named = [
                logs / f"{first + place}.log" if logs else None for place in range(len(together))
            ]
            begun = [
                pool.submit(gpu.measure, case, seconds, log)
                for gpu, case, log in zip(gpus, together, named)
            ]
            yield from (one.result() for one in begun)


def main():
    """Runs the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, default=HERE / "../../target/gpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--logs", type=Path, help="folder for a log of the scheduler's for each case"
    )
    parser.add_argument("--alone", type=Path)
    parser.add_argument("--gpu", type=int, action="append")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument(
        "--warm-up", type=float, default=1.0, help="seconds before a case's programs begin to count"
    )
    parser.add_argument("--period", default="latency", help="the base period of `rmapi`")
    parser.add_argument("--pairs", metavar="WEIGHTS", help="75:25")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    cases = options.cases or (pairs(options.pairs) if options.pairs else default_cases())
    lines = []
    found = measure(
        options.bin.resolve(),
        cases,
        options.seconds,
        options.gpu or (None,),
        options.logs,
        options.alone,
        ("--warm-up", options.warm_up, "--period", options.period),
    )
    try:
        for line in found:
            lines.append(line)
            print(json.dumps(line), flush=True)
    except subprocess.SubprocessError as failure:
        sys.exit(f"weights: what a program does alone cannot be measured: {failure}")
    if options.json:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
