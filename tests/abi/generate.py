#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Writes cgpu_km/nvidia/generated/ from NVIDIA's headers and sources.

    generate.py SOURCE             writes the layouts, and the tables of SOURCE's branch
    generate.py SOURCE BASE        writes how SOURCE's branch differs from BASE's, and checks that
                                   the layouts hold for it too
    ... --check                    writes nothing; fails where what is there differs

SOURCE and BASE are folders with releases of NVIDIA's open-gpu-kernel-modules. 580 stands alone; 570
and 595 have it as their base, 550 has 570, 535 has 550. Which classes, controls and
commands are taken is in classes.txt, controls.txt and uvm.txt, which fields in layouts.txt. Needs a
C compiler and rustfmt.
"""

import argparse
import filecmp
import os
import re
import subprocess
import sys
import tempfile
import textwrap

import committed
import layouts
import sources
from headers import Headers

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "../../cgpu_km/nvidia/generated")
# The most that a scratch slot of the module holds, in bytes.
LARGEST = committed.largest_params()
# (control or class, member) of pointers that the driver does not follow, and of clients that it
# does not look up.
UNUSED = set()
# Words for sets of capabilities (nvidia::capability::Capabilities).
SETS = ("compute", "utility", "graphics", "video", "profiling", "rdma")
WORDS = {"base": "BASE", "work": "WORK"}


CLASS_COLUMNS = (
    "The classes: number, name, bytes of parameters, kind, whether the parameters may be left out, "
    "capabilities that allow it, places of clients in the parameters."
)
CONTROL_COLUMNS = (
    "The controls: number, name, bytes of parameters, what is done, pointers in them, "
    "capabilities that allow it, places of clients in them."
)
UVM_COLUMNS = (
    "The commands of UVM: number, name, bytes of the argument, places of the status and of client "
    "and object, what is done, capabilities that allow it."
)


def lists(name):
    """The words of each line of a list."""
    with open(os.path.join(HERE, name)) as f:
        for line in f:
            words = line.split("#")[0].split()
            if words:
                yield words


def capabilities(word):
    """The Rust expression for a column of the lists: base, work, or sets with commas between."""
    if word in WORDS:
        return WORDS[word]
    names = word.split(",")
    if not names or set(names) - set(SETS):
        raise SystemExit(f"{word} is no set of capabilities")
    first, *others = (name.upper() for name in names)
    return first + "".join(f".or({name})" for name in others)


def class_list():
    """{name: (capabilities, kind, [member that names a client])}"""
    found, name = {}, None
    for words in lists("classes.txt"):
        if words[0] == "client":
            found[name][2].append(words[1])
        elif words[0] == "unused":
            UNUSED.add((name, words[1]))
        else:
            caps, kind, name = words
            found[name] = (capabilities(caps), kind, [])
    return found


def class_table(headers):
    wanted = class_list()
    known = sources.classes(headers.source)
    structs = sources.structs(headers.source)
    sizes = {known[n][0] for n in wanted if n in known} - {None}
    there = [n for n in wanted if n in known]
    questions = [f"offsetof({known[n][0]}, {m})" for n in there for m in wanted[n][2]]
    values = headers.ask([*wanted, *(f"sizeof({s})" for s in sizes), *questions])
    table, missing = [], []
    for name, (caps, kind, clients) in wanted.items():
        if name not in known or name not in values:
            missing.append(name)
            continue
        struct, presence = known[name]
        size = values[f"sizeof({struct})"] if struct else 0
        clients = describe_clients(name, struct, clients, structs)
        clients = [values[f"offsetof({struct}, {m})"] for m in clients]
        table.append((values[name], name, size, kind, presence, caps, clients))
    return sorted(table), missing


def uvm_table(headers):
    wanted = {name: (kind, *names) for _, kind, name, *names in lists("uvm.txt")}
    caps = {name: capabilities(word) for word, _, name, *_ in lists("uvm.txt")}
    questions = {}
    for name, (_, *names) in wanted.items():
        struct = f"{name}_PARAMS"
        questions[name] = [name, f"sizeof({struct})", f"offsetof({struct}, rmStatus)"]
        if names:
            questions[name] += [f"offsetof({struct}, {m})" for m in ("hClient", *names)]
    values = headers.ask([q for listed in questions.values() for q in listed], uvm=True)
    table, missing = [], []
    for name, (kind, *_) in wanted.items():
        if name not in values:
            missing.append(name)
            continue
        # Only UVM_DEINITIALIZE has no argument.
        default = 0 if kind == "Deinitialize" else None
        number, size, status, *names = (values.get(q, default) for q in questions[name])
        if None in (size, status, *names):
            raise SystemExit(f"the headers know no {name}_PARAMS")
        table.append((number, name, size, status, names, kind, caps[name]))
    return sorted(table), missing


def control_list():
    """[(care, name, number, size, [pointer], [client], capabilities)]; number and size only if no
    header has them."""
    found = []
    for words in lists("controls.txt"):
        if words[0] == "ptr":
            found[-1][4].append(words[1:])
        elif words[0] == "client":
            found[-1][5].append(words[1])
        elif words[0] == "unused":
            UNUSED.add((found[-1][1], words[1]))
        else:
            caps, care, name, *numbers = words
            number, size = (int(numbers[0], 0), int(numbers[1])) if numbers else (None, None)
            found.append((care, name, number, size, [], [], capabilities(caps)))
    return found


def control_table(headers):
    wanted = control_list()
    exported = sources.controls(headers.source)
    old = sources.deprecated(headers.source)
    embedded = sources.embedded(headers.source)
    structs = sources.structs(headers.source)
    numbers = headers.ask([name for _, name, number, *_ in wanted if number is None])

    todo, missing = [], []
    for care, name, number, size, pointers, clients, caps in wanted:
        if number is not None:
            # The driver's sources may know it all the same.
            if number in exported:
                expression = exported[number][0].split()[0]
                if headers.ask([expression]).get(expression) != size:
                    raise SystemExit(f"{name}: the driver has {expression}")
            todo.append((number, name, str(size), care, None, pointers, clients, caps))
            continue
        number = numbers.get(name)
        if number in exported:
            expression, flags = exported[number]
            if not flags & non_privileged(headers):
                raise SystemExit(f"{name} is privileged")
        elif name in old:
            expression = f"sizeof({name.replace('_CTRL_CMD_', '_CTRL_')}_PARAMS)"
        else:
            missing.append(name)
            continue
        # Of those without parameters a comment says so.
        expression = re.sub(r"/\*.*?\*/", "", expression).strip()
        struct = expression.removeprefix("sizeof(").removesuffix(")")
        struct = struct if struct != expression else None
        # Some came later than the control.
        pointers = [p for p in pointers if re.search(rf"\b{p[0]}\b", structs[struct])]
        describe(name, struct, pointers, embedded, old, structs)
        clients = describe_clients(name, struct, clients, structs)
        todo.append((number, name, expression, care, struct, pointers, clients, caps))

    questions = []
    for _, _, expression, _, struct, pointers, clients, _ in todo:
        questions.append(expression)
        questions += [f"offsetof({struct}, {client})" for client in clients]
        for pointer in pointers:
            questions += pointer_questions(struct, pointer).values()
    values = headers.ask(questions)
    table = []
    for number, name, expression, care, struct, pointers, clients, caps in todo:
        size = values[expression]
        if size > LARGEST:
            raise SystemExit(f"{name} has {size} bytes of parameters")
        parts = []
        for pointer in pointers:
            asked = {k: values[v] for k, v in pointer_questions(struct, pointer).items()}
            squared = "*" in pointer[1]
            if asked["max"] * asked["elem"] > LARGEST:
                raise SystemExit(f"{name}: {pointer[0]} can be too long")
            numbers = [asked[k] for k in ("count", "elem", "max")]
            parts.append((asked["at"], squared, *numbers, pointer[3]))
        clients = [values[f"offsetof({struct}, {client})"] for client in clients]
        table.append((number, name, size, care, parts, caps, clients))
    return sorted(table), missing


def non_privileged(headers):
    """RMCTRL_FLAGS_NON_PRIVILEGED, which moved with 570 (rmapi/control.h)."""
    return 0x10 if int(major(headers)) < 570 else 0x8


def pointer_questions(struct, pointer):
    member, count, elem, _, most = pointer
    if "@" in most:
        field, other = most.split("@")
        most = f"sizeof((({other} *)0)->{field}) / sizeof({elem})"
    return {
        "at": f"offsetof({struct}, {member})",
        "count": f"offsetof({struct}, {count.split('*')[0]})",
        "elem": f"sizeof({elem})",
        "max": most,
    }


def describe(name, struct, pointers, embedded, old, structs):
    """Stops where the pointers of controls.txt are not those that the driver follows."""
    said = [tuple(p[:4]) for p in pointers]
    real = embedded.get(name, []) if name not in old else old[name]
    # The one that is converted by hand: see the note in controls.txt.
    by_hand = name == "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION"
    # More than the driver copies is not wrong: releases differ in it.
    same = len(said) == len(real) and all(
        a[:3] == b[:3] and a[3] in (b[3], "InOut") for a, b in zip(said, map(tuple, real))
    )
    if not same and not by_hand:
        raise SystemExit(f"{name}: controls.txt says {said}, the driver does {real}")
    unused = {member for control, member in UNUSED if control == name}
    if not said and struct and sources.pointers(structs, struct, unused):
        raise SystemExit(f"{name}: {struct} holds a pointer")


def describe_clients(name, struct, clients, structs):
    """Those of `clients` that the parameters have: not every release has all. Stops if the
    parameters name one that the lists do not say."""
    unused = {member for of, member in UNUSED if of == name}
    real = sources.clients(structs, struct) if struct else []
    if set(real) - unused - set(clients):
        raise SystemExit(f"{name}: the lists say {clients}, {struct} has {real}")
    return [member for member in clients if member in real]


def major(headers):
    return headers.version.split(".")[0]


def changes(ours, theirs):
    """The entries that differ from the base's, and the numbers that only the base has."""
    there = {entry[0]: entry for entry in theirs}
    changed = [entry for entry in ours if there.get(entry[0]) != entry]
    return changed, sorted(set(there) - {entry[0] for entry in ours})


