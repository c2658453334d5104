#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""run.py [--bin DIR] [--json FILE] [GROUP...]: the tests on a real GPU. Each case says what was wanted and
what was seen; the last line is "N passed, N failed". Groups: memory, managed, share, programs, cost. Needs only
the driver, python3 and a C library (PyTorch and JAX are used where they are installed)."""

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
MIB = 1 << 20
# What an allocation of CUDA is rounded to, and what is left over below the limit at most beside that.
GRANULE = 2 * MIB
SLACK = 2 * MIB
TIME_LIMIT_S = 180


class Bench:
    """The programs that were built, and what was seen."""

    def __init__(self, folder):
        self.tool = folder / "cgpu-gpu"
        self.rows = []

    def row(self, case, wanted, got, passed):
        """Notes a case and prints it."""
        self.rows.append({"case": case, "wanted": wanted, "got": got, "passed": bool(passed)})
        print(f"{'ok  ' if passed else 'FAIL'} {case:<52} wanted {wanted!s:<24} got {got}", flush=True)

    def equal(self, case, wanted, got):
        """A case whose figure is exact."""
        self.row(case, wanted, got, wanted == got)

    def gpus(self):
        """What the driver says of its GPUs."""
        return json.loads(subprocess.check_output([self.tool, "gpus"], text=True))

    def direct(self, *program, **options):
        """Runs a program without us; its last line of JSON."""
        return last_json(finish(subprocess.Popen(program, stdout=subprocess.PIPE, text=True, **options)))

    def begin(self, limit_mib, *program, copies=1, managed="spill"):
        """Starts a program in an instance of its own."""
        report = tempfile.NamedTemporaryFile(prefix="cgpu-gpu-", suffix=".json", delete=False)
        command = [self.tool, "run", "--mem-mib", str(limit_mib), "--report", report.name]
        command += ["--copies", str(copies), "--managed", managed, "--", *program]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return process, Path(report.name)

    def proxied(self, limit_mib, *program, copies=1):
        """Runs a program in an instance: its output, and what the books say at the end."""
        process, path = self.begin(limit_mib, *program, copies=copies)
        output = finish(process)
        report = json.loads(path.read_text())
        path.unlink()
        return output, report


def finish(process):
    """Waits for a program and returns what it printed."""
    try:
        output, _ = process.communicate(timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return output


def all_json(output):
    """The lines of an output that are JSON."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def last_json(output):
    """The last of them; nothing where there is none."""
    lines = all_json(output)
    return lines[-1] if lines else {}


def program(name, *arguments):
    """The command of a test program."""
    return [sys.executable, str(PROGRAMS / name), *map(str, arguments)]


def at_zero(bench, case, report):
    """The books are empty once the programs have ended."""
    gpu = report["gpus"][0]
    left = {key: gpu[key] for key in ("used_bytes", "overhead_bytes", "reserved_bytes", "objects", "clients")}
    bench.equal(f"{case}: left in the books", 0, sum(left.values()) and left)


def memory(bench):
    """Limits hold, every report shows them, and what is freed can be had again."""
    for limit in (2048, 8192, 40960):
        case = f"limit {limit} MiB"
        output, report = bench.proxied(limit, *program("fill.py"))
        seen, gpu = last_json(output), report["gpus"][0]
        bench.equal(f"{case}: cuMemGetInfo total", limit * MIB, seen.get("total"))
        bench.equal(f"{case}: cuDeviceTotalMem", limit * MIB, seen.get("device_total"))
        bench.equal(f"{case}: refusal", "CUDA_ERROR_OUT_OF_MEMORY", seen.get("refusal"))
        charged = gpu["peak_bytes"] + gpu["overhead_peak_bytes"]
        most = SLACK + GRANULE
        bench.row(
            f"{case}: left when full", f"0..{most}", limit * MIB - charged, 0 <= limit * MIB - charged <= most
        )
        bench.equal(f"{case}: taken again after freeing", seen.get("freed_pieces"), seen.get("taken_again"))
        at_zero(bench, case, report)
        output, _ = bench.proxied(
            limit, "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"
        )
        bench.equal(f"{case}: nvidia-smi total, MiB", str(limit), output.strip())
    contexts(bench)


