#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""recordings.py [--only WORDS] [--self-test] [options of run.sh]: replays the recordings of
tests/traces on NVIDIA's driver and an emulated GPU of an H200's size, directly and through an
instance of the whole GPU, and compares what the calls return: the driver with the recording, and
the instance with the driver. Each difference has to be in a list, with its reason, and what is
listed has to be there: differences-recordings.txt, differences-recordings-instance.txt.

Contents of answers are not compared: the firmware's are the recordings' own, and the rest is this
GPU's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import counted

HERE = Path(__file__).resolve().parent
TRACES = HERE.parent / "traces"
# Programs that ran together are replayed together.
GROUPS = (
    ["cuda-driver-api"],
    ["cuda-out-of-memory"],
    ["managed-memory"],
    ["ipc-a", "ipc-b"],
    ["nvidia-smi-idle"],
    ["nvidia-smi-busy"],
    ["h100-nvidia-smi-q"],
    ["h100-jax"],
    ["h100-torch-train"],
    ["h100-vmm-a"],
    ["h100-vmm-b"],
    ["h200-torch-train"],
    ["h200-vmm-a", "h200-vmm-b"],
    ["h200-nccl-a", "h200-nccl-b"],
)
# Programs that need engines which the emulated GPU lacks: graphics, and decoders of video.
LEFT_OUT = {"h200-vulkan", "h200-video"}
# The fields that a call returns; the rest is content.
RETURNED = {"ret", "status", "result", "tail"}
WAYS = ("directly", "instance")


def script(groups):
    """The script that runs in the machine."""
    # Somebody has the GPUs open: otherwise the driver starts them anew for each program.
    lines = ["exec 8<>/dev/nvidia0 9<>/dev/nvidia1"]
    for group in groups:
        files = " ".join(f"/files/{trace}.jsonl.xz" for trace in group)
        for way in WAYS:
            option = "--direct" if way == "directly" else ""
            lines.append(f"echo '{' '.join(group)}, {way}' >&2; echo '@begin {group[0]} {way}'")
            lines.append(f"replay run {option} {files}; echo \"@end $?\"")
    return "\n".join(lines)


def reports(text):
    """The reports by recording and way. One that did not end well is its exit code."""
    found, name, lines = {}, None, []
    for line in text.splitlines():
        if line.startswith("@begin "):
            name, lines = tuple(line.split(" ")[1:]), []
        elif line.startswith("@end ") and name:
            code = int(line.split(" ")[1])
            found[name] = code or json.loads("\n".join(lines))
            name = None
        elif name:
            lines.append(line)
    return found


def differences(report, group):
    """Calls that returned something else than was recorded."""
    found = {}
    for one in report["mismatches"]:
        if one["what"] in RETURNED:
            key = (one.get("trace", group), one["index"], one["call"], one["what"])
            found[key] = (one["recorded"], one["seen"])
    return found


def left_out(report):
    """Calls that were refused for want of memory, and that were not made for want of another's
    result: of these no difference is told."""
    return len(report["refused"]), report["skipped"]


def compared(groups, found):
    """Two lists of differences, {(question, one answer, the other): where}: of the driver from the
    recordings, of the instance from the driver; and what else is wrong."""
    lists, wrong = ({}, {}), []
    for group in groups:
        seen = [found.get((group[0], way)) for way in WAYS]
        for way, report in zip(WAYS, seen):
            if not isinstance(report, dict):
                wrong.append(f"{group[0]}, {way}: exit code {report}")
            elif report["kernel_warnings"] or report["final_bytes"] or not report["calls"]:
                wrong.append(f"{group[0]}, {way}: the report is not as it should be")
        if not all(isinstance(report, dict) for report in seen):
            continue
        if left_out(seen[0]) != left_out(seen[1]):
            both = " and ".join("%d refused, %d not made" % left_out(report) for report in seen)
            wrong.append(f"{group[0]}, directly and in an instance: {both}")
        direct, instance = (differences(report, group[0]) for report in seen)
        for (trace, index, call, what), (recorded, here) in direct.items():
            place = lists[0].setdefault((f"{call}, {what}", recorded, here), [])
            place.append(f"{trace} {index}")
        for key in dict.fromkeys([*direct, *instance]):
            recorded = (direct.get(key) or instance.get(key))[0]
            one, other = (side.get(key, (recorded, recorded))[1] for side in (direct, instance))
            if one != other:
                place = lists[1].setdefault((f"{key[2]}, {key[3]}", one, other), [])
                place.append(f"{key[0]} {key[1]}")
    return lists, wrong


