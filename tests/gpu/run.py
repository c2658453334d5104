#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""run.py [--bin DIR] [--json FILE] [GROUP...]: the tests on a real GPU. A table on the standard
error output: each case says what was wanted and what was seen; the last line is "N passed, N
failed". JSON on the standard output, or in FILE. Groups: memory, managed, share, programs, cost,
weights. Needs only the driver, python3 and a C library; PyTorch, JAX and Vulkan's loader are used
where they are installed, two GPUs where there are two.

Ends with 0 where every case passed, 1 where one failed, 2 where the tests could not be made."""

import argparse
import ctypes.util
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

import weights

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
MIB = 1 << 20
# CUDA rounds an allocation up to GRANULE. At most SLACK more is left over below the limit.
GRANULE = 2 * MIB
SLACK = 2 * MIB
# Page tables of a context, which are charged beside it (144 KiB were seen for the first).
CONTEXT_TABLES = 160 << 10
TIME_LIMIT_S = 180
# Of the group cost: how often everything is measured, and steps of PyTorch each time.
ROUNDS = 3
STEPS = 300
# A class, as `times` names it.
MEMORY_FABRIC = "0xf8"
# The driver's calls by their numbers (nv_escape.h).
ESCAPES = {
    "0x29": "RM_FREE",
    "0x2a": "RM_CONTROL",
    "0x2b": "RM_ALLOC",
    "0x4e": "MAP_MEMORY",
    "0x4f": "UNMAP_MEMORY",
}


def show(text):
    """Prints a line of the table."""
    print(text, file=sys.stderr, flush=True)


class Bench:
    """The programs that were built, and what was seen."""

    def __init__(self, folder):
        self.tool = folder / "cgpu-gpu"
        self.rows = []
        self.free_before = []

    def row(self, case, wanted, got, passed):
        """Notes a case and prints it."""
        self.rows.append({"case": case, "wanted": wanted, "got": got, "passed": bool(passed)})
        show(f"{'ok  ' if passed else 'FAIL'} {case:<52} wanted {wanted!s:<24} got {got}")

    def equal(self, case, wanted, got):
        """A case whose figure is exact."""
        self.row(case, wanted, got, wanted == got)

    def gpus(self):
        """The driver's list of its GPUs."""
        return json.loads(subprocess.check_output([self.tool, "gpus"], text=True))

    def free(self):
        """Free memory of each of them, bytes."""
        return [gpu["free_bytes"] for gpu in self.gpus()["gpus"]]

    def direct(self, *program, **options):
        """Runs a program without us; its last line of JSON."""
        return last_json(
            finish(subprocess.Popen(program, stdout=subprocess.PIPE, text=True, **options))
        )

    def preloaded(self, **variables):
        """How a program is started with the library, but in no instance."""
        library = {"LD_PRELOAD": str(self.tool.parent / "libcgpu_preload.so")}
        return {"env": os.environ | library | variables}

    def begin(
        self, limit_mib, *program, copies=1, managed="spill", caps="compute,utility", **options
    ):
        """Starts a program in an instance of its own."""
        self.free_before = self.free()
        report = tempfile.NamedTemporaryFile(prefix="cgpu-gpu-", suffix=".json", delete=False)
        command = [self.tool, "run", "--mem-mib", str(limit_mib), "--report", report.name]
        command += ["--copies", str(copies), "--managed", managed, "--caps", caps, "--", *program]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
        )
        return process, Path(report.name)

    def proxied(self, limit_mib, *program, **options):
        """Runs a program in an instance: its output, and what the accounting says at the end."""
        process, path = self.begin(limit_mib, *program, **options)
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
    """The accounting is empty once the programs have ended, and the GPUs have back what was taken
    since the last `begin`."""
    names = ("used_bytes", "overhead_bytes", "reserved_bytes", "objects", "clients")
    left = [{key: gpu[key] for key in names if gpu[key]} for gpu in report["gpus"]]
    bench.equal(f"{case}: left in the accounting", 0, left if any(left) else 0)
    missing = [before - now for before, now in zip(bench.free_before, bench.free())]
    bench.equal(f"{case}: what the GPUs miss then", [0] * len(missing), missing)


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
            f"{case}: left when full",
            f"0..{most}",
            limit * MIB - charged,
            0 <= limit * MIB - charged <= most,
        )
        bench.equal(
            f"{case}: taken again after freeing", seen.get("freed_pieces"), seen.get("taken_again")
        )
        at_zero(bench, case, report)
        output, _ = bench.proxied(
            limit, "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"
        )
        bench.equal(
            f"{case}: nvidia-smi total of each GPU, MiB",
            [str(limit)] * len(report["gpus"]),
            output.split(),
        )
    large(bench)
    contexts(bench)