def contexts(bench):
    """What the books charge for contexts is what the GPU misses."""
    for count in (1, 2, 4):
        before = bench.gpus()["gpus"][0]["free_bytes"]
        process, path = bench.begin(16384, *program("contexts.py", count))
        ready = process.stdout.readline()
        during = bench.gpus()["gpus"][0]["free_bytes"]
        finish(process)
        gpu = json.loads(path.read_text())["gpus"][0]
        path.unlink()
        charged = gpu["peak_bytes"] + gpu["overhead_peak_bytes"]
        bench.equal(f"{count} contexts: charged, against what the GPU misses", before - during, charged)
        if ready.strip() != "ready":
            bench.equal(f"{count} contexts: program", "ready", ready.strip())


def managed(bench):
    """Managed memory beyond the limit: in host memory, or refused."""
    limit, piece = 4096, 512
    for mode in ("spill", "charge", "deny"):
        case = f"managed memory, {mode}"
        before = bench.gpus()["gpus"][0]["free_bytes"]
        # Twelve pieces are 6 GiB; device memory of 1 GiB is freed when all is full.
        process, path = bench.begin(limit, *program("managed.py", 12, piece, 1024), managed=mode)
        taken = [step_of(bench, process, word, before) for word in ("full", "freed")]
        seen, gpu = last_json(finish(process)), json.loads(path.read_text())["gpus"][0]
        path.unlink()
        wanted = {"spill": 12, "charge": seen.get("pieces"), "deny": 0}[mode]
        bench.equal(f"{case}: pieces", wanted, seen.get("pieces"))
        # What CUDA makes of a mapping of UVM's file that fails, whatever the error.
        refusal = None if mode == "spill" else "CUDA_ERROR_UNKNOWN"
        bench.equal(f"{case}: refusal", refusal, seen.get("refusal"))
        bench.equal(f"{case}: data", True, seen.get("data_is_right"))
        for when, bytes_taken in zip(("full", "device memory freed"), taken):
            # UVM's page tables of what is mapped are in no books (docs/managed-memory.md).
            most = limit * MIB + 12 * piece * MIB // 256
            bench.row(f"{case}: {when}, the GPU holds", f"<= {most}", bytes_taken, 0 < bytes_taken <= most)
        if mode == "spill":
            bench.row(f"{case}: comes back to freed room", f"> {taken[0] - 512 * MIB}", taken[1], taken[1] > taken[0] - 512 * MIB)
        if mode == "charge":
            # A context takes 527 MiB.
            least = limit * MIB - (1024 + 527 + piece) * MIB
            bench.row(f"{case}: charged at the most", f">= {least}", gpu["managed_peak_bytes"], gpu["managed_peak_bytes"] >= least)
        at_zero(bench, case, {"gpus": [gpu]})


def step_of(bench, process, word, before):
    """Waits until a program says a word, sees what the GPU holds, and lets it go on."""
    said = process.stdout.readline().strip()
    if said != word:
        bench.equal("managed memory: program", word, said)
        return 0
    taken = before - bench.gpus()["gpus"][0]["free_bytes"]
    process.stdin.write("\n")
    process.stdin.flush()
    return taken


def share(bench):
    """Memory is shared within an instance, and charged once."""
    output, report = bench.proxied(8192, *program("ipc.py"))
    seen = last_json(output)
    bench.equal("IPC: what the import takes", 0, seen.get("free_before_import", 0) - seen.get("free_after_import", 1))
    bench.equal("IPC: data", True, seen.get("data_is_right"))
    at_zero(bench, "IPC", report)
    output, report = bench.proxied(8192, *program("vmm.py", 256))
    lines = all_json(output)
    imported, made = lines if len(lines) == 2 else ({}, {})
    bench.equal("VMM: made", 256 * MIB, made.get("free_before", 0) - made.get("free_made", 0))
    bench.equal("VMM: what the import takes", 0, imported.get("free_before", 0) - imported.get("free_imported", 1))
    bench.equal("VMM: given back", made.get("free_before"), made.get("free_released", 0))
    at_zero(bench, "VMM", report)
    output, report = bench.proxied(8192, *program("fill.py", 16), copies=2)
    gpu = report["gpus"][0]
    charged = gpu["peak_bytes"] + gpu["overhead_peak_bytes"]
    bench.row("two processes: charged together", f"<= {8192 * MIB}", charged, charged <= 8192 * MIB)
    refusals = [seen.get("refusal") for seen in all_json(output)]
    bench.equal("two processes: refusals", ["CUDA_ERROR_OUT_OF_MEMORY"] * 2, refusals)
    at_zero(bench, "two processes", report)


