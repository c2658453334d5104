#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Checks that the tables of branch 580 know every call of the recordings.

    recordings.py [FILE...]      without a file: tests/traces/*.jsonl.xz

Fails where a recording has an escape, a class, a control or a UVM command that the tables do not
let through, or an argument of another size; or one that takes other capabilities than those that
the program is for: utility for nvidia-smi, graphics for Vulkan, compute and utility for PyTorch and
JAX, compute for all others.
"""

import collections
import glob
import json
import lzma
import os
import re
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NVIDIA = os.path.join(HERE, "../../cgpu_km/nvidia")
STATUS_MAX = 0x10009
INVALID_ARGUMENT = 0x1F

# Classes that are refused although a recording has them, and why.
REFUSED_CLASSES = {
    # They need a descriptor of /dev/nvidia-caps, whose nodes a container does not get.
    0xC639: "MIG configuration",
    0xC640: "MIG monitoring",
}

# The same for controls: what the programs do without.
REFUSED_CONTROLS = {
    0x2080016D: "sessions of the video encoder: those of all tenants",
    0x2080017B: "sessions of frame capture: those of all tenants",
    0x20801819: "traffic of the PCIe link: that of all tenants",
}
# Parts of a recording's name, and what the program is for.
PURPOSES = {
    "nvidia-smi": {"utility"},
    "vulkan": {"graphics"},
    "video": {"compute", "video"},
    # They ask NVML as well.
    "torch": {"compute", "utility"},
    "jax": {"compute", "utility"},
    "nccl": {"compute", "utility"},
}

SETS = {"compute", "utility", "graphics", "video", "profiling", "rdma"}
WORDS = {"BASE": SETS, "WORK": SETS - {"utility"}}


def capabilities(expression):
    """The sets that a Rust expression names."""
    names = re.findall(r"[A-Z]+", expression)
    return set().union(*(WORDS.get(name, {name.lower()}) for name in names))


def read(name):
    with open(os.path.join(NVIDIA, name)) as f:
        return f.read()


class Tables:
    """The tables in the Rust sources."""

    def __init__(self):
        # A long row stands in several lines.
        text = re.sub(r",\n {8}", ", ", read("generated/r580.rs"))
        self.classes = {
            int(number, 16): (name, int(size), presence == "Optional", capabilities(caps))
            for number, name, size, presence, caps in re.findall(
                r'class\((0x[0-9a-f]+), "(\w+)", (\d+), \w+, (\w+), ([^&]+), &', text
            )
        }
        self.controls = {
            int(number, 16): (name, int(size), capabilities(caps))
            for number, name, size, caps in re.findall(
                r'control\((0x[0-9a-f]+), "(\w+)", (\d+), [\w()]+, &\[.*?\], ([^&]+), &', text
            )
        }
        # Of these the table has the most that the parameters may have.
        self.firmware = {
            int(number, 16)
            for number in re.findall(r'control\((0x[0-9a-f]+), "\w+", \d+, Firmware,', text)
        }
        self.uvm = {
            int(number): (name, int(size), int(status), capabilities(caps))
            for number, name, size, status, caps in re.findall(
                r'uvm\((\d+), "(\w+)", (\d+), (\d+), .*, UvmKind::[\w()]+, (.+)\),', text
            )
        }
        self.escapes = self.read_escapes()
        counts = [int(n) for n in re.findall(r"\[\w+Entry; (\d+)\]", text)]
        assert counts == [len(self.classes), len(self.controls), len(self.uvm)], counts

    @staticmethod
    def read_escapes():
        nvos = read("generated/nvos.rs")
        sizes = {"nvos": {"GPU_ID_SIZE": 4}}
        for name, body in re.findall(r"^pub mod (\w+) \{(.*?)^\}", nvos, flags=re.S | re.M):
            size = re.search(r"pub const SIZE: usize = (\d+);", body)
            sizes[name] = {"SIZE": int(size[1])} if size else {}
        text = read("escape.rs")
        rows = re.findall(
            r'^    \w+ = (\w+) "(NV_ESC_\w+)"\s+(\w+)\(([^;]*)\);', text, flags=re.M
        )
        found = {}
        for number, name, rule, arguments in rows:
            if rule == "refused":
                continue
            of = [sizes[a][b] for a, b in re.findall(r"(\w+)::(\w*SIZE)\b", arguments)]
            # Numbers in a list, and the one list that has a name.
            of += [int(n) for n in re.findall(r"(?<=[\[ ])\d+\b", arguments)]
            if "nvos::DMA_BUF_SIZES" in arguments:
                listed = re.search(r"DMA_BUF_SIZES: \[usize; \d+\] = \[(.+)\];", read("nvos.rs"))
                of = [int(n) for n in listed[1].split(",")]
            assert of, name
            if rule == "records":
                takes = lambda size, record=of[0]: size > 0 and size % record == 0
                found[int(number, 0)] = (name, takes, "Control", SETS)
                continue
            devices = re.search(r"\b(Control|Gpu|Both)\b", arguments)[1]
            only = re.search(r"\.only\((.+)", arguments)
            caps = capabilities(only[1] if only else "BASE")
            found[int(number, 0)] = (name, lambda size, of=of: size in of, devices, caps)
        refused = [rule for _, _, rule, _ in rows].count("refused")
        names = len(re.findall(r'^    \w+ = \w+ "NV_ESC_', text, flags=re.M))
        assert len(found) + refused == names, (len(found), refused, names)
        return found


def check(call, tables, seen, own):
    """Yields what is wrong with a recorded call of a program that is for `own`."""
    before, after = bytes.fromhex(call.get("in", "")), bytes.fromhex(call.get("out", ""))
    if "uvm" in call["path"]:
        request = int(call["req"], 0) if isinstance(call["req"], str) else call["req"]
        if request not in tables.uvm:
            yield f"UVM command {request:#x}"
            return
        seen["uvm"].add(request)
        name, size, status, caps = tables.uvm[request]
        if not caps & own:
            yield f"{name} takes one of {sorted(caps)}"
        if len(after) < size:
            yield f"{name} has {len(after)} bytes"
        elif size and struct.unpack_from("<I", after, status)[0] > STATUS_MAX:
            yield f"{name} has no status at {status}"
        return

    number, size = call["nr"], call["size"]
    if number not in tables.escapes:
        yield f"escape {number:#x}"
        return
    name, takes, devices, caps = tables.escapes[number]
    if not caps & own:
        yield f"{name} takes one of {sorted(caps)}"
    seen["escapes"].add(number)
    if not takes(size):
        yield f"{name} has {size} bytes"
    on = "Control" if call["path"].endswith("ctl") else "Gpu"
    if devices not in (on, "Both"):
        yield f"{name} on {call['path']}"

    if call.get("kind") == "control":
        number = int(call["cmd"], 0)
        params, count = struct.unpack_from("<QI", before, 16)
        if number in REFUSED_CONTROLS:
            if number in tables.controls:
                yield f"control {number:#010x}, which is to be refused"
        elif number not in tables.controls:
            yield f"control {number:#010x}"
        else:
            name, wanted, caps = tables.controls[number]
            seen["firmware" if number in tables.firmware else "controls"].add(number)
            if number in tables.firmware:
                wanted = min(wanted, count)
            if not caps & own:
                yield f"{name} takes one of {sorted(caps)}"
            refused = struct.unpack_from("<I", after, 28)[0] == INVALID_ARGUMENT
            # If a program's size is another one, the driver has to have refused it, as we do.
            if not refused and (count != wanted or (params != 0) != (wanted != 0)):
                yield f"{name} has {count} bytes of parameters, not {wanted}"
    elif call.get("kind") == "alloc":
        number = int(call["cmd"], 0)
        if number in REFUSED_CLASSES:
            return
        if number not in tables.classes:
            yield f"class {number:#x}"
            return
        seen["classes"].add(number)
        name, wanted, optional, caps = tables.classes[number]
        if not caps & own:
            yield f"{name} takes one of {sorted(caps)}"
        params = struct.unpack_from("<Q", before, 16)[0]
        if params == 0 and wanted and not optional:
            yield f"{name} without parameters"
        if params != 0 and not wanted:
            yield f"{name} with parameters"


def purpose(name):
    """The capabilities that a recorded program is for."""
    return next((caps for part, caps in PURPOSES.items() if part in name), {"compute"})


def main():
    files = sys.argv[1:] or sorted(glob.glob(os.path.join(HERE, "../traces/*.jsonl.xz")))
    if not files:
        raise SystemExit("no recording")
    tables = Tables()
    seen = collections.defaultdict(set)
    wrong = collections.Counter()
    calls = 0
    for path in files:
        own = purpose(os.path.basename(path))
        with lzma.open(path, "rt") as lines:
            for line in lines:
                call = json.loads(line)
                if call["op"] == "ioctl":
                    calls += 1
                    for problem in check(call, tables, seen, own):
                        wrong[f"{os.path.basename(path)}: {problem}"] += 1
    for problem, count in sorted(wrong.items()):
        print(f"{problem} ({count} times)")
    counts = ", ".join(f"{len(numbers)} {kind}" for kind, numbers in sorted(seen.items()))
    print(f"{len(files)} recordings, {calls} calls: {counts}")
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
