#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""fuzz.py smoke | run SECONDS [TARGET...] | again TARGET FILE: fuzzes the module's pure code and
what cgpu-dra reads, on this machine.

  smoke    each target for a fixed number of runs with a fixed seed; for make test
  run      the targets, by default all, one after the other in one process, each for its part of
           the time
  again    one input, to see again what was found

The targets are built with libFuzzer and with the compiler's coverage (SanitizerCoverage), which the
stable toolchain has; libFuzzer is C++, so g++ is needed. Corpora are kept in target/fuzz/corpus,
seeded from tests/traces; what fails is kept in target/fuzz/found. See docs/design/fuzzing.md.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent.parent
BUILD = TREE / "target/fuzz"
TRIPLE = "x86_64-unknown-linux-gnu"
TARGETS = ("sequence", "frontend", "control", "uvm", "kubernetes")
# Inputs of each target in the smoke run, those of the recordings among them.
SMOKE_RUNS = 6000
# Longest inputs: what the seeds of a target need, see LONGEST in src/seeds.rs.
LONGEST = {"sequence": 16385, "frontend": 8192, "control": 8192, "uvm": 16384, "kubernetes": 4096}
# Level 3: every edge. Comparisons are traced, so that numbers in the tables are found.
COVERAGE = (
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=3",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    # An overflow or a wrong index in the kernel fails here.
    "-Cdebug-assertions",
    "-Coverflow-checks",
    "-Ccodegen-units=1",
)


def cargo(*arguments, coverage):
    """Builds in a folder of its own: all crates are compiled anew with coverage."""
    environment = dict(os.environ)
    if coverage:
        environment["RUSTFLAGS"] = " ".join(COVERAGE)
    command = [
        "cargo",
        *arguments,
        "--quiet",
        "--locked",
        "--release",
        "-p",
        "cgpu-fuzz",
        "--target",
        TRIPLE,
    ]
    subprocess.run(
        [*command, "--target-dir", BUILD / ("engine" if coverage else "seeds")],
        cwd=TREE,
        env=environment,
        check=True,
    )


def build():
    """Builds the targets, and fills the corpora where there are none."""
    cargo(
        "build",
        "--no-default-features",
        "--features",
        "engine",
        *(f"--bin={target}" for target in TARGETS),
        coverage=True,
    )
    recordings = sorted((TREE / "tests/traces").glob("*.jsonl.xz"))
    cargo("build", "--no-default-features", "--features=seeds", "--bin=seeds", coverage=False)
    seeds = BUILD / "seeds" / TRIPLE / "release/seeds"
    subprocess.run([seeds, BUILD / "corpus", *recordings], check=True)


def fuzz(target, *options, corpus=None):
    """Runs a target; returns what it said."""
    found = BUILD / "found" / target
    found.mkdir(parents=True, exist_ok=True)
    command = [
        BUILD / "engine" / TRIPLE / "release" / target,
        f"-artifact_prefix={found}/",
        f"-max_len={LONGEST[target]}",
        f"-dict={BUILD / 'corpus/dictionary'}",
        "-print_final_stats=1",
        # Of the clock, not of the processor: a machine that has much else to do must not look like
        # a slow input.
        "-timeout=600",
        "-rss_limit_mb=2048",
        *options,
        *([corpus] if corpus else []),
    ]
    said = []
    # libFuzzer, and Rust when it panics, write to standard error.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as run:
        for line in run.stderr:
            said.append(line)
            # Lines about new inputs, and those with the entries of the dictionary ("DE:"), are many
            # and tell nobody anything.
            if not re.match(r"#\d+\s+(NEW|REDUCE|pulse)", line) and "DE:" not in line:
                sys.stdout.write(line)
                sys.stdout.flush()
    return run.returncode, "".join(said)


def figures(said):
    """The figures that libFuzzer prints at the end: runs, edges that were covered, of how many,
    features, and inputs in the corpus. None: it did not get that far."""
    last = re.findall(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)/", said)
    edges = re.search(r"\((\d+) inline 8-bit counters\)|(\d+) inline 8-bit counters", said)
    runs = re.search(r"stat::number_of_executed_units:\s+(\d+)", said)
    if not last or not runs or not edges:
        return None
    return {
        "runs": int(runs[1]),
        "covered": int(last[-1][1]),
        "features": int(last[-1][2]),
        "inputs": int(last[-1][3]),
        "edges": int(edges[1] or edges[2]),
    }


def smoke():
    """A fixed number of runs of each target, from the recordings; what is new is not kept."""
    passed = failed = 0
    for target in TARGETS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as new:
            runs = f"-runs={SMOKE_RUNS}"
            code, said = fuzz(
                target, runs, "-seed=1", "-verbosity=1", new, corpus=BUILD / "corpus" / target
            )
        told = figures(said)
        # A target that covers nothing beyond its own frame checks nothing.
        good = code == 0 and told is not None and told["covered"] > 500
        passed += good
        failed += not good
        print(
            f"{target}: {'ok' if good else 'FAILED'}, {told}, {time.monotonic() - began:.0f} s",
            flush=True,
        )
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def run(seconds, targets):
    """A long run, and its figures as a table."""
    rows = []
    for target in targets:
        kept = BUILD / "kept" / target
        kept.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        limit = f"-max_total_time={seconds // len(targets)}"
        # New inputs go to the first folder.
        code, said = fuzz(target, limit, str(kept), corpus=BUILD / "corpus" / target)
        rows.append((target, code, figures(said), time.monotonic() - began))
        if code:
            print(f"{target}: FOUND something, see {BUILD / 'found' / target}")
    print(
        "| target | seconds | runs | edges covered | features | inputs | findings |\n"
        "|---|---|---|---|---|---|---|"
    )
    for target, code, told, took in rows:
        told = told or dict.fromkeys(("runs", "covered", "edges", "features", "inputs"), "?")
        print(
            f"| {target} | {took:.0f} | {told['runs']} | {told['covered']} of {told['edges']} "
            f"| {told['features']} | {told['inputs']} | {'one, the run ended' if code else 'none'} |"
        )
    return 1 if any(code for _, code, _, _ in rows) else 0


def main():
    arguments = sys.argv[1:]
    match arguments:
        case ["smoke"]:
            build()
            return smoke()
        case ["run", seconds, *targets] if seconds.isdigit() and set(targets) <= set(TARGETS):
            build()
            return run(int(seconds), targets or TARGETS)
        case ["again", target, file] if target in TARGETS:
            build()
            return fuzz(target, str(Path(file).resolve()))[0]
    sys.exit(f"usage: fuzz.py smoke | run SECONDS [{'|'.join(TARGETS)}]... | again TARGET FILE")


if __name__ == "__main__":
    sys.exit(main())
