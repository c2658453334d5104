# SPDX-License-Identifier: GPL-2.0 OR MIT
"""NVIDIA's numbers in the tree, read back from the Rust files, generated and written by hand. They
have the same keys as those of the headers (parity.py)."""

import os
import re

import layouts

HERE = os.path.dirname(os.path.abspath(__file__))
NVIDIA = os.path.join(HERE, "../../cgpu_km/nvidia")
SIZES = layouts.SIZES


def read(*path):
    with open(os.path.join(NVIDIA, *path)) as f:
        return f.read()


def largest_params():
    """The most bytes of a control's parameters, or of a list behind a pointer in them."""
    line = r"pub const LARGEST_PARAMS: u32 = (\d+) << (\d+);"
    number, shift = re.search(line, read("control.rs")).groups()
    return int(number) << int(shift)


def tables(branch):
    """{word: number and sizes} of a branch's classes, controls and UVM commands."""
    text = read("generated", f"r{branch}.rs")
    found = {}
    base = re.search(r"base: Some\(&super::r(\d+)::TABLES\)", text)
    if base:
        found = tables(base[1])
    absent = re.search(r"static ABSENT.*?\{(.*?)\};", text, re.S)[1]
    for kind, name in (("class", "classes"), ("control", "controls"), ("uvm", "uvm")):
        listed = re.search(rf"{name}: &\[(.*?)\]", absent, re.S)[1]
        gone = {int(n, 0) for n in re.findall(r"0x[0-9a-f]+|\b\d+\b", listed)}
        found = without(found, kind, gone)
        # A number that changes its name must not stay under the old one.
        for number, title, rest in entries(text, kind):
            found = without(found, kind, {number})
            found[f"{kind} {title}"] = (number, *rest)
    return found


def without(found, kind, numbers):
    """The words but those of a kind that have one of these numbers."""
    return {w: v for w, v in found.items() if w.split()[0] != kind or v[0] not in numbers}


def entries(text, kind):
    """(number, name, sizes) of the entries of a table."""
    rest = {
        "class": r"(\d+)\s*,\s*(\w+)\s*,\s*(Optional|Required)",
        "control": r"(\d+)",
        "uvm": r"(\d+)\s*,\s*(\d+)\s*,\s*(None|Some\(\[[^\]]*\]\))",
    }[kind]
    for match in re.finditer(rf'\b{kind}\(\s*(0x[0-9a-f]+|\d+)\s*,\s*"(\w+)"\s*,\s*{rest}', text):
        number, name, size, *others = match.groups()
        if kind == "class":
            others = [others[1]]
        elif kind == "uvm":
            others = [int(others[0]), *map(int, re.findall(r"\d+", others[1]))]
        yield int(number, 0), name, (int(size), *others)


def fields():
    """{word: (offset, size)} of the fields, {word: (size,)} of the structs that are the same in all
    branches."""
    found = {}
    for file in layouts.parse(os.path.join(HERE, "layouts.txt")):
        text = read("generated", file["name"])
        for mod in file["mods"]:
            struct = mod["struct"]
            name = mod["sections"][0]["name"]
            body = re.search(rf"^pub mod {name} \{{(.*?)^\}}", text, re.S | re.M)[1]
            if not mod["varies"]:
                size = re.search(r"^    pub const SIZE: usize = (\d+);", body, re.M)
                found[f"struct {struct}"] = (int(size[1]),)
            for section in mod["sections"]:
                inner = section is not mod["sections"][0]
                part = body
                if inner:
                    begin = rf"pub mod {section['name']} \{{"
                    part = re.search(begin + r"(.*?)^    \}", body, re.S | re.M)[1]
                for path, kind, _ in section["fields"]:
                    name = layouts.constant(path)
                    name = "LEN" if name == "SIZE" and not inner else name
                    indent = "        " if inner else "    "
                    line = re.search(rf"^{indent}pub const {name}: ([^;]*);", part, re.M)[1]
                    found[f"field {struct}.{path}"] = place(kind, line)
    return found


def place(kind, line):
    """Offset and size of a field, from its constant; the size of a list of structs is not in it."""
    numbers = [int(n) for n in re.findall(r"\b\d+\b", line.split("=", 1)[1])]
    if kind == "bytes":
        return numbers[0], numbers[1] - numbers[0]
    if kind == "start":
        return numbers[0], 0
    if kind.endswith("[]"):
        return numbers[0], numbers[1] * SIZES[kind.removesuffix("[]")]
    return numbers[0], SIZES[kind]


def shared_data(branch):
    """{word: (first byte, length)} of the sections of RM_USER_SHARED_DATA, counted."""
    text = read("generated", f"r{branch}.rs")
    sections = re.findall(r"^    section\((\d+), (\d+),", text, re.M)
    return {f"section {i}": (int(at), int(length)) for i, (at, length) in enumerate(sections)}


def numbers():
    """{word: (number,)} of the escapes and statuses, which are written by hand."""
    found = {}
    for number, name in re.findall(r'= (\w+) "(NV_ESC_\w+)"', read("escape.rs")):
        found[f"escape {name}"] = (int(number, 0),)
    status = r"const (NV_\w+): Self = Self\((0x[0-9a-f]+)\);"
    for name, number in re.findall(status, read("status.rs")):
        found[f"status {name}"] = (int(number, 0),)
    # The controls that the module itself calls. A constant's doc comment begins with NVIDIA's name.
    called = r"/// `(NV\w+)`[^\n]*\npub const \w+: \w+ = (?:ControlCmd\()?((?:0x)?[0-9a-f_]+)\)?;"
    for name, number in re.findall(called, read("rmapi.rs") + read("samples.rs")):
        found[f"call {name}"] = (int(number, 0),)
    return found


# A struct whose fields lie elsewhere in each branch.
RING = "NV2080_CTRL_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2_PARAMS"
SAMPLE = "NV2080_CTRL_PERF_GPUMON_PERFMON_UTIL_SAMPLE"
REQUEST = "nvidia_kernel_rmapi_ops_t"


def kernel(branch):
    """A branch's kernel interface: the parts of rmapi.rs that differ between branches."""
    text = read("rmapi.rs")
    ring, sample, process = re.search(
        r"ring: (\d+),\s*sample: (\d+),\s*process: (\d+)",
        read("generated", f"r{branch}.rs"),
    ).groups()
    long = re.search(r"fn has_long_alloc.*?matches!\(branch, ([^)]*)\)", text, re.S)[1]
    layout = "nvos64" if re.search(rf"Branch::R{branch}\b", long) else "nvos21"
    sizes = {word: size for word, (size, *_) in fields().items() if word.startswith("struct NVOS")}
    assert "pub const ARGUMENT: usize = request::PARAMS;" in text
    at = fields()[f"field {REQUEST}.params"][0]
    return {
        f"struct {RING}": (int(ring),),
        f"struct {SAMPLE}": (int(sample),),
        f"field {SAMPLE}.gr.procId": (int(process), 4),
        f"field {REQUEST}.params.alloc": (at, sizes[f"struct {layout.upper()}_PARAMETERS"]),
    }


def request_size():
    """Room that the module has for a request of any branch, in bytes."""
    return int(re.search(r"^pub const SIZE: usize = (\d+);", read("rmapi.rs"), re.M)[1])


def everything(branch):
    """All of it for a branch, by word."""
    return {**tables(branch), **fields(), **kernel(branch), **shared_data(branch), **numbers()}