def judged(seen, text):
    """(passed, complaints) of a list of differences, and of what is listed."""
    listed = set()
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            question, one, other, reason = (part.strip() for part in line.split("|"))
            if not reason:
                raise SystemExit(f"recordings.py: no reason for: {question}")
            listed.add((question, one, other))
    wrong = [
        f"{' | '.join(key)} ({len(places)} times: {', '.join(places[:3])})"
        for key, places in seen.items()
        if key not in listed
    ]
    gone = [f"is listed and is no more: {' | '.join(key)}" for key in listed - set(seen)]
    return len(listed & set(seen)), wrong + gone


def self_test():
    text = '@begin a directly\n{"mismatches": [%s], "kernel_warnings": 0, "final_bytes": 0, "calls": 2, "refused": [], "skipped": 0}\n@end 0\n'
    one = '{"index": 1, "call": "C", "what": "status", "recorded": "0x0", "seen": "0x1f"}'
    content = '{"index": 1, "call": "C", "what": "nout", "recorded": "00", "seen": "01"}'
    told = (text % f"{one}, {content}") + (text % "").replace("directly", "instance")
    (driver, instance), wrong = compared([["a"]], reports(told))
    assert wrong == [], wrong
    assert driver == {("C, status", "0x0", "0x1f"): ["a 1"]}, driver
    assert instance == {("C, status", "0x1f", "0x0"): ["a 1"]}, instance
    assert judged(driver, "C, status | 0x0 | 0x1f | why\n") == (1, [])
    assert len(judged(driver, "C, ret | 0 | -1 | why\n")[1]) == 2
    assert compared([["a"]], reports("@begin a directly\n@end 3\n"))[1] != []
    refused = (text % "").replace('"refused": []', '"refused": [{}]')
    told = text % "" + refused.replace("directly", "instance")
    assert len(compared([["a"]], reports(told))[1]) == 1
    print("recordings: 7 passed, 0 failed")


def main(words):
    if words == ["--self-test"]:
        return self_test()
    groups = GROUPS
    if words[:1] == ["--only"]:
        groups = [group for group in GROUPS if words[1] in " ".join(group)]
        words = words[2:]
    used = {trace for group in GROUPS for trace in group} | LEFT_OUT
    unused = {path.name.split(".")[0] for path in TRACES.glob("*.xz")} ^ used
    if unused:
        sys.exit(f"recordings.py: not in a group: {', '.join(sorted(unused))}")
    command = [HERE.parent / "vm/run.sh", "--no-build", "--driver", "real", "--gpus", "2"]
    # Without HMM, for which the machine needs an account of each of the GPU's pages.
    command += ["--fake", "uvm_disable_hmm=1"]
    command += ["--name", "recordings", "--limit", "3600", *words]
    for trace in (trace for group in groups for trace in group):
        command += ["--file", TRACES / f"{trace}.jsonl.xz"]
    command += ["--", "sh", "-c", script(groups)]
    # As much memory as the GPUs of the recordings had.
    settings = {**os.environ, "REAL_MEMORY": "144384"}
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=settings)
    lists, wrong = compared(groups, reports(run.stdout))
    passed = 2 * len(groups) - len(wrong)
    if run.returncode:
        wrong.append(f"the machine's exit code is {run.returncode}")
    names = ("differences-recordings.txt", "differences-recordings-instance.txt")
    for seen, name in zip(lists, names):
        good, complaints = judged(seen, (HERE / name).read_text())
        if groups is not GROUPS:
            complaints = [one for one in complaints if not one.startswith("is listed")]
        passed += good
        wrong += [f"{name}: {one}" for one in complaints]
    tally = f"recordings: {passed} passed, {len(wrong)} failed"
    if groups is GROUPS and not {"DRIVER_BRANCH", "NVIDIA_SRC"} & set(os.environ):
        wrong += counted.differences(counted.DOCUMENT.read_text(), Path(__file__).name, tally)
    for one in wrong:
        print(f"FAILED {one}")
    print(f"recordings: {passed} passed, {len(wrong)} failed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