def large(bench):
    """Pieces of 1 GiB. Where a fabric joins GPUs, CUDA makes an object of NV_MEMORY_FABRIC over
    each from 512 MiB on."""
    limit, piece = 40960, 1024
    case = f"pieces of {piece} MiB in {limit} MiB"
    with tempfile.TemporaryDirectory() as folder:
        output, report = bench.proxied(
            limit,
            *program("fill.py", piece),
            env=os.environ | {"CGPU_GPU_TIMES": f"{folder}/calls"},
        )
        lines = [
            line for file in Path(folder).glob("calls.*") for line in file.read_text().splitlines()
        ]
    seen = last_json(output)
    # A context takes 527 MiB.
    bench.equal(f"{case}: taken", limit // piece - 1, seen.get("pieces"))
    bench.equal(f"{case}: refusal", "CUDA_ERROR_OUT_OF_MEMORY", seen.get("refusal"))
    bench.equal(
        f"{case}: taken again after freeing", seen.get("freed_pieces"), seen.get("taken_again")
    )
    asked = sum(line.startswith(f"0x2b {MEMORY_FABRIC} ") for line in lines)
    show(f"     {case}: of {len(lines)} calls {asked} ask for NV_MEMORY_FABRIC")
    at_zero(bench, case, report)


def contexts(bench):
    """The charge for contexts is the memory that the GPU misses. It has in it the page tables of
    what they map."""
    for count in (1, 2, 4):
        before = bench.gpus()["gpus"][0]["free_bytes"]
        process, path = bench.begin(16384, *program("contexts.py", count))
        ready = process.stdout.readline()
        during = bench.gpus()["gpus"][0]["free_bytes"]
        finish(process)
        gpu = json.loads(path.read_text())["gpus"][0]
        path.unlink()
        charged = gpu["peak_bytes"] + gpu["overhead_peak_bytes"]
        more = charged - (before - during)
        most = count * CONTEXT_TABLES
        bench.row(
            f"{count} contexts: charged beyond what the GPU misses",
            f"0..{most}",
            more,
            0 <= more <= most,
        )
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
        seen, report = last_json(finish(process)), json.loads(path.read_text())
        gpu = report["gpus"][0]
        path.unlink()
        wanted = {"spill": 12, "charge": seen.get("pieces"), "deny": 0}[mode]
        bench.equal(f"{case}: pieces", wanted, seen.get("pieces"))
        # CUDA's error for a mapping of UVM's file that fails, for any errno.
        refusal = None if mode == "spill" else "CUDA_ERROR_UNKNOWN"
        bench.equal(f"{case}: refusal", refusal, seen.get("refusal"))
        bench.equal(f"{case}: data", True, seen.get("data_is_right"))
        for when, bytes_taken in zip(("full", "device memory freed"), taken):
            # UVM's page tables of what is mapped are in no accounting (docs/managed-memory.md).
            most = limit * MIB + 12 * piece * MIB // 256
            bench.row(
                f"{case}: {when}, the GPU holds", f"<= {most}", bytes_taken, 0 < bytes_taken <= most
            )
        if mode == "spill":
            least = max(0, taken[0] - 512 * MIB)
            bench.row(f"{case}: comes back to freed room", f"> {least}", taken[1], taken[1] > least)
        if mode == "charge":
            # A context takes 527 MiB.
            least = limit * MIB - (1024 + 527 + piece) * MIB
            bench.row(
                f"{case}: charged at the most",
                f">= {least}",
                gpu["managed_peak_bytes"],
                gpu["managed_peak_bytes"] >= least,
            )
        at_zero(bench, case, report)


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
    taken = seen.get("free_before_import", 0) - seen.get("free_after_import", 1)
    bench.row(
        "IPC: what the import takes, page tables",
        f"0..{CONTEXT_TABLES}",
        taken,
        0 <= taken <= CONTEXT_TABLES,
    )
    bench.equal("IPC: data", True, seen.get("data_is_right"))
    at_zero(bench, "IPC", report)
    output, report = bench.proxied(8192, *program("vmm.py", 256))
    lines = all_json(output)
    imported, made = lines if len(lines) == 2 else ({}, {})
    bench.equal("VMM: made", 256 * MIB, made.get("free_before", 0) - made.get("free_made", 0))
    bench.equal(
        "VMM: what the import takes",
        0,
        imported.get("free_before", 0) - imported.get("free_imported", 1),
    )
    kept = made.get("free_before", 0) - made.get("free_released", 0)
    bench.row(
        "VMM: not given back, page tables",
        f"0..{CONTEXT_TABLES}",
        kept,
        "free_before" in made and 0 <= kept <= CONTEXT_TABLES,
    )
    at_zero(bench, "VMM", report)
    output, report = bench.proxied(8192, *program("fill.py", 16), copies=2)
    gpu = report["gpus"][0]
    charged = gpu["peak_bytes"] + gpu["overhead_peak_bytes"]
    bench.row("two processes: charged together", f"<= {8192 * MIB}", charged, charged <= 8192 * MIB)
    refusals = [seen.get("refusal") for seen in all_json(output)]
    bench.equal("two processes: refusals", ["CUDA_ERROR_OUT_OF_MEMORY"] * 2, refusals)
    at_zero(bench, "two processes", report)
    nccl(bench)


def nccl(bench):
    """Two processes in an instance with a share of two GPUs, each on its own, exchange memory
    through descriptors."""
    if len(bench.free()) < 2 or not installed("torch"):
        return show("skip NCCL: no two GPUs, or no PyTorch")
    limit = 8192
    output, report = bench.proxied(limit, *program("nccl.py"))
    seen = sorted(all_json(output), key=lambda rank: rank["rank"])
    bench.equal("NCCL: sums", [12.0] * 2, [rank["sum"] for rank in seen])
    bench.equal("NCCL: totals", [[limit * MIB] * 2] * 2, [rank["totals"] for rank in seen])
    charged = [gpu["peak_bytes"] + gpu["overhead_peak_bytes"] for gpu in report["gpus"][:2]]
    bench.row("NCCL: charged on each GPU", "> 0", charged, len(charged) == 2 and min(charged) > 0)
    bench.equal("NCCL: refused calls", [0, 0], [gpu["refused_calls"] for gpu in report["gpus"][:2]])
    return at_zero(bench, "NCCL", report)


def installed(name):
    """Whether a Python package can be used here."""
    return importlib.util.find_spec(name) is not None


def programs(bench):
    """Frameworks see the limit and get an ordinary refusal."""
    for limit in (2048, 8192, 40960):
        if installed("torch"):
            output, report = bench.proxied(limit, *program("train.py", 20))
            seen = last_json(output)
            bench.equal(f"PyTorch in {limit} MiB: total", limit * MIB, seen.get("total"))
            said = seen.get("out_of_memory", "")
            bench.row(
                f"PyTorch in {limit} MiB: refusal names the limit",
                f"{limit >> 10}.00 GiB",
                said[-60:],
                f"{limit >> 10}.00 GiB" in said,
            )
            at_zero(bench, f"PyTorch in {limit} MiB", report)
        if installed("jax"):
            output, report = bench.proxied(limit, *program("jax_sum.py"))
            bench.equal(
                f"JAX in {limit} MiB: three quarters",
                limit * MIB * 3 // 4,
                last_json(output).get("limit"),
            )
            at_zero(bench, f"JAX in {limit} MiB", report)
    for missing in (name for name in ("torch", "jax") if not installed(name)):
        show(f"skip {missing}: not installed here")
    vulkan(bench)


def vulkan(bench):
    """A Vulkan program has its limit as well, in an instance that is for graphics."""
    if not ctypes.util.find_library("vulkan"):
        return show("skip Vulkan: no loader here (libvulkan.so.1)")
    limit, piece = 2048, 64
    output, report = bench.proxied(
        limit, *program("vulkan.py", piece), caps="compute,utility,graphics"
    )
    seen, gpu = last_json(output), report["gpus"][0]
    bench.equal("Vulkan: data", True, seen.get("data_is_right"))
    bench.equal("Vulkan: heap", [limit * MIB], seen.get("heaps"))
    bench.equal("Vulkan: refusal", "VK_ERROR_OUT_OF_DEVICE_MEMORY", seen.get("refusal"))
    bench.equal("Vulkan: taken again after freeing", seen.get("pieces"), seen.get("taken_again"))
    left = limit * MIB - gpu["peak_bytes"] - gpu["overhead_peak_bytes"]
    bench.row("Vulkan: left when full", f"0..{piece * MIB}", left, 0 <= left <= piece * MIB)
    at_zero(bench, "Vulkan", report)
    output, report = bench.proxied(limit, *program("vulkan.py", piece), stderr=subprocess.DEVNULL)
    why = report["gpus"][0]["noted_calls"]
    bench.row(
        "Vulkan without graphics: none",
        "graphics named",
        why[:60],
        not all_json(output) and "graphics" in why,
    )
    return at_zero(bench, "Vulkan without graphics", report)


def timed(command, **options):
    """The time that a command takes, microseconds."""
    began = time.perf_counter()
    subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, **options
    )
    return (time.perf_counter() - began) * 1e6


