#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""profile.py [--kernel KERNEL] [--call WORDS] [--least N] [--calls N]: where the instructions of a
call go, in the test machine on the stand-in driver. For each kind of call of `make bench`: how many
instructions one takes on the driver's own nodes and through an instance, and the tree of functions
of the second with what each takes with all that it calls.

QEMU writes down every instruction of one call, the last of a round of so many calls (profile.c);
/proc/kallsyms says whose it is. An interrupt in the midst of a call would show as functions that do
not belong there."""

import argparse
import array
import base64
import bisect
import gzip
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def plain(name):
    """A Rust symbol's last two words, a C one as it is."""
    if not name.startswith("_R"):
        return name
    words = []
    at = 0
    while at < len(name):
        found = re.compile(r"(?:s[0-9a-zA-Z]*_)?(\d+)_?").match(name, at)
        if found and 0 < int(found[1]) <= len(name) - found.end():
            size = int(found[1])
            words.append(name[found.end() : found.end() + size])
            at = found.end() + size
        else:
            at += 1
    words = [w for w in words if w not in ("cgpu_km", "kernel", "core")]
    return "::".join(words[-4:]) or name


class Symbols:
    def __init__(self, text):
        rows = []
        for line in text.splitlines():
            address, kind, name, *module = line.split()
            if kind in "tTwW":
                rows.append((int(address, 16), name, module[0] if module else ""))
        rows.sort(key=lambda row: row[0])
        self.starts = [row[0] for row in rows]
        self.rows = rows
        self.known = {}

    def of(self, address):
        """The start and the name of the function at an address."""
        found = self.known.get(address)
        if not found:
            if address < 1 << 47:
                found = (0, "the program")
            else:
                start, name, module = self.rows[bisect.bisect(self.starts, address) - 1]
                found = (start, plain(name) + (f" {module}" if module else ""))
            self.known[address] = found
        return found


class Node:
    def __init__(self, name, start):
        self.name, self.start, self.own, self.below = name, start, 0, []

    def all(self):
        return self.own + sum(node.all() for node in self.below)

    def show(self, least, depth=0):
        everything = self.all()
        if everything < least:
            return
        print(f"{everything:>8,} {self.own:>7,}  {'  ' * depth}{self.name}")
        for node in self.below:
            node.show(least, depth + 1)


def tree(symbols, addresses):
    """Calls, as far as they show: an entry at a start is a call, going on is a return."""
    root = Node("all", -1)
    stack = [root]
    for address in addresses:
        start, name = symbols.of(address)
        if stack[-1].start != start:
            place = next((i for i in reversed(range(len(stack))) if stack[i].start == start), None)
            if address == start or place is None:
                node = Node(name, start)
                stack[-1].below.append(node)
                stack.append(node)
            else:
                del stack[place + 1 :]
        stack[-1].own += 1
    return root


def machine(folder, kernel, calls):
    """The output of `bench --marked` with so many calls a round, the symbols of that boot and the
    stretches."""
    root = subprocess.run(
        [HERE / "kernel-env.sh"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    build = "gcc -O2 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -o /stage/profile.so /stage/profile.c"
    (folder / "profile.c").write_bytes((HERE / "profile.c").read_bytes())
    inside = f'. {HERE}/lib.sh; in_root "$1" "$2" /stage rw -- {build}'
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", inside, HERE / "profile.py", root, folder], check=True
    )
    trace = folder / "trace"
    command = f"gzip -c /proc/kallsyms | base64; echo =; cgpu-guest bench --marked --rounds 1 --calls {calls}"
    options = [
        "--no-build",
        "--kernel",
        kernel,
        "--name",
        "profile",
        "--count-instructions",
        "--limit",
        "1800",
        "--plugin",
        f"{folder}/profile.so:{trace}",
    ]
    done = subprocess.run(
        [HERE / "run.sh", *options, "--", "sh", "-c", command], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"profile.py: the machine ended with {done.returncode}")
    kallsyms, told = done.stdout.split("\n=\n", 1)
    marks = [line.split(" ", 2)[1:] for line in told.splitlines() if line.startswith("mark ")]
    words = array.array("Q", trace.read_bytes())
    stretches, start = [], 0
    while start < len(words):
        end = words.index(0, start)
        stretches.append(words[start:end])
        start = end + 1
    if not len(marks) // 2 < len(stretches) <= len(marks):
        sys.exit(f"profile.py: {len(marks)} calls were marked and {len(stretches)} seen")
    # The first one wakes the plugin.
    marks = marks[-len(stretches) :]
    return Symbols(gzip.decompress(base64.b64decode(kallsyms)).decode()), marks, stretches


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--kernel", default="stock", help="as for build.sh")
    arguments.add_argument("--call", default="", help="only calls with this in their names")
    arguments.add_argument(
        "--least", type=int, default=100, help="functions that take fewer instructions are left out"
    )
    arguments.add_argument(
        "--calls", type=int, default=20, help="calls of a round, of which the last is shown"
    )
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        symbols, marks, stretches = machine(Path(folder), options.kernel, options.calls)
    # The second round: in the first one, pages are allocated.
    last = {tuple(mark): stretch for mark, stretch in zip(marks, stretches)}
    for (side, name), stretch in last.items():
        if side != "proxied" or options.call not in name:
            continue
        direct = last[("direct", name)]
        print(f"\n{name}: {len(direct):,} direct, {len(stretch):,} proxied")
        print(f"{'with all':>8} {'itself':>7}")
        tree(symbols, stretch).show(options.least)


if __name__ == "__main__":
    main()
