#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""peers.py [--bin DIR] [--hami LIBRARY] [--gpu MINOR] [--seconds S] [--json FILE] [--logs DIR]
[CASE...]: tenants that are like those of production under several sharers of a GPU, in one run.
Prints a line of JSON for each case: `rates` of the tenants, `waits_ms` (median, 95 %, 99 %,
longest) of what each waits for, of a service also `ttft_ms`, until the first token. `train` is
bound by the processor, whose pace changes from minute to minute on a host that others use too. So
the tenant before it pauses for half of the time, in turns (programs/turns.py): `alone` is the rate
of `train` then, and `rates` are those of the other half.

A case is SHARER/KIND[,KIND]. Kinds: programs/tenant.py. Sharers, all with equal parts:

    native              the driver alone
    mps                 NVIDIA's MPS, half of the multiprocessors each
    hami                HAMi-core (LIBRARY is its libvgpu.so), half each, policy `force`
    cgpu[-PERIOD]       the module's scheduler under a period (latency)
    cgpu+[-PERIOD]      the same, the first tenant of high priority
    cgpu@MS             the same with a burst of so many milliseconds, instead of the default

Without cases: those of docs/measurements. Needs PyTorch and torchvision."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "programs"))
from turns import Turns, rate_alone  # noqa: E402

# Services are made of tokens. This is how long one takes on a GPU with nobody else.
ALONE = "native/llm"
KINDS = ("serve@0.4", "train", "hpc")
PAIRS = ("serve@0.4,train", "serve@0.4,hpc")
TOKENS = "llm,train"
PERIODS = ("interactive", "throughput")
# A case with this tenant in the last place is measured in so many turns.
BOUND_BY_PROCESSOR, TURNS = "train", 4
# Tenants run for so long before they are measured: what a program is like is learnt.
WARM_UP_S = 4
# From telling the tenants when they begin to count to that moment.
LEAD_S = 0.1
# Imports, a model and a graph.
READY_S = 90
ENDS_S = 30


def default_cases(hami):
    """Those of docs/measurements."""
    yield from (f"native/{kind}" for kind in KINDS)
    sharers = ("native", "mps", *(["hami"] if hami else []), "cgpu", "cgpu+")
    for pair in PAIRS:
        yield from (f"{sharer}/{pair}" for sharer in sharers)
    yield from (f"{sharer}/{TOKENS}" for sharer in sharers[:-1])
    yield from (f"cgpu-{period}/{TOKENS}" for period in PERIODS)


def turns(kinds, options):
    """The span of a case."""
    return Turns(options.seconds, TURNS if kinds[-1] == BOUND_BY_PROCESSOR and kinds[:-1] else 0)


def tenant(kinds, number, options):
    """The words that start a tenant."""
    words = ["--turns", str(turns(kinds, options).count)]
    words += ["--pauses"] if kinds[number + 1 :] else []
    words += [kinds[number], str(options.seconds)]
    words += [str(options.token_ms)] if options.token_ms else []
    return [sys.executable, str(HERE / "programs/tenant.py"), *words]


def alone(span, said):
    """The rate of the last tenant of a case in turns while the one before it paused."""
    ends = [one.pop("ends_s", None) for one in said]
    return rate_alone(span, *ends[-2:]) if span.count else None


def environment(sharer, library, tenants, folder, number):
    """The variables of a tenant."""
    part = str(100 // tenants)
    if sharer == "hami":
        return {
            "LD_PRELOAD": str(library),
            "CUDA_DEVICE_MEMORY_LIMIT": "16g",
            "CUDA_DEVICE_SM_LIMIT": part,
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{folder}/{number}.cache",
            "GPU_CORE_UTILIZATION_POLICY": "force",
            "LIBCUDA_LOG_LEVEL": "0",
        }
    if sharer == "mps":
        return {
            "CUDA_MPS_PIPE_DIRECTORY": folder,
            "CUDA_MPS_LOG_DIRECTORY": folder,
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": part,
        }
    return {}


def only(minor):
    """The variables of a program that is to see one GPU; none for the first of all."""
    if minor is None:
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(minor)}


