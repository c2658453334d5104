# SPDX-License-Identifier: GPL-2.0 OR MIT
"""A release's own numbers for everything that the tree has, under the same keys as in committed.py,
computed with a C compiler. Those of the tables' releases are kept in facts.txt, so that they can be
compared without the headers."""

import os

import generate
import layouts
from committed import REQUEST, RING, SAMPLE, fields, numbers, request_size

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "facts.txt")
HEAD = """\
# Facts of the headers and sources of these releases, written by `parity.py --facts`.
# class: number, bytes of parameters, whether they may be left out; control: number, bytes;
# uvm: number, bytes, offset of the status, of client and object; section: offset, bytes;
# struct: bytes; field: offset, bytes; escape, status, call: number.
"""


def tables(headers):
    found = {}
    for number, name, size, _, presence, *_ in generate.class_table(headers)[0]:
        found[f"class {name}"] = (number, size, presence)
    for number, name, size, *_ in generate.control_table(headers)[0]:
        found[f"control {name}"] = (number, size)
    for number, name, size, status, names, *_ in generate.uvm_table(headers)[0]:
        found[f"uvm {name}"] = (number, size, status, *names)
    for number, (at, length, *_) in enumerate(generate.shared_data(headers)):
        found[f"section {number}"] = (at, length)
    return found


def structs(headers, files=("nvos.rs", "params.rs", "kernel.rs", "uvm.rs")):
    found = {}
    for file in layouts.parse(os.path.join(HERE, "layouts.txt")):
        if file["name"] not in files:
            continue
        known = headers.ask(layouts.questions(file), uvm=file["uvm"])
        for mod in file["mods"]:
            size = known.get(f"sizeof({mod['struct']})")
            if size is None:
                continue
            found[f"struct {mod['struct']}"] = (size,)
            for section in mod["sections"]:
                for path, kind, _ in section["fields"]:
                    at = layouts.place(mod["struct"], path, kind, known)
                    if at:
                        found[f"field {mod['struct']}.{path}"] = at
    return found


def kernel(headers):
    """The differences between branches in the kernel interface."""
    found = {}
    wanted = {
        f"sizeof({RING})": f"struct {RING}",
        f"sizeof({SAMPLE})": f"struct {SAMPLE}",
        f"sizeof({REQUEST})": f"struct {REQUEST}",
    }
    for expression, value in headers.ask(wanted).items():
        found[wanted[expression]] = (value,)
    if found.get(f"struct {REQUEST}", (0,))[0] > request_size():
        raise SystemExit(f"{headers.version}: the module has no room for {REQUEST}")
    for struct, path in ((SAMPLE, "gr.procId"), (REQUEST, "params.alloc")):
        at, size = f"offsetof({struct}, {path})", f"sizeof((({struct} *)0)->{path})"
        known = headers.ask([at, size])
        if at in known:
            found[f"field {struct}.{path}"] = (known[at], known[size])
    return found


def named(headers):
    words = {word.split()[1]: word for word in numbers()}
    return {words[name]: (number,) for name, number in headers.ask(words).items()}


def of(headers):
    """All of it, by word."""
    return {**tables(headers), **structs(headers), **kernel(headers), **named(headers)}


def differences(have, say, partly=False):
    """One line for each number of the tree that is not what headers say. `partly`: what the headers
    do not speak of is passed over. Returns the lines, and how many numbers were compared."""
    wrong, compared = [], 0
    for word, value in sorted(have.items()):
        kind, name = word.split()
        said = say.get(word)
        if said is None:
            # A struct or a field that a branch lacks is no other thing there: it lies beyond the
            # end.
            if kind == "field" and f"struct {name.split('.')[0]}" in say:
                struct = name.split(".")[0]
                # Or it lies where the branch has the status of the call: an output, so nothing is
                # said with it, and the tables say which of the two it is.
                status = say.get(f"uvm {struct.removesuffix('_PARAMS')}", (0, 0, -1))[2]
                if int(value[0]) == int(status):
                    continue
                # Or it reaches beyond the end, and is read of no such struct.
                at, length = map(int, value)
                if at + length <= int(say[f"struct {struct}"][0]):
                    wrong.append(f"{word}: the headers have no such member, but another there")
            elif kind in ("class", "control", "uvm", "section") and not partly:
                wrong.append(f"{word}: not in the headers")
            continue
        compared += len(value)
        if tuple(map(str, said)) != tuple(map(str, value)):
            wrong.append(f"{word}: {shown(value)} here, {shown(said)} in the headers")
    for word in sorted(say):
        if word.split()[0] in ("class", "control", "uvm", "section") and word not in have:
            wrong.append(f"{word}: in the headers, not in the tables")
    return wrong, compared


def shown(value):
    first, *others = value
    return " ".join([f"{first:#x}" if isinstance(first, int) else first, *map(str, others)])


def write(releases):
    """Writes facts.txt: a line for each word, a column for each release; `-` where it has none."""
    names = list(releases)
    words = sorted({word for facts in releases.values() for word in facts})
    with open(FILE, "w") as f:
        f.write(HEAD)
        f.write(f"releases {' '.join(names)}\n")
        for word in words:
            columns = [",".join(map(str, releases[name].get(word, "-"))) for name in names]
            # Most are the same in all.
            columns = columns[:1] if len(set(columns)) == 1 else columns
            f.write(f"{word} {' '.join(columns)}\n")


def words():
    """All that facts.txt speaks of, be it that a release has it or not."""
    with open(FILE) as f:
        lines = (line.split() for line in f if not line.startswith(("#", "releases ")))
        return {f"{line[0]} {line[1]}" for line in lines if line}


def kept():
    """{release: {word: value}} of facts.txt."""
    releases, found = [], {}
    with open(FILE) as f:
        for line in f:
            words = line.split()
            if not words or words[0] == "#":
                continue
            if words[0] == "releases":
                releases = words[1:]
                found = {name: {} for name in releases}
                continue
            columns = words[2:] if len(words) > 3 else words[2:] * len(releases)
            for name, column in zip(releases, columns):
                if column != "-":
                    value = tuple(int(v) if v.isdigit() else v for v in column.split(","))
                    found[name][f"{words[0]} {words[1]}"] = value
    return found
