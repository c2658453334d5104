#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""alike.py [--self-test]: asks the stand-in, NVIDIA's driver and an instance on that driver the
same questions (standin-check --answers), and compares what they answer: the stand-in with the
driver, and the instance with the driver. A difference that is not listed has failed, and so has one
that is listed and is no more. The lists are differences.txt and differences-instance.txt."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Somebody has the GPUs open: otherwise the driver starts them anew for each file.
OPEN = "exec 8<>/dev/nvidia0 9<>/dev/nvidia1; "
ASK = OPEN + "standin-check --answers"
ASK_INSTANCE = f"""
. /files/programs.sh
{OPEN}
cgpuctl inst create pair --gpu 0 --gpu 1 --mem 4GiB >&2
inside pair standin-check --answers
cgpuctl inst destroy pair --gpu 0,1 >&2
"""


def asked(driver, script, load="driver"):
    """What a driver answers, as text."""
    options = ["--driver", driver, "--gpus", "2", "--load", load, "--limit", "600"]
    files = ["--file", HERE / "programs.sh", "--name", f"answers of {driver}"]
    command = [HERE.parent / "vm/run.sh", "--no-build", *files, *options, "--", "sh", "-c", script]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def answers(text):
    """Answers by question, in their order. A question that comes again is numbered."""
    found = {}
    for line in text.splitlines():
        question, _, answer = line.rpartition(": ")
        if not question:
            continue
        name, number = question, 2
        while name in found:
            name, number = f"{question} ({number})", number + 1
        found[name] = answer
    return found


def known(text):
    """Differences that are explained: both answers by question."""
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            question, ours, theirs, reason = (part.strip() for part in line.split("|"))
            if not reason:
                raise SystemExit(f"alike.py: no reason for: {question}")
            found[question] = (ours, theirs)
    return found


def verdicts(ours, theirs, explained):
    """A pair for each question: whether it is as wanted, and what to say of it."""
    for question in dict.fromkeys([*ours, *theirs, *explained]):
        pair = (ours.get(question, "-"), theirs.get(question, "-"))
        wanted = explained.get(question)
        if wanted is None and pair[0] == pair[1]:
            yield True, question
        elif wanted is None:
            yield False, f"{question} | {pair[0]} | {pair[1]}"
        elif wanted == pair:
            yield True, question
        else:
            yield False, f"{question}: {pair[0]} and {pair[1]}, not as listed: {' and '.join(wanted)}"


def self_test():
    ours = answers("a: 0x0\nb: 0x1\nb: 0x2\nc: size: 0x3\nnoise\n")
    assert ours == {"a": "0x0", "b": "0x1", "b (2)": "0x2", "c: size": "0x3"}, ours
    listed = known("# why\nb | 0x1 | 0x5 | a reason\n")
    wrong = lambda theirs, listed: [what for ok, what in verdicts(ours, theirs, listed) if not ok]
    same = dict(ours)
    assert wrong(same, {}) == []
    assert wrong({**same, "b": "0x5"}, listed) == []
    assert wrong({**same, "b": "0x5"}, {}) == ["b | 0x1 | 0x5"]
    assert wrong(same, listed) == ["b: 0x1 and 0x1, not as listed: 0x1 and 0x5"]
    assert wrong({"a": "0x0", "b": "0x1", "b (2)": "0x2"}, {}) == ["c: size | 0x3 | -"]
    assert wrong(same, {"d": ("0x1", "0x2")}) == ["d: - and -, not as listed: 0x1 and 0x2"]
    print("alike: 6 passed, 0 failed")


def main(words):
    if words == ["--self-test"]:
        return self_test()
    stand_in = answers(asked("stand-in", ASK))
    real = answers(asked("real", ASK))
    instance = answers(asked("real", ASK_INSTANCE, "driver module"))
    passed = failed = 0
    for ours, name in ((stand_in, "differences.txt"), (instance, "differences-instance.txt")):
        explained = known((HERE / name).read_text())
        for is_right, what in verdicts(ours, real, explained):
            passed, failed = passed + is_right, failed + (not is_right)
            if not is_right:
                print(f"FAILED ({name}): {what}")
    print(f"alike: {passed} passed, {failed} failed")
    return bool(failed) or not passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