def cost(bench):
    """The cost of calls by themselves, with the library preloaded but no instance, and in an
    instance, in turns, as ratios of medians; and of each ioctl. No case: figures alone."""
    # The tool itself looks for the GPUs, starts the program and looks at it every 10 ms.
    figures = in_turns(
        {
            "direct": lambda: {"nvidia_smi_us": timed(["nvidia-smi"])},
            "preloaded": lambda: {"nvidia_smi_us": timed(["nvidia-smi"], **bench.preloaded())},
            "proxied": lambda: {
                "nvidia_smi_us": timed(
                    [bench.tool, "run", "--mem-mib", "16384", "--", "nvidia-smi"]
                )
            },
        }
    )
    ioctls = {}
    for name, *arguments in [["cost.py"]] + ([["train.py", STEPS]] if installed("torch") else []):
        command = program(name, *arguments)
        made = []

        def proxied(command=command, made=made):
            output, report = bench.proxied(16384, *command)
            made.append(report["calls"])
            return last_json(output)

        figures += in_turns(
            {
                "direct": lambda command=command: bench.direct(*command),
                "preloaded": lambda command=command: bench.direct(*command, **bench.preloaded()),
                "proxied": proxied,
            }
        )
        # With a third of the steps: if as many calls are made as above, steps make none.
        ioctls[name] = calls(bench, program(name, *(steps // 3 for steps in arguments))) | {
            "made": made
        }
        show(f"     ioctls of {name} in an instance, in the rounds above: {made}")
    return {"figures": figures, "ioctls": ioctls}


def in_turns(kinds):
    """Runs what measures something in one way and another, again and again, and shows the medians."""
    seen = {}
    for _ in range(ROUNDS):
        for kind, measure in kinds.items():
            for key, value in measure().items():
                if key.endswith("_us"):
                    seen.setdefault(key, {}).setdefault(kind, []).append(value)
    figures = []
    for key, each in seen.items():
        medians = {kind: statistics.median(values) for kind, values in each.items()}
        ratios = {
            f"{kind}_ratio": round(medians[kind] / medians["direct"], 4)
            for kind in ("preloaded", "proxied")
        }
        figures.append({"what": key, **medians, **ratios, "each": each})
        shown = " ".join(f"{kind} {medians[kind]:>10.1f}" for kind in kinds)
        show(f"     {key:<24} {shown} ratios {ratios['preloaded_ratio']} {ratios['proxied_ratio']}")
    return figures


def calls(bench, command):
    """The time of each call of a program: without an instance, in one, and the part of that which
    is not the driver's."""
    with tempfile.TemporaryDirectory() as folder:
        bench.direct(*command, **bench.preloaded(CGPU_GPU_TIMES=f"{folder}/direct"))
        bench.proxied(16384, *command, env=os.environ | {"CGPU_GPU_TIMES": f"{folder}/proxied"})
        taken = {kind: times(Path(folder), kind) for kind in ("direct", "proxied")}
    direct = [all_ns for kinds in taken["direct"].values() for all_ns, _ in kinds]
    proxied = [one for kinds in taken["proxied"].values() for one in kinds]
    added = sorted(all_ns - driver_ns for all_ns, driver_ns in proxied)
    figures = {
        "calls": [len(direct), len(proxied)],
        "median_us": [median_us(direct), median_us(all_ns for all_ns, _ in proxied)],
        "added_us": {
            name: added[int(len(added) * part)] / 1e3
            for name, part in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99))
        },
        "kinds": {
            kind: {
                "calls": len(ones),
                "direct_us": median_us(all_ns for all_ns, _ in taken["direct"].get(kind, [])),
                "proxied_us": median_us(all_ns for all_ns, _ in ones),
                "added_us": median_us(all_ns - driver_ns for all_ns, driver_ns in ones),
            }
            for kind, ones in sorted(taken["proxied"].items(), key=lambda item: -len(item[1]))
        },
    }
    show(
        f"     ioctls of {Path(command[1]).stem}: {figures['calls'][1]}, median {figures['median_us']} us, added {figures['added_us']} us"
    )
    for kind, figure in figures["kinds"].items():
        show(f"       {kind:<12} {figure}")
    return figures


