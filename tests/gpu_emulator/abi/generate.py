#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""generate.py [--check] SOURCE: writes VERSION.txt, what the emulator needs of one release.

SOURCE is a folder of NVIDIA's open-gpu-kernel-modules. A compiler reads its headers; nothing of
them is copied but the facts that `names.txt` asks for: offsets, sizes and numbers.
`struct.path[]` is an array: its first element's offset and size, the stride and the count.
With --check nothing is written, and the exit code says if the file is what would be written."""

import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SDK = "src/common/sdk/nvidia/inc"
# As src/nvidia/Makefile and srcs.mk have them.
PATHS = [
    "src/nvidia/kernel/inc",
    "src/nvidia/interface",
    SDK,
    SDK + "/hw",
    "src/nvidia/arch/nvalloc/common/inc",
    "src/nvidia/arch/nvalloc/common/inc/gsp",
    "src/nvidia/arch/nvalloc/common/inc/deprecated",
    "src/nvidia/arch/nvalloc/unix/include",
    "src/nvidia/inc",
    "src/nvidia/inc/os",
    "src/common/shared/inc",
    "src/common/shared/msgq/inc",
    "src/common/inc",
    "src/common/uproc/os/libos-v2.0.0/include",
    "src/common/uproc/os/common/include",
    "src/common/inc/swref",
    "src/common/inc/swref/published",
    "src/nvidia/generated",
    "src/common/nvswitch/kernel/inc",
    "src/common/nvswitch/interface",
    "src/common/nvswitch/common/inc",
    "src/common/inc/displayport",
    "src/common/nvlink/interface",
    "src/common/nvlink/inband/interface",
    "src/nvidia/src/mm/uvm/interface",
    "src/nvidia/inc/libraries",
    "src/nvidia/src/libraries",
    "src/nvidia/inc/kernel",
]
PORT = "atomic core cpu crypto debug memory safe string sync thread util".split()
DEFINES = """
    _LANGUAGE_C __NO_CTYPE NVRM LOCK_VAL_ENABLED=0 PORT_ATOMIC_64_BIT_SUPPORTED=1
    PORT_IS_KERNEL_BUILD=1 PORT_IS_CHECKED_BUILD=0 RS_STANDALONE=0 RS_STANDALONE_TEST=0
    RS_COMPATABILITY_MODE=1 RS_PROVIDES_API_STATE=0 NV_CONTAINERS_NO_TEMPLATES INCLUDE_NVLINK_LIB
    INCLUDE_NVSWITCH_LIB NV_PRINTF_STRINGS_ALLOWED=1 PORT_MODULE_example=0 PORT_MODULE_mmio=0
    PORT_MODULE_time=0
""".split() + [f"PORT_MODULE_{m}=1" for m in PORT]


def wanted():
    """(preamble, structs, fields, numbers) of names.txt."""
    headers, structs, fields, numbers, struct = [], [], [], [], None
    with open(os.path.join(HERE, "names.txt")) as f:
        for line in f:
            line = line.split("#", 1)[0].rstrip()
            word, _, rest = line.strip().partition(" ")
            if not word:
                continue
            if word == "header":
                # A release that lacks it has what is in it elsewhere, or not at all.
                headers += [f'#if __has_include("{rest}")', f'#include "{rest}"', "#endif"]
            elif word == "define":
                headers.append(f"#define {rest}")
            elif word == "struct":
                struct = rest
                structs.append(rest)
            elif word == "number":
                numbers += rest.split()
            else:
                fields += [(struct, path) for path in line.split()]
    return headers, structs, fields, numbers


def first(path):
    """The path of an array's first element, for every array on the way."""
    return path.replace("[]", "[0]")


def questions(structs, fields, numbers):
    """C constant expressions, by the place at which each answer is put."""
    asked = {("struct", s): f"sizeof({s})" for s in structs}
    for struct, path in fields:
        here = f"(({struct} *)0)->{first(path)}"
        asked["offset", struct, path] = f"__builtin_offsetof({struct}, {first(path)})"
        asked["size", struct, path] = f"sizeof({here})"
        for level, found in enumerate(re.finditer(r"\[\]", path)):
            array = first(path[: found.start()])
            element = f"sizeof((({struct} *)0)->{array}[0])"
            asked["stride", struct, path, level] = element
            asked["count", struct, path, level] = f"sizeof((({struct} *)0)->{array}) / {element}"
    for name in numbers:
        asked["number", name] = name
    return asked


