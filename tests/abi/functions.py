#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR MIT
"""The functions of the driver that the attacks name (`cgpu-guest attacks`) exist in its sources.

    functions.py             compares the attacks with functions.txt: all that they name must be
                             there, in the release that the stand-in driver is like, and no more
    functions.py SOURCE...   writes functions.txt from releases of NVIDIA's open-gpu-kernel-modules

functions.txt has a line for each function: file, function, and the releases that have it there.
"""

import os
import re
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent.parent
ATTACKS = TREE / "tests/replay/src/guest/attacks"
FILE = TREE / "tests/abi/functions.txt"
# The release whose branch the stand-in driver is like (tests/fake_nvidia/README.md).
RELEASE = "580."
CITATION = re.compile(r'"(\w[\w-]*\.c):(\w+)"')
# A definition: a name at the end of a line or with its return type before it, parameters, a body.
DEFINITION = r"^(?:[A-Za-z_][\w \t\*]*?[\s\*])?{}\s*\([^;{{}}]*?\)\s*\{{"


def cited():
    """{(file, function)} of all attacks."""
    found = set()
    for file in sorted(ATTACKS.glob("*.rs")):
        found.update(CITATION.findall(file.read_text()))
    return found


def existing(source, wanted):
    """Those of the wanted that a release has."""
    names = {file for file, _ in wanted}
    texts = {}
    for at, _, files in os.walk(source):
        for name in files:
            if name in names:
                texts.setdefault(name, []).append(Path(at, name).read_text(errors="replace"))
    return {
        (file, function)
        for file, function in wanted
        if any(re.search(DEFINITION.format(function), text, re.M) for text in texts.get(file, []))
    }


def write(sources):
    wanted = cited()
    there = {Path(source).name: existing(source, wanted) for source in sources}
    with open(FILE, "w") as f:
        f.write("# Functions of the driver that the attacks name: file, function, releases that have it there.\n")
        f.write("# Written by functions.py.\n")
        for file, function in sorted(wanted):
            releases = [release for release, found in there.items() if (file, function) in found]
            f.write(f"{file} {function} {' '.join(releases)}\n")


def listed():
    """{(file, function): releases} of functions.txt."""
    lines = (line.split() for line in FILE.read_text().splitlines() if not line.startswith("#"))
    return {(words[0], words[1]): words[2:] for words in lines if words}


def differences(wanted, known):
    """Functions that are named and not there, and those that are listed and not named any more."""
    for file, function in sorted(wanted - set(known)):
        yield f"{file}:{function} is named by an attack and not in functions.txt"
    for file, function in sorted(set(known) - wanted):
        yield f"{file}:{function} is in functions.txt and named by no attack"
    for (file, function), releases in sorted(known.items()):
        if not any(release.startswith(RELEASE) for release in releases):
            yield f"{file}:{function} is in no release {RELEASE}*"


def main():
    if sys.argv[1:]:
        return write(sys.argv[1:])
    wanted = cited()
    wrong = list(differences(wanted, listed()))
    # Each kind of difference must be found.
    name = ("no_such_file.c", "no_such_function")
    planted = [
        list(differences(wanted | {name}, listed())),
        list(differences(wanted, {**listed(), name: ["580.1"]})),
        list(differences(wanted | {name}, {**listed(), name: ["535.1"]})),
    ]
    if any(len(found) != len(wrong) + 1 for found in planted):
        wrong.append("a planted difference is not found")
    print("\n".join(wrong) or f"{len(wanted)} functions of the driver are where the attacks say")
    return bool(wrong or len(wanted) < 30)


if __name__ == "__main__":
    sys.exit(main())