def row(function, number, name, *columns):
    """One row of a table, in several lines if one is too long."""
    head, rest = f'    {function}({number}, "{name}",', ", ".join(map(str, columns))
    line = f"{head} {rest}),"
    return line if len(line) <= 100 else "\n        ".join([head, *textwrap.wrap(f"{rest}),", 92)])


def rust(headers, base, classes, controls, uvm, gone, shared, samples):
    number, minor, patch = (*map(int, headers.version.split(".")), 0)[:3]
    out = ["// SPDX-License-Identifier: GPL-2.0 OR MIT"]
    if base:
        of = f"the calls that differ from those of branch {major(base)}"
        out.append(f"//! The allowlist of branch {number}: {of}.")
        of = f"{headers.version} and {base.version}"
    else:
        out.append(f"//! The allowlist of branch {number}.")
        of = headers.version
    out.append("//!")
    out.append(f"//! Generated by `tests/abi/generate.py` from the headers and sources of {of};")
    lists = "`classes.txt`, `controls.txt` and `uvm.txt`"
    out.append(f"//! which classes, controls and commands: {lists} there.")
    out.append("")
    body = []
    body.append("/// The tables.")
    body.append("pub(in crate::nvidia) static TABLES: Tables = Tables {")
    body.append("release: DriverVersion {")
    body.append(f"major: {number}, minor: {minor}, patch: {patch} }},")
    body.append(f"base: {f'Some(&super::r{major(base)}::TABLES)' if base else 'None'},")
    body.append("classes: &CLASSES, controls: &CONTROLS, uvm: &UVM,")
    ring, sample, process = samples
    body.append("shared_data: &SHARED_DATA,")
    body.append(f"samples: SampleLayout {{ ring: {ring}, sample: {sample}, process: {process} }},")
    body.append("absent: &ABSENT };")
    body.append("")
    doc = "The calls that the base has and this branch lacks."
    body.append(f"/// {doc}")
    body.append("static ABSENT: Absent = Absent {")
    body.append(f"classes: &[{', '.join(f'ClassId({n:#06x})' for n in gone[0])}],")
    body.append(f"controls: &[{', '.join(f'ControlCmd({n:#010x})' for n in gone[1])}],")
    body.append(f"uvm: &[{', '.join(str(n) for n in gone[2])}] }};")
    body.append("")
    body += layouts.documented(CLASS_COLUMNS)
    body.append("#[rustfmt::skip]")
    body.append(f"static CLASSES: [ClassEntry; {len(classes)}] = [")
    for entry, name, size, kind, presence, caps, clients in classes:
        body.append(row("class", f"{entry:#06x}", name, size, kind, presence, caps, f"&{clients}"))
    body.append("];")
    body.append("")
    # A line each: rustfmt would make six of it.
    body += layouts.documented(CONTROL_COLUMNS)
    body.append("#[rustfmt::skip]")
    body.append(f"static CONTROLS: [ControlEntry; {len(controls)}] = [")
    for entry, name, size, care, pointers, caps, clients in controls:
        listed = []
        for at, square, count, elem, most, direction in pointers:
            how = "squared" if square else "counted"
            listed.append(f"{how}({at}, {count}, {elem}, {most}, {direction})")
        pointers = f"&[{', '.join(listed)}]"
        number = f"{entry:#010x}"
        body.append(row("control", number, name, size, care, pointers, caps, f"&{clients}"))
    body.append("];")
    body.append("")
    body += layouts.documented(UVM_COLUMNS)
    body.append("#[rustfmt::skip]")
    body.append(f"static UVM: [UvmEntry; {len(uvm)}] = [")
    for entry, name, size, status, names, kind, caps in uvm:
        names = f"Some({names})" if names else "None"
        body.append(row("uvm", entry, name, size, status, names, f"UvmKind::{kind}", caps))
    body.append("];")
    body.append("")
    body.append("/// All sections of `RM_USER_SHARED_DATA`: first byte, length, stamp, content.")
    body.append("#[rustfmt::skip]")
    body.append(f"static SHARED_DATA: [Section; {len(shared)}] = [")
    for at, length, stamp, content, member in shared:
        body.append(f"    section({at}, {length}, Stamp::{stamp}, Content::{content}), // {member}")
    body.append("];")
    return "\n".join(out + imports("\n".join(body)) + [""] + body) + "\n"


