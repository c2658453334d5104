# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Reads from NVIDIA's sources what its headers do not say: which parameters a class or a control
has, and how the pointers in a control's parameters are copied."""

import os
import re


def read(source, path):
    with open(os.path.join(source, path)) as f:
        return f.read()


def classes(source):
    """{class name: (C type of its parameters or None, Optional or Required)} (resource_list.h)."""
    text = read(source, "src/nvidia/src/kernel/rmapi/resource_list.h")
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    found = {}
    for entry in re.findall(r"RS_ENTRY\((.*?)\n\)", text, flags=re.S):
        name = entry.split(",")[0].strip()
        info = re.search(r"RS_(REQUIRED|OPTIONAL|NONE)(?:\((\w+)\))?", entry)
        found[name] = (info.group(2), "Required" if info.group(1) == "REQUIRED" else "Optional")
    return found


def controls(source):
    """{number: (size expression, flags)} of the controls that the driver exports (g_*_nvoc.c)."""
    found = {}
    folder = os.path.join(source, "src/nvidia/generated")
    for name in sorted(os.listdir(folder)):
        if not name.endswith("_nvoc.c"):
            continue
        text = read(folder, name)
        for flags, method, size in re.findall(
            r"/\*flags=\*/\s*(0x[0-9a-f]+)u,.*?/\*methodId=\*/\s*(0x[0-9a-f]+)u,"
            r"\s*/\*paramSize=\*/\s*(.*?),\n",
            text,
            flags=re.S,
        ):
            number = int(method, 16)
            if number in found and found[number][0] != size:
                raise SystemExit(f"control {number:#x} has two sizes")
            found[number] = (size, int(flags, 16))
    return found


def embedded(source):
    """{control name: [(member, count, element, direction)]} (embeddedParamCopyIn())."""
    text = read(source, "src/nvidia/src/kernel/rmapi/embedded_param_copy.c")
    text = re.sub(r"//[^\n]*", "", text)
    text = text[text.index("NV_STATUS embeddedParamCopyIn"):]
    text = text[:text.index("NV_STATUS embeddedParamCopyOut")]
    found = {}
    cases = re.split(r"\n        case (\w+):", text)[1:]
    for name, body in zip(cases[::2], cases[1::2]):
        counts = dict(re.findall(r"(\w+) = ([^;=]*?->[^;]*?);", body, flags=re.S))
        pointers = {}
        for index, arguments in re.findall(
            r"RMAPI_PARAM_COPY_INIT\(paramCopies\[(\d)\],(.*?)\);", body, flags=re.S
        ):
            _, member, count, element = split(arguments)
            count = counts.get(count, count)
            flag = rf"paramCopies\[{index}\]\.flags \|= RMAPI_PARAM_COPY_FLAGS_(\w+)"
            flags = re.findall(flag, body)
            copied_in, copied_out = "SKIP_COPYIN" not in flags, "SKIP_COPYOUT" not in flags
            direction = {(1, 1): "InOut", (1, 0): "In", (0, 1): "Out"}[copied_in, copied_out]
            element = re.sub(r"sizeof\((\w+)\)", r"\1", element)
            pointers[index] = (
                members(member),
                "*".join(m for m in re.findall(r"->\s*(\w+)", count)),
                "NvU8" if element == "1" else element,
                direction,
            )
        found[name] = [pointers[i] for i in sorted(pointers)]
    return found


def deprecated(source):
    """{control name: [(member, count, element, direction)]} of the old forms that are converted."""
    text = read(source, "src/nvidia/interface/deprecated/rmapi_deprecated_control.c")
    found = {}
    for name, body in re.findall(
        r"V2_CONVERTER\(_(\w+)\)\s*\([^)]*\)\s*\{(.*?)\n\}", text, flags=re.S
    ):
        found[name] = []
        body = re.sub(r"//[^\n]*", "", body)
        call = re.search(r"CONVERT_TO_V2(?:_EX)?\((.*)", body, flags=re.S)
        if call:
            _, _, _, member, _, count, _, element, *_ = split(call.group(1))
            found[name].append((member, count, element, "InOut"))
    return found


def split(arguments):
    """The arguments of a call, at its own commas."""
    parts, depth = [""], 0
    for c in arguments:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def members(expression):
    return re.findall(r"->\s*(\w+)", expression)[-1]


def structs(source):
    """{type name: body} of the structs and unions in the headers of classes and controls."""
    found = {}
    for at, _, names in os.walk(os.path.join(source, "src/common/sdk/nvidia/inc")):
        for name in names:
            if not name.endswith(".h"):
                continue
            text = read(at, name)
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
            for match in re.finditer(r"typedef\s+(?:struct|union)\s*\w*\s*\{", text):
                depth, end = 1, match.end()
                while depth and end < len(text):
                    depth += (text[end] == "{") - (text[end] == "}")
                    end += 1
                tail = re.match(r"\s*(\w+)\s*;", text[end:])
                if tail:
                    found[tail.group(1)] = text[match.end():end - 1]
            for new, old in re.findall(r"typedef\s+(\w+)\s+(\w+)\s*;", text):
                found.setdefault(old, new)
    return found


def pointers(known, name, unused=(), seen=()):
    """Whether a type holds a pointer, itself or in its members, but for those in `unused`."""
    body = known.get(name, "")
    for member in unused:
        body = re.sub(rf"NvP64\s+{member}\b", "", body)
    if "NvP64" in body or "*" in body:
        return True
    words = set(re.findall(r"\b[A-Z_][A-Za-z0-9_]+\b", body)) - {name, *seen}
    return any(w in known and pointers(known, w, (), (*seen, name)) for w in words)


def clients(known, name, seen=()):
    """The members of a type, itself or in what it holds, that name a client."""
    body = known.get(name, "")
    found = re.findall(r"\b(?:NvHandle|NvU32)\s+(h\w*[cC]lient\w*)", body)
    words = set(re.findall(r"\b[A-Z_][A-Za-z0-9_]+\b", body)) - {name, *seen}
    for word in sorted(words):
        if word in known:
            found += clients(known, word, (*seen, name))
    return found
