# SPDX-License-Identifier: GPL-2.0 OR MIT
"""The structs of the stand-in driver that the module's kernel client gives it, as a C compiler lays
them out, in the words of facts.py. standin.txt lists those that are compared."""

import os
import re
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "../fake_nvidia")
# The release that the stand-in is like.
RELEASE = "580.142"
# The types of the structs' members.
TYPES = """
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef int32_t s32;
#include "model.h"
"""


def wanted():
    """[(file, struct, NVIDIA's name, [(member, NVIDIA's name)])]"""
    found = []
    with open(os.path.join(HERE, "standin.txt")) as f:
        for line in f:
            words = line.split()
            if not words or words[0] == "#" or line.startswith("#"):
                continue
            if words[0] == "struct":
                found.append((*words[1:], []))
            else:
                found[-1][3].append(tuple(words))
    return found


def text_of(file):
    with open(os.path.join(SOURCES, file)) as f:
        return f.read()


def block(text, name):
    """A struct's definition, or None; one that has a type's name alone is named like the type."""
    named = re.search(rf"^struct {name} \{{.*?^\}};", text, re.S | re.M)
    if named:
        return named[0]
    typedef = re.search(rf"^typedef struct (\{{(?:(?!^\}}).)*^\}}) {name};", text, re.S | re.M)
    return typedef and f"struct {name} {typedef[1]};"


def definitions(asked):
    """The structs that are asked for, after those that they hold."""
    defined = {}

    def define(name, files):
        if name in defined:
            return
        for file in files:
            body = block(text_of(file), name)
            if body:
                for inner in re.findall(r"\bstruct (\w+) \w+", body):
                    define(inner, files)
                defined[name] = body
                return
        raise SystemExit(f"the stand-in has no struct {name} in {', '.join(files)}")

    for file, name, *_ in asked:
        define(name, [file, "fake_nv.h"])
    return "\n".join(defined.values())


def have():
    """{word: value} of them all, in NVIDIA's words."""
    asked = wanted()
    lines, words = [], []
    for _, ours, theirs, members in asked:
        # If the interface takes the largest of several, its size is the module's matter.
        words.append(f"struct {theirs}")
        lines.append(f'printf("%zu\\n", sizeof(struct {ours}));')
        for own, their in members:
            words.append(f"field {theirs}.{their}")
            lines.append(f'printf("%zu %zu\\n", offsetof(struct {ours}, {own}), sizeof(((struct {ours} *)0)->{own}));')
    program = "\n".join([TYPES, definitions(asked), "int main(void) {", *lines, "return 0; }", ""])
    with tempfile.TemporaryDirectory() as tmp:
        source, binary = os.path.join(tmp, "ask.c"), os.path.join(tmp, "ask")
        with open(source, "w") as f:
            f.write(program)
        model = os.path.join(HERE, "../gpu_model")
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-w", "-I", model, "-o", binary, source], check=True)
        out = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
    return {word: tuple(map(int, line.split())) for word, line in zip(words, out.splitlines())}