def imports(body):
    """The imports that a table needs, which depend on what is in it."""
    known = [
        ("capability", [], [("*", f" {entry}(") for entry in ("class", "control", "uvm")]),
        (
            "class",
            ["ClassEntry"],
            [
                ("entry as class", "class("),
                ("Kind::*", "class("),
                ("Kind::*", "Ignored("),
                ("Presence::*", "class("),
            ],
        ),
        (
            "control",
            ["ControlEntry"],
            [
                ("counted", "counted("),
                ("entry as control", "control("),
                ("squared", "squared("),
                ("Answered::*", "Answer("),
                ("Binding::*", "Bound("),
                ("Care::*", "control("),
                ("Direction::*", "&[counted("),
                ("Direction::*", "&[squared("),
                ("Exported::*", "Export("),
                ("ProfileStep::*", "Profile("),
            ],
        ),
        ("fb", [], [("FbReport::*", "Memory(")]),
        ("handle", [], [("ClassId", "ClassId("), ("ControlCmd", "ControlCmd(")]),
        ("names", [], [("GpuNames::*", "Gpus("), ("ProcessNames::*", "Processes(")]),
        ("rusd", ["section", "Content", "Section", "Stamp"], []),
        ("samples", ["SampleLayout"], []),
        ("tables", ["Absent", "Tables"], []),
        (
            "uvm",
            ["UvmEntry"],
            [
                ("entry as uvm", " uvm("),
                ("UvmWish::*", "Touch("),
                ("UvmKind", "UvmKind::"),
            ],
        ),
        ("version", ["DriverVersion"], []),
    ]
    lines = []
    for module, always, sometimes in known:
        names = {*always, *(name for name, sign in sometimes if sign in body)}
        if names:
            lines.append(f"{module}::{{{', '.join(sorted(names))}}},")
    return ["use crate::nvidia::{", *lines, "};"]