def times(folder, prefix):
    """Nanoseconds of each call and of it in the driver, by the kind of call, from what the library
    has written."""
    kinds = {}
    for file in folder.glob(f"{prefix}.*"):
        for line in file.read_text().splitlines():
            kind, _, all_ns, driver_ns = line.split()
            kinds.setdefault(ESCAPES.get(kind, kind), []).append((int(all_ns), int(driver_ns)))
    return kinds


def median_us(nanoseconds):
    """Their median in microseconds; nothing where there is none."""
    nanoseconds = list(nanoseconds)
    return round(statistics.median(nanoseconds) / 1e3, 3) if nanoseconds else None


def weighing(bench):
    """How the module's scheduler shares the GPU: the cases of weights.py. No verdict, but that each
    comes to an end."""
    lines = list(weights.measure(bench.tool.parent, weights.default_cases(), 2.0))
    for line in lines:
        if "failed" in line:
            bench.equal(line["case"], "an end", line["failed"])
        else:
            show(
                f"     {line['case']:<44} wanted {line['wanted']} share {line['share']} together {line['total']}"
            )
    return lines


GROUPS = {
    "memory": memory,
    "managed": managed,
    "share": share,
    "programs": programs,
    "cost": cost,
    "weights": weighing,
}


def main():
    """Runs the groups and prints the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, default=HERE / "../../target/gpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("groups", nargs="*", default=list(GROUPS), metavar="GROUP")
    options = parser.parse_args()
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"there is no group {', '.join(sorted(unknown))}")
    bench = Bench(options.bin.resolve())
    try:
        found = bench.gpus()
        name = subprocess.check_output(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], text=True
        )
    except (OSError, subprocess.SubprocessError) as failure:
        show(f"test-gpu: the driver cannot be asked: {failure}")
        sys.exit(2)
    gpu = re.sub(r"\s+", " ", name).strip()
    show(f"{gpu}, driver {found['driver']}, {time.strftime('%Y-%m-%d')}")
    figures = {group: GROUPS[group](bench) for group in options.groups}
    failed = sum(not row["passed"] for row in bench.rows)
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": gpu,
        "driver": found["driver"],
        "command": " ".join(["run.py", *options.groups]),
        "cases": bench.rows,
        "cost": figures.get("cost"),
        "weights": figures.get("weights"),
    }
    text = json.dumps(result, indent=1) + "\n"
    if options.json:
        options.json.write_text(text)
    else:
        sys.stdout.write(text)
    show(f"{len(bench.rows) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    os.environ["PYTHONUNBUFFERED"] = "1"
    main()
