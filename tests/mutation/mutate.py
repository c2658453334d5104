#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""mutate.py [--floors host,vm,driver] [--only WORDS] [--unfound] [--results FILE] [--tree FOLDER]:
plants the faults of faults.txt in the module, one at a time, and tells which floor of the tests
finds each. It works in a work tree of its own (target/mutant) of what is committed, and keeps what
it found in FILE (a line for each fault and floor), so that it goes on where it was stopped. A line
counts for its commit and its fault's text alone: after a change of either, the floor runs again.
Two of them run side by side with a FOLDER and a FILE each.

A floor finds a fault if one of its steps fails and says which test failed, or that the kernel has a
fault; the first line that says so is kept. A step that fails otherwise (a machine that does not
start, say) is "unclear", and no find. Each floor runs without a fault first, and has to pass. A
fault that does not compile counts for nothing, and has to be written anew. --unfound: only those
that nobody has found yet. --check looks whether each fault's text is there, and how steps that
failed are judged."""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
RUN = ["tests/vm/run.sh", "--no-build", "--gpus", "2", "--limit", "900", "--name", "mutant", "--"]
DRIVER_PARTS = ("suite", "session", "orders", "faults", "sharing")
# The steps of each floor.
FLOORS = {
    "host": [["cargo", "test", "--quiet", "--locked", "-p", "cgpu_km"]],
    "vm": [
        [*RUN, "cgpu-guest", "suite", "--unload"],
        [*RUN, "cgpu-guest", "attacks"],
        [*RUN, "cgpu-guest", "race", "10000"],
    ],
    "driver": [["tests/driver/test.sh", part] for part in DRIVER_PARTS],
}
# Before a floor: what has to work, or the fault is none.
BUILDS = {
    "host": ["cargo", "test", "--quiet", "--locked", "-p", "cgpu_km", "--no-run"],
    "vm": ["tests/vm/build.sh"],
    "driver": ["tests/vm/build.sh"],
}
# Lines that name the test that failed, and those of check-log.sh about the kernel.
TELLING = re.compile(r"FAILED|panicked at|kernel fault")
# The name of a floor's run without a fault.
NO_FAULT = "no fault"


class Fault:
    """One change: in a file, a text for another."""

    def __init__(self, block):
        self.name, self.path, *lines = block
        text = lambda mark: "\n".join(line[1:] for line in lines if line.startswith(mark))
        self.old, self.new = text("-"), text("+")
        content = "\0".join([self.path, self.old, self.new])
        self.hash = hashlib.sha256(content.encode()).hexdigest()[:12]

    def plant(self, tree):
        """Puts it into a tree. Raises ValueError if its text is not there once."""
        file = tree / "cgpu_km" / self.path
        source = file.read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: its text is not once in {self.path}")
        file.write_text(source.replace(self.old, self.new))


def faults(text):
    """The faults of a list."""
    found = []
    for line in text.splitlines():
        if line.startswith("= "):
            found.append([line[2:]])
        elif found and line and not line.startswith("#"):
            found[-1].append(line)
    return [Fault(block) for block in found]


def run(command, tree):
    """Exit code and output of a command."""
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=tree, text=True, errors="replace", check=False, **both)
    return done.returncode, done.stdout


def verdict(floor, tree):
    """The verdict of a floor on a tree: not built, missed, or the line that found it."""
    code, output = run(BUILDS[floor], tree)
    if code:
        return f"not built: {last(output)}"
    for step in FLOORS[floor]:
        code, output = run(step, tree)
        if code:
            return judge(code, output)
    return "missed"


def judge(code, output):
    """The verdict on the output of a step that failed."""
    for line in output.splitlines():
        if TELLING.search(line):
            return f"found: {line.strip()[:160]}"
    return f"unclear: exit code {code}: {last(output)}"


def self_test():
    """A step that fails without a word about a test has found nothing."""
    found = judge(101, "test proxy::a_size ... FAILED\n1 passed; 1 failed\n")
    assert found == "found: test proxy::a_size ... FAILED", found
    assert judge(97, "1 passed, 0 failed\nkernel fault: BUG: x\n").startswith("found: kernel fault")
    for output in ("", "run.sh: cannot read /x\n", "machine: stopped after 900 s\n"):
        assert judge(98, output).startswith("unclear: exit code 98"), output


def last(output):
    """The last line that says something."""
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip()[:160] if lines else "no word"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--floors", default="host,vm,driver")
    parser.add_argument("--only", default="")
    parser.add_argument("--results", type=Path, default=TREE / "target/mutation.tsv")
    parser.add_argument("--tree", type=Path, default=TREE / "target/mutant")
    parser.add_argument("--unfound", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    listed = faults((HERE / "faults.txt").read_text())
    planted = [fault for fault in listed if asked.only in fault.name]
    for fault in planted:
        source = (TREE / "cgpu_km" / fault.path).read_text()
        if source.count(fault.old) != 1 or fault.old == fault.new:
            sys.exit(f"mutate.py: {fault.name}: its text is {source.count(fault.old)} times there")
    if asked.check:
        self_test()
        return print(f"faults: {len(planted) + 1} passed, 0 failed")
    tree = asked.tree.resolve()
    git = ["git", "-C", str(TREE)]
    if not tree.exists():
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", tree, "HEAD"], check=True)
    os.environ["CARGO_TARGET_DIR"] = f"{tree}-target"
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    keys = {fault.name: f"{head[:12]} {fault.hash}" for fault in listed} | {NO_FAULT: head[:12]}
    known = {}
    if asked.results.exists():
        for line in asked.results.read_text().splitlines():
            name, floor, said, *key = line.split("\t")
            if key == [keys.get(name)]:
                known[name, floor] = said
    is_found = lambda name: any(known.get((name, f), "").startswith("found") for f in FLOORS)
    if asked.unfound:
        planted = [fault for fault in planted if not is_found(fault.name)]

    def decide(name, floor, plant):
        if (name, floor) in known:
            return
        subprocess.run(["git", "-C", tree, "checkout", "--quiet", "--force", head], check=True)
        plant(tree)
        said = known[name, floor] = verdict(floor, tree)
        asked.results.parent.mkdir(exist_ok=True)
        with asked.results.open("a") as file:
            file.write(f"{name}\t{floor}\t{said}\t{keys[name]}\n")
        print(f"{name}: {floor}: {said}", flush=True)

    for floor in asked.floors.split(","):
        decide(NO_FAULT, floor, lambda tree: None)
        if known[NO_FAULT, floor] != "missed":
            sys.exit(f"mutate.py: {floor} fails without a fault: {known[NO_FAULT, floor]}")
    for fault in planted:
        for floor in asked.floors.split(","):
            decide(fault.name, floor, fault.plant)
    for floor in asked.floors.split(","):
        said = [known[fault.name, floor] for fault in planted]
        found = sum(word.startswith("found") for word in said)
        print(f"{floor}: {found} of {len(said)} found")
    nobody = [fault.name for fault in planted if not is_found(fault.name)]
    print("nobody finds:", "; ".join(nobody) or "none")


if __name__ == "__main__":
    sys.exit(main())
