#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""frames.py OBJECT < DISASSEMBLY: fails when a function takes more than 1,024 bytes of the stack.
frames.py --self-test: planted frames are found.

DISASSEMBLY is what `objdump --disassemble --demangle --no-show-raw-insn` prints of OBJECT, which
is only a name here. A task has 16 KiB of kernel stack, and a call through the proxy ends deep in
the driver: what is above it must be small. The compiler's own limit (CONFIG_FRAME_WARN) does not
look at Rust code."""

import re
import sys

LARGEST = 1024
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
# `sub`, or `add` of a negative number, or `lea`. A frame of more than a page is taken a page at a
# time, in a loop up to an address that `lea` computes first.
TAKEN = (
    re.compile(r"\bsubq? +\$0x([0-9a-f]+),%rsp"),
    re.compile(r"\baddq? +\$-0x([0-9a-f]+),%rsp"),
    re.compile(r"\baddq? +\$0x(ffffffff[0-9a-f]{8}),%rsp"),
    re.compile(r"\blea +-0x([0-9a-f]+)\(%rsp\),%r(?:sp|11)"),
)
SAVED = re.compile(r"\bpush")


def taken(line):
    """Bytes that an instruction takes of the stack."""
    for pattern in TAKEN:
        if found := pattern.search(line):
            size = int(found.group(1), 16)
            return (1 << 64) - size if size >> 63 else size
    return 0


def frames(lines):
    """(bytes, function) of each function: what its largest step takes, and the registers that it
    saves before. (What it pushes later are arguments, for the time of a call.)"""
    name, saved, largest = None, 0, 0
    for line in lines:
        if found := FUNCTION.match(line.rstrip()):
            if name:
                yield largest + saved, name
            name, saved, largest = found.group(1), 0, 0
        elif SAVED.search(line):
            saved += 0 if largest else 8
        else:
            largest = max(largest, taken(line))
    if name:
        yield largest + saved, name


PLANTED = """
0000000000000010 <small>:
  10:\tpush   %rbx
  11:\tsub    $0x3f8,%rsp
0000000000000020 <large>:
  20:\tpush   %rbx
  21:\tsub    $0x400,%rsp
  22:\tpush   $0x0
0000000000000030 <negative>:
  30:\tadd    $0xfffffffffffffbf0,%rsp
0000000000000040 <pages>:
  40:\tlea    -0x5000(%rsp),%r11
  48:\tsub    $0x1000,%rsp
0000000000000050 <gives_back>:
  50:\tadd    $0x900,%rsp
"""
WANTED = [(1024, "small"), (1032, "large"), (1040, "negative"), (20480, "pages"), (0, "gives_back")]


def main():
    if "--self-test" in sys.argv:
        found = list(frames(PLANTED.splitlines()))
        failed = sum(a != b for a, b in zip(found, WANTED, strict=True))
        print(f"frames self-test: {len(WANTED) - failed} passed, {failed} failed")
        return failed
    count, failed = 0, 0
    for size, name in frames(sys.stdin):
        count += 1
        if size > LARGEST:
            print(f"{sys.argv[1]}: {name} takes {size} bytes of the stack; at most {LARGEST}")
            failed += 1
    # An object without functions is a disassembly that went wrong.
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