def shared_data(headers):
    """[(first byte, length, stamp, content, member)] of the sections of shared.txt that a release
    has. Stops if they do not lie side by side from the first byte to the last."""
    struct = "NV00DE_SHARED_DATA"
    wanted = [(*words, *member.split("..")) for *words, member in lists("shared.txt")]
    questions = {f"sizeof({struct})"}
    for _, _, *ends in wanted:
        for member in (end.removesuffix("[]") for end in ends):
            at = f"(({struct} *)0)->{member}"
            questions |= {f"offsetof({struct}, {member})", f"sizeof({at})"}
            if f"{member}[]" in ends:
                questions.add(f"sizeof({at}[0])")
    known = headers.ask(sorted(questions))
    found, end = [], 0
    for stamp, content, *ends in wanted:
        first, last = (member.removesuffix("[]") for member in (ends[0], ends[-1]))
        start, behind = (known.get(f"offsetof({struct}, {member})") for member in (first, last))
        if start is None or behind is None:
            continue
        if start != end:
            raise SystemExit(f"{struct}: {first} is at {start}, the section before ends at {end}")
        end = behind + known[f"sizeof((({struct} *)0)->{last})"]
        step = known.get(f"sizeof((({struct} *)0)->{first}[0])", end - start)
        found += [(at, step, stamp, content, first) for at in range(start, end, step)]
    size = known[f"sizeof({struct})"]
    if end != size:
        raise SystemExit(f"{struct} has {size} bytes, its sections in shared.txt end at {end}")
    return found