def installed(name):
    """Whether a Python package can be used here."""
    return importlib.util.find_spec(name) is not None


def programs(bench):
    """Frameworks see the limit and get an ordinary refusal."""
    for limit in (2048, 8192):
        if installed("torch"):
            output, report = bench.proxied(limit, *program("train.py", 20))
            seen = last_json(output)
            bench.equal(f"PyTorch in {limit} MiB: total", limit * MIB, seen.get("total"))
            said = seen.get("out_of_memory", "")
            bench.row(f"PyTorch in {limit} MiB: refusal names the limit", f"{limit >> 10}.00 GiB", said[-60:], f"{limit >> 10}.00 GiB" in said)
            at_zero(bench, f"PyTorch in {limit} MiB", report)
    if installed("jax"):
        output, report = bench.proxied(8192, *program("jax_sum.py"))
        bench.equal("JAX in 8192 MiB: three quarters", 6144 * MIB, last_json(output).get("limit"))
        at_zero(bench, "JAX in 8192 MiB", report)
    for missing in (name for name in ("torch", "jax") if not installed(name)):
        print(f"skip {missing}: not installed here")


def timed(command, **options):
    """What a command takes, microseconds."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, **options)
    return (time.perf_counter() - began) * 1e6


def cost(bench):
    """What the calls cost by themselves, with the library preloaded but no instance, and in an instance, in turns, as
    ratios of medians. No case: figures alone."""
    library = {"LD_PRELOAD": str(bench.tool.parent / "libcgpu_preload.so")}
    preloaded = {"env": os.environ | library}
    seen = {}
    in_driver = []

    def note(kind, figures):
        for key, value in figures.items():
            if key.endswith("_us"):
                seen.setdefault(key, {}).setdefault(kind, []).append(value)

    programs = [program("cost.py")] + ([program("train.py", 100)] if installed("torch") else [])
    for _ in range(5):
        for command in programs:
            note("direct", bench.direct(*command))
            note("preloaded", bench.direct(*command, **preloaded))
            output, report = bench.proxied(16384, *command)
            note("proxied", last_json(output))
            in_driver.append({key: report.get(key) for key in ("calls", "forwarded", "call_ns", "driver_ns")})
        note("direct", {"nvidia_smi_us": timed(["nvidia-smi"])})
        note("preloaded", {"nvidia_smi_us": timed(["nvidia-smi"], **preloaded)})
        # The tool itself looks for the GPUs, starts the program and looks at it every 10 ms.
        note("proxied", {"nvidia_smi_us": timed([bench.tool, "run", "--mem-mib", "16384", "--", "nvidia-smi"])})
    figures = []
    for key, kinds in seen.items():
        medians = {kind: statistics.median(values) for kind, values in kinds.items()}
        ratios = {f"{kind}_ratio": round(medians[kind] / medians["direct"], 4) for kind in ("preloaded", "proxied")}
        figures.append({"what": key, **medians, **ratios, "each": kinds})
    for figure in figures:
        shown = " ".join(f"{kind} {figure[kind]:>10.1f}" for kind in ("direct", "preloaded", "proxied"))
        print(f"     {figure['what']:<24} {shown} ratios {figure['preloaded_ratio']} {figure['proxied_ratio']}")
    return {"figures": figures, "in_an_instance": in_driver}


GROUPS = {"memory": memory, "managed": managed, "share": share, "programs": programs, "cost": cost}


def main():
    """Runs the groups and prints the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, default=HERE / "../../target/release")
    parser.add_argument("--json", type=Path)
    parser.add_argument("groups", nargs="*", default=list(GROUPS), metavar="GROUP")
    options = parser.parse_args()
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"there is no group {', '.join(sorted(unknown))}")
    bench = Bench(options.bin.resolve())
    found = bench.gpus()
    name = subprocess.check_output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], text=True)
    gpu = re.sub(r"\s+", " ", name).strip()
    print(f"{gpu}, driver {found['driver']}, {time.strftime('%Y-%m-%d')}")
    figures = {}
    for group in options.groups:
        figures[group] = GROUPS[group](bench)
    failed = sum(not row["passed"] for row in bench.rows)
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": gpu,
        "driver": found["driver"],
        "command": "make test-gpu",
        "cases": bench.rows,
        "cost": figures.get("cost"),
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(bench.rows) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    os.environ["PYTHONUNBUFFERED"] = "1"
    main()
