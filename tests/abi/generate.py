#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Writes cgpu_km/nvidia/generated/ from NVIDIA's headers and sources.

    generate.py SOURCE             writes the layouts and the tables of SOURCE's branch
    generate.py SOURCE --check     writes nothing; fails where what is there differs

SOURCE is a folder with a release of NVIDIA's open-gpu-kernel-modules. Which classes, controls and
commands are taken is in classes.txt, controls.txt and uvm.txt, which fields in layouts.txt. Needs a
C compiler and rustfmt.
"""

import argparse
import filecmp
import os
import subprocess
import sys
import tempfile

import layouts
import sources
from headers import Headers

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "../../cgpu_km/nvidia/generated")
# The most that a scratch slot of the module holds (nvidia::control::LARGEST_PARAMS).
LARGEST = 64 << 10
# (control, member) of pointers that the driver does not follow.
UNUSED = set()


def lists(name):
    """The words of each line of a list."""
    with open(os.path.join(HERE, name)) as f:
        for line in f:
            words = line.split("#")[0].split()
            if words:
                yield words


def class_table(headers):
    wanted = {name: kind for kind, name in lists("classes.txt")}
    known = sources.classes(headers.source)
    sizes = {known[n][0] for n in wanted if n in known} - {None}
    values = headers.ask([*wanted, *(f"sizeof({s})" for s in sizes)])
    table, missing = [], []
    for name, kind in wanted.items():
        if name not in known or name not in values:
            missing.append(name)
            continue
        struct, optional = known[name]
        size = values[f"sizeof({struct})"] if struct else 0
        table.append((values[name], name, size, kind, optional))
    return sorted(table), missing


def uvm_table(headers):
    wanted = {name: kind for kind, name in lists("uvm.txt")}
    structs = {n: f"{n}_PARAMS" for n in wanted}
    values = headers.ask(
        [
            *wanted,
            *(f"sizeof({s})" for s in structs.values()),
            *(f"offsetof({s}, rmStatus)" for s in structs.values()),
        ],
        uvm=True,
    )
    table, missing = [], []
    for name, kind in wanted.items():
        if name not in values:
            missing.append(name)
            continue
        size = values.get(f"sizeof({structs[name]})", 0)
        status = values.get(f"offsetof({structs[name]}, rmStatus)", 0)
        if not size and kind != "Deinitialize":
            raise SystemExit(f"the headers know no {structs[name]}")
        table.append((values[name], name, size, status, kind))
    return sorted(table), missing


def control_list():
    """[(care, name, number, size, [pointer])]; number and size only where no header has them."""
    found = []
    for words in lists("controls.txt"):
        if words[0] == "ptr":
            found[-1][4].append(words[1:])
        elif words[0] == "unused":
            UNUSED.add((found[-1][1], words[1]))
        else:
            care, name, *numbers = words
            number, size = (int(numbers[0], 0), int(numbers[1])) if numbers else (None, None)
            found.append((care, name, number, size, []))
    return found


def control_table(headers):
    wanted = control_list()
    exported = sources.controls(headers.source)
    old = sources.deprecated(headers.source)
    embedded = sources.embedded(headers.source)
    structs = sources.structs(headers.source)
    numbers = headers.ask([name for _, name, number, _, _ in wanted if number is None])

    todo, missing = [], []
    for care, name, number, size, pointers in wanted:
        if number is not None:
            # The driver's sources may know it all the same.
            if number in exported and exported[number][0].split()[0] != str(size):
                raise SystemExit(f"{name}: the driver has {exported[number][0]}")
            todo.append((number, name, str(size), care, None, pointers))
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
        struct = expression.removeprefix("sizeof(").removesuffix(")")
        struct = struct if struct != expression else None
        describe(name, struct, pointers, embedded, old, structs)
        todo.append((number, name, expression, care, struct, pointers))

    questions = []
    for _, _, expression, _, struct, pointers in todo:
        questions.append(expression)
        for pointer in pointers:
            questions += pointer_questions(struct, pointer).values()
    values = headers.ask(questions)
    table = []
    for number, name, expression, care, struct, pointers in todo:
        size = values[expression]
        if size > LARGEST:
            raise SystemExit(f"{name} has {size} bytes of parameters")
        parts = []
        for pointer in pointers:
            asked = {k: values[v] for k, v in pointer_questions(struct, pointer).items()}
            squared = "*" in pointer[1]
            if asked["max"] * asked["elem"] > LARGEST:
                raise SystemExit(f"{name}: {pointer[0]} can be too long")
            parts.append((asked["at"], squared, asked["count"], asked["elem"], asked["max"], pointer[3]))
        table.append((number, name, size, care, parts))
    return sorted(table), missing


def non_privileged(headers):
    """RMCTRL_FLAGS_NON_PRIVILEGED, which moved with 570 (rmapi/control.h)."""
    return 0x10 if int(headers.version.split(".")[0]) < 570 else 0x8


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
    if said != real and not by_hand:
        raise SystemExit(f"{name}: controls.txt says {said}, the driver does {real}")
    unused = {member for control, member in UNUSED if control == name}
    if not said and struct and sources.pointers(structs, struct, unused):
        raise SystemExit(f"{name}: {struct} holds a pointer")


def rust(headers, classes, controls, uvm):
    major, minor, patch = (*map(int, headers.version.split(".")), 0)[:3]
    out = ["// SPDX-License-Identifier: GPL-2.0 OR MIT"]
    out.append(f"//! What branch {major} lets through.")
    out.append("//!")
    out.append(f"//! Generated by `tests/abi/generate.py` from the headers and sources of {headers.version}; which")
    out.append("//! classes, controls and commands: `classes.txt`, `controls.txt` and `uvm.txt` there.")
    out.append("")
    out.append("use crate::nvidia::class::{entry as class, ClassEntry, Kind::*};")
    out.append("use crate::nvidia::control::{counted, entry as control, ControlEntry};")
    out.append("use crate::nvidia::control::{squared, Care::*, Direction::*};")
    out.append("use crate::nvidia::uvm::{entry as uvm, UvmEntry, UvmKind};")
    out.append("use crate::nvidia::version::DriverVersion;")
    out.append("")
    out.append("/// The release that they come from.")
    out.append("pub(in crate::nvidia) const RELEASE: DriverVersion = DriverVersion {")
    out.append(f"major: {major}, minor: {minor}, patch: {patch} }};")
    out.append("")
    out.append("/// The classes: number, name, bytes of parameters, kind, whether they may be left out.")
    out.append(f"pub(in crate::nvidia) static CLASSES: [ClassEntry; {len(classes)}] = [")
    for number, name, size, kind, optional in classes:
        out.append(f'class({number:#06x}, "{name}", {size}, {kind}, {str(optional).lower()}),')
    out.append("];")
    out.append("")
    # A line each: rustfmt would make six of it.
    out.append("/// The controls: number, name, bytes of parameters, care, pointers in them.")
    out.append("#[rustfmt::skip]")
    out.append(f"pub(in crate::nvidia) static CONTROLS: [ControlEntry; {len(controls)}] = [")
    for number, name, size, care, pointers in controls:
        listed = []
        for at, square, count, elem, most, direction in pointers:
            how = "squared" if square else "counted"
            listed.append(f"{how}({at}, {count}, {elem}, {most}, {direction})")
        out.append(f'    control({number:#010x}, "{name}", {size}, {care}, &[{", ".join(listed)}]),')
    out.append("];")
    out.append("")
    out.append("/// The commands of UVM: number, name, bytes of the argument, place of the status, kind.")
    out.append("#[rustfmt::skip]")
    out.append(f"pub(in crate::nvidia) static UVM: [UvmEntry; {len(uvm)}] = [")
    for number, name, size, status, kind in uvm:
        out.append(f'    uvm({number}, "{name}", {size}, {status}, UvmKind::{kind}),')
    out.append("];")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="folder of a release")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()

    headers = Headers(options.source)
    classes, no_class = class_table(headers)
    controls, no_control = control_table(headers)
    uvm, no_uvm = uvm_table(headers)
    for name in no_class + no_control + no_uvm:
        print(f"not in {headers.version}: {name}", file=sys.stderr)
    print(
        f"{headers.version}: {len(classes)} classes, {len(controls)} controls, {len(uvm)} UVM commands",
        file=sys.stderr,
    )

    with tempfile.TemporaryDirectory() as tmp:
        names = layouts.write(headers, os.path.join(HERE, "layouts.txt"), tmp)
        names.append(f"r{headers.version.split('.')[0]}.rs")
        with open(os.path.join(tmp, names[-1]), "w") as f:
            f.write(rust(headers, classes, controls, uvm))
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
