#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""bench.py [--quick] [--kernel KERNEL]: what the proxy costs, in the test machine on the stand-in
driver. JSON on stdout, a table on stderr. KERNEL is that of build.sh (stock).

The machine boots twice: with a clock that counts instructions, on one processor, whose figures
repeat whatever else the host does; and as it is otherwise, for what happens on two processors at
once. Nothing is judged but shown beside the goals: no figure of the second kind is worth a test."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Instructions that a call may cost more than without the module, by the beginning of its name.
GOALS = (
    ("RM_CONTROL that is refused", 1500),
    ("RM_CONTROL that is answered", 1500),
    ("RM_CONTROL, the cheapest", 6000),
    ("FB_GET_INFO_V2", 6000),
    ("RM_ALLOC of memory", 8200),
    ("RM_FREE of memory", 6000),
    ("RM_MAP_MEMORY", 7200),
    ("mmap of", 3000),
    ("munmap of", 1500),
    ("first store", 0),
    ("store to", 0),
    ("store that faults", 2000),
    ("UVM_MAP", 8000),
    ("UVM_", 6000),
)
# The goals of other kernels than stock, for which the module is made from the object
# (docs/performance.md).
FROM_OBJECT = 1.1
# Calls of a counted round: as many as go by until the module takes its pages out of a program's
# page tables (os_interface/scratch.rs), so that each round has that once; and so few that it has no
# timer's tick.
CYCLE = "15"
MEMORY_GOALS = (
    ("instance_bytes", "an idle instance", 64 << 10),
    ("client_bytes", "a client", None),
    ("object_bytes", "an object", 200),
)


def machine(kernel, name, options, arguments):
    """The report of one boot of a kernel."""
    command = [
        HERE / "run.sh",
        "--no-build",
        "--kernel",
        kernel,
        "--name",
        name,
        "--memory",
        "4096",
        *options,
        "--",
        "cgpu-guest",
        "bench",
        *arguments,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"bench.py: {name} ended with {done.returncode}")
    return json.loads(done.stdout)


def setting(row):
    """The differences from one caller in one instance with ten objects."""
    words = []
    if row["beside"]:
        words.append(row["beside"])
    elif row["callers"] > 1:
        words.append(
            f"{row['callers']} callers in {row['in_instances']} instance{'s' if row['in_instances'] > 1 else ''}"
        )
    elif row["instances"] > 1 and row["objects"] > 0:
        words.append(f"{row['instances']} instances")
    if row["objects"] > 10:
        words.append(f"{row['objects']:,} objects")
    if row["processes"]:
        words.append(f"{row['processes']:,} processes")
    return ", ".join(words)


def table(report, counted, kernel):
    """Rows for people. Instructions are the least of the rounds: that clock jumps for a timer's
    tick."""
    what = "instructions, least" if counted else "nanoseconds, medians (and quartiles)"
    print(f"\n{what} of {report['rounds']} rounds", file=sys.stderr)
    print(
        f"{'call':<34}{'with':<28}{'direct':>22}{'proxied':>24}{'added':>9}{'ratio':>7}{'goal':>7}",
        file=sys.stderr,
    )
    for row in report["rows"]:
        sides = [row["direct"], row["proxied"]]
        if counted:
            texts = [f"{s['least']:,.0f}" for s in sides]
            added, ratio = row["least_added"], row["least_ratio"]
            goal = next((g for name, g in GOALS if row["call"].startswith(name)), None)
            if goal and kernel != "stock":
                goal = round(goal * FROM_OBJECT)
        else:
            texts = [f"{s['median']:,.0f} ({s['low']:,.0f}..{s['high']:,.0f})" for s in sides]
            added, ratio, goal = row["added"], row["ratio"], None
        over = "" if goal is None else f"{goal:,}" + ("!" if added > goal else "")
        print(
            f"{row['call']:<34}{setting(row):<28}{texts[0]:>22}{texts[1]:>24}{added:>9,.0f}{ratio:>7.2f}{over:>7}",
            file=sys.stderr,
        )


def growth(report):
    """By how much the added instructions grow with instances, processes and objects."""
    print("\nadded, of that with one instance, ten objects, nobody else", file=sys.stderr)
    alone = {r["call"]: r["least_added"] for r in report["rows"] if not setting(r)}
    for row in report["rows"]:
        if setting(row) and alone.get(row["call"]):
            print(
                f"{row['call']:<34}{setting(row):<28}{row['least_added'] / alone[row['call']]:>7.2f}",
                file=sys.stderr,
            )


def unmapping(kernel):
    """The instructions to map a page, store to it and unmap it: of any program of the host, without
    the module and with it, and of a tenant."""
    count = ["--count-instructions", "--limit", "1200"]
    asked = ["--unmap", "--calls", CYCLE]
    without = machine(kernel, "unmap-without", [*count, "--load", "driver"], asked)
    loaded = machine(kernel, "unmap", count, asked)
    whole = without["host"]["least"]
    print("\ninstructions to map a page, store to it and unmap it", file=sys.stderr)
    for name, spread in (
        ("without the module", without["host"]),
        ("a program of the host", loaded["host"]),
        ("a program of an instance", loaded["tenant"]),
    ):
        least = spread["least"]
        print(f"{name:<28}{least:>10,.0f}{least - whole:>9,.0f}{least / whole:>7.2f}", file=sys.stderr)
    return {"without": without["host"], **loaded}


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "--quick", action="store_true", help="fewer rounds, objects and processes"
    )
    arguments.add_argument("--kernel", default="stock")
    arguments.add_argument("--unmap", action="store_true", help="only unmapping of memory")
    options = arguments.parse_args()
    quick, kernel = options.quick, options.kernel
    built = [HERE / "build.sh", "--kernel", kernel]
    subprocess.run(built, check=True, stdout=subprocess.DEVNULL)
    unmapped = unmapping(kernel)
    if options.unmap:
        json.dump(unmapped, sys.stdout, indent=1)
        print()
        return
    few = ["--rounds", "5", "--objects", "16000", "--processes", "20"] if quick else []
    counted = machine(
        kernel, "count", ["--count-instructions", "--limit", "3600"], [*few, "--calls", CYCLE]
    )
    table(counted, True, kernel)
    growth(counted)
    timed = machine(
        kernel,
        "time",
        ["--gpus", "2", "--limit", "3600"],
        [*few, "--calls", "20"]
        if quick
        else ["--calls", "100", "--objects", "10000", "--processes", "100"],
    )
    table(timed, False, kernel)
    print("\nmemory of the module", file=sys.stderr)
    for key, name, goal in MEMORY_GOALS:
        limit = "" if goal is None else f" (goal: {goal:,})"
        print(f"{name:<20}{counted['memory'][key]:>12,.0f} bytes{limit}", file=sys.stderr)
    json.dump({"counted": counted, "timed": timed, "unmapped": unmapped}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