def ask(source, headers, asked):
    """Values of the expressions: those that compile."""
    known, todo = {}, dict(asked)
    while todo:
        lines, at = list(headers), {}
        for number, (key, expression) in enumerate(todo.items()):
            at[len(lines) + 1] = key
            value = f"(unsigned long long)({expression})"
            lines.append(f"const unsigned long long answer_{number} = {value};")
        with tempfile.NamedTemporaryFile("w", suffix=".c") as f:
            f.write("\n".join(lines) + "\n")
            f.flush()
            command = [os.environ.get("CC", "cc"), "-S", "-o", "-", "-w", "-fmax-errors=0", "-O0"]
            command += ["-ffreestanding", "-fshort-wchar", "-g0"]
            command += ["-include", os.path.join(source, SDK, "cpuopsys.h")]
            command += [a for p in PATHS for a in ("-I", os.path.join(source, p))]
            command += [f"-D{d}" for d in DEFINES]
            done = subprocess.run(command + [f.name], capture_output=True, text=True)
            if done.returncode == 0:
                answer = r"^answer_(\d+):\n\s+\.(?:quad\s+(-?\d+)|zero\s+8)"
                found = re.findall(answer, done.stdout, re.M)
                values = {int(n): int(v or 0) % 2**64 for n, v in found}
                return {**known, **{key: values[n] for n, key in enumerate(todo)}}
            wrong = re.findall(re.escape(f.name) + r":(\d+):\d+: error", done.stderr)
            bad = {int(n) for n in wrong}
        wrong = [at[n] for n in bad if n in at]
        if not wrong:
            raise SystemExit(done.stderr[:4000])
        for key in wrong:
            del todo[key]
    return known


def version(source):
    """The release's number."""
    with open(os.path.join(source, "version.mk")) as f:
        return re.search(r"NVIDIA_VERSION = (\S+)", f.read()).group(1)


def rpcs(source, headers):
    """Names and numbers of the messages: the names of the macros that list them, the numbers of the
    compiler, because a list of an old release has none."""
    places = ("src/nvidia/kernel/inc", "src/nvidia/inc/kernel")
    paths = [os.path.join(source, place, "vgpu/rpc_global_enums.h") for place in places]
    with open(next(path for path in paths if os.path.exists(path))) as f:
        text = f.read()
    names = re.findall(r"^\s*X\(\w+, *(\w+)", text, re.M)
    asked = {name: f"NV_VGPU_MSG_FUNCTION_{name}" for name in names}
    names = re.findall(r"^\s*E\((\w+)", text, re.M)
    asked |= {name: f"NV_VGPU_MSG_EVENT_{name}" for name in names}
    for name, number in ask(source, headers, asked).items():
        yield f"rpc {number} {name}"


def lines_of(source):
    """The file's lines."""
    headers, structs, fields, numbers = wanted()
    asked = questions(structs, fields, numbers)
    known = ask(source, headers, asked)
    # An array without an end has no size.
    lacking = sorted({" ".join(k[1:3]) for k in asked if k not in known and k[0] != "size"})
    for name in lacking:
        print(f"{version(source)} has no {name}", file=sys.stderr)
    yield f"# {version(source)}: facts from NVIDIA's headers, as names.txt asks; by generate.py."
    for struct in structs:
        if ("struct", struct) not in known:
            continue
        yield f"struct {struct} {known['struct', struct]}"
        for owner, path in fields:
            if owner != struct or ("offset", owner, path) not in known:
                continue
            arrays = "".join(
                f" {known['stride', owner, path, n]} {known['count', owner, path, n]}" for n in range(path.count("[]"))
            )
            yield f"field {path} {known['offset', owner, path]} {known.get(('size', owner, path), 0)}{arrays}"
    for name in numbers:
        if ("number", name) in known:
            yield f"number {name} {known['number', name]}"
    yield from rpcs(source, headers)


def main():
    check = "--check" in sys.argv
    source = [a for a in sys.argv[1:] if not a.startswith("--")][0]
    text = "\n".join(lines_of(source)) + "\n"
    path = os.path.join(HERE, f"{version(source)}.txt")
    if check:
        with open(path) as f:
            return 0 if f.read() == text else 1
    with open(path, "w") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