@contextlib.contextmanager
def mps(folder, minor):
    """NVIDIA's MPS, as long as it is needed."""
    path = f"{os.environ['PATH']}:/usr/local/nvidia/bin"
    found = shutil.which("nvidia-cuda-mps-control", path=path)
    if not found:
        raise RuntimeError("there is no nvidia-cuda-mps-control")
    variables = os.environ | only(minor) | environment("mps", None, 1, folder, 0)
    del variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
    with subprocess.Popen(
        [found, "-f"], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as daemon:
        time.sleep(1.5)
        try:
            yield
        finally:
            quits = {"input": "quit\n", "text": True, "env": variables, "timeout": ENDS_S}
            subprocess.run([found], check=False, stdout=subprocess.DEVNULL, **quits)
            daemon.kill()


def beside_each_other(sharer, kinds, options, folder):
    """The figures of tenants that share the GPU by something else than the module."""
    tenants = []
    try:
        for number in range(len(kinds)):
            variables = environment(sharer, options.hami, len(kinds), folder, number)
            variables |= only(options.gpu)
            tenants.append(
                subprocess.Popen(
                    tenant(kinds, number, options),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=os.environ | variables,
                    start_new_session=True,
                )
            )
        for one in tenants:
            if one.stdout.readline().strip() != "ready":
                raise RuntimeError("a tenant ended before it was ready")
        time.sleep(WARM_UP_S)
        begins = time.monotonic() + LEAD_S
        for one in tenants:
            one.stdin.write(f"{begins}\n")
            one.stdin.flush()
        said = [json.loads(one.stdout.readline()) for one in tenants]
        for one in tenants:
            one.stdin.close()
        for one in tenants:
            one.wait(ENDS_S)
        return said
    finally:
        for one in tenants:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()


def in_instances(sharer, kinds, options, log):
    """The figures of tenants that share the GPU by the module's scheduler, and of the scheduler."""
    name, _, period = sharer.partition("-")
    name, _, burst = name.partition("@")
    weights = ["50+" if name == "cgpu+" else "50"] + ["50"] * (len(kinds) - 1)
    command = [options.bin.resolve() / "cgpu-gpu", "weigh", "--warm-up", str(WARM_UP_S)]
    command += ["--gpu", str(options.gpu)] if options.gpu is not None else []
    command += ["--period", period] if period else []
    command += ["--burst", burst] if burst else []
    command += ["--log", log] if log else []
    words = (" ".join(tenant(kinds, number, options)) for number in range(len(kinds)))
    command += [f"{weight}:{program}" for weight, program in zip(weights, words)]
    limit = READY_S + WARM_UP_S + turns(kinds, options).span_s + ENDS_S
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=limit)
    said = json.loads(done.stdout)
    return said["programs"], said["scheduler"]


def measure(options, case):
    """Runs a case; its line."""
    sharer, kinds = case.split("/")
    kinds = kinds.split(",")
    scheduler = None
    if sharer.startswith("cgpu"):
        log = options.logs and options.logs / f"{case.replace('/', '.')}.log"
        said, scheduler = in_instances(sharer, kinds, options, log)
    else:
        with tempfile.TemporaryDirectory() as folder:
            with mps(folder, options.gpu) if sharer == "mps" else contextlib.nullcontext():
                said = beside_each_other(sharer, kinds, options, folder)
    alone_rate = alone(turns(kinds, options), said)
    figures = {
        "case": case,
        "sharer": sharer,
        "kinds": kinds,
        "seconds": options.seconds,
        "rates": [one["rate"] for one in said],
        "waits_ms": [one["waits_ms"] for one in said],
        "ttft_ms": [one.get("ttft_ms") for one in said],
    }
    figures |= {"alone": alone_rate} if alone_rate else {}
    return figures | ({"scheduler": scheduler} if scheduler else {})


def main():
    """Runs the cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bin", type=Path, default=HERE / "../../target/gpu")
    parser.add_argument("--hami", type=Path, help="HAMi-core's libvgpu.so")
    parser.add_argument("--seconds", type=float, default=9.0)
    parser.add_argument("--token-ms", type=float, help="of llm alone; measured if it is not said")
    parser.add_argument("--gpu", type=int, help="minor number; several at a time: one run each")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--logs", type=Path, help="folder for the scheduler's log of each case")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    failed = 0
    cases = options.cases or default_cases(options.hami)
    for case in cases if options.token_ms else (ALONE, *cases):
        try:
            line = measure(options, case)
            if not options.token_ms:
                options.token_ms = line["waits_ms"][0][0]
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as failure:
            line = {"case": case, "failed": f"{type(failure).__name__}: {failure}"[-300:]}
            failed += 1
        print(json.dumps(line), flush=True)
        if options.json:
            with open(options.json, "a", encoding="utf-8") as lines:
                lines.write(json.dumps(line) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