def samples(headers):
    """Bytes of the ring of samples and of a sample, and where a sample names its process."""
    ring = "sizeof(NV2080_CTRL_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2_PARAMS)"
    sample = "NV2080_CTRL_PERF_GPUMON_PERFMON_UTIL_SAMPLE"
    questions = [ring, f"sizeof({sample})", f"offsetof({sample}, gr.procId)"]
    known = headers.ask(questions)
    return [known[question] for question in questions]


def tables(headers):
    classes, no_class = class_table(headers)
    controls, no_control = control_table(headers)
    uvm, no_uvm = uvm_table(headers)
    for name in no_class + no_control + no_uvm:
        print(f"not in {headers.version}: {name}", file=sys.stderr)
    print(
        f"{headers.version}: {len(classes)} classes, {len(controls)} controls, "
        f"{len(uvm)} UVM commands",
        file=sys.stderr,
    )
    return classes, controls, uvm


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="folder of a release")
    parser.add_argument("base", nargs="?", help="folder of the release of the base's branch")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()

    spec = os.path.join(HERE, "layouts.txt")
    headers = Headers(options.source)
    ours = tables(headers)
    gone = [[], [], []]
    base = None
    if options.base:
        base = Headers(options.base)
        wrong = list(layouts.differences(headers, base, spec))
        if wrong:
            raise SystemExit("\n".join(wrong))
        parts = [changes(a, b) for a, b in zip(ours, tables(base))]
        ours = [changed for changed, _ in parts]
        gone = [absent for _, absent in parts]

    with tempfile.TemporaryDirectory() as tmp:
        names = [] if base else layouts.write(headers, spec, tmp)
        names.append(f"r{major(headers)}.rs")
        with open(os.path.join(tmp, names[-1]), "w") as f:
            f.write(rust(headers, base, *ours, gone, shared_data(headers), samples(headers)))
        subprocess.run(
            ["rustfmt", "--edition", "2021", *(os.path.join(tmp, n) for n in names)], check=True
        )
        different = []
        for name in names:
            made, there = os.path.join(tmp, name), os.path.join(TARGET, name)
            if options.check:
                if not os.path.exists(there) or not filecmp.cmp(made, there, shallow=False):
                    different.append(name)
            else:
                with open(made) as source, open(there, "w") as target:
                    target.write(source.read())
        if different:
            raise SystemExit(f"differ from the headers: {', '.join(different)}")


if __name__ == "__main__":
    main()
