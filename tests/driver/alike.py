#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""alike.py [--self-test | ANSWERS ANSWERS]: asks the stand-in and NVIDIA's driver the same
questions (standin-check --answers), each in a boot of its own, and compares what they answer. A
difference that is not in differences.txt has failed, and so has one that is there and is no more.
With two files it compares those: the stand-in's answers, then the driver's."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Somebody has the GPUs open: otherwise the driver starts them anew for each file.
ASK = "exec 8<>/dev/nvidia0 9<>/dev/nvidia1; standin-check --answers"


def asked(driver):
    """What a driver answers, as text."""
    options = ["--driver", driver, "--gpus", "2", "--load", "driver", "--limit", "600"]
    name = ["--no-build", "--name", f"answers of {driver}"]
    command = [HERE.parent / "vm/run.sh", *name, *options, "--", "sh", "-c", ASK]
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
    texts = [Path(word).read_text() for word in words] or [asked("stand-in"), asked("real")]
    explained = known((HERE / "differences.txt").read_text())
    ours, theirs = (answers(text) for text in texts)
    passed = failed = 0
    for is_right, what in verdicts(ours, theirs, explained):
        passed, failed = passed + is_right, failed + (not is_right)
        if not is_right:
            print(f"FAILED: {what}")
    print(f"alike: {passed} passed, {failed} failed")
    return bool(failed) or not passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
