#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""alike.py [--self-test]: asks the stand-in, NVIDIA's driver and an instance on that driver the
same questions (standin-check, cgpu-gpu ask), and compares what they answer: the stand-in with the
driver, the instance with the driver, and the driver with what real GPUs answered to cgpu-gpu ask
(h100.txt, h200.txt). A difference that is not listed has failed, and so has one that is listed and
is no more. The lists are differences.txt and differences-*.txt."""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Somebody has the GPUs open: otherwise the driver starts them anew for each file.
OPEN = "exec 8<>/dev/nvidia0 9<>/dev/nvidia1; "
QUESTIONS = "standin-check; cgpu-gpu ask"
ASK = OPEN + QUESTIONS
ASK_INSTANCE = f"""
. /files/programs.sh
{OPEN}
cgpuctl inst create pair --gpu 0 --gpu 1 --mem 4GiB >&2
inside pair sh -c "{QUESTIONS}"
cgpuctl inst destroy pair --gpu 0,1 >&2
"""


# The memory of an H100 and what the stand-in calls it: as the card had that was asked. And that of
# the H200.
H100_MIB = "81559"
H200_MIB = "143771"
MODEL = ["--fake", "model=h100"]


def asked(driver, script, load="driver", memory=H100_MIB):
    """A driver's answers, as text."""
    options = ["--driver", driver, "--gpus", "2", "--load", load, "--limit", "600"]
    options += MODEL if driver == "stand-in" else []
    files = ["--file", HERE / "programs.sh", "--name", f"answers of {driver}"]
    command = [HERE.parent / "vm/run.sh", "--no-build", *files, *options, "--", "sh", "-c", script]
    settings = {**os.environ, "REAL_MEMORY": memory}
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=settings)
    return run.stdout


def answers(text):
    """Answers by question, in their order. A question that comes again is numbered."""
    found = {}
    for line in text.splitlines():
        question, _, answer = line.rpartition(": ")
        if not question or line.startswith("#"):
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
            # Then what would have come after it was not asked.
            early = pair[0].startswith("ended early")
            yield not early, f"{question}: {pair[0]}" if early else question
        elif wanted is None:
            yield False, f"{question} | {pair[0]} | {pair[1]}"
        elif wanted == pair:
            yield True, question
        else:
            yield False, f"{question}: {pair[0]} and {pair[1]}, not as listed: {' and '.join(wanted)}"


def counted(document, asked):
    """Whether the document says how many questions were asked, and what to say of it. Those of
    cgpu-gpu are among them."""
    found = re.search(r"the same (\d+)\s+questions", document)
    there = found and int(found.group(1))
    right = there == len(asked)
    return right, f"docs/testing.md: {there} questions" + ("" if right else f", not {len(asked)}")


def self_test():
    ours = answers("# d: 0x0\na: 0x0\nb: 0x1\nb: 0x2\nc: size: 0x3\nnoise\n")
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
    early = {"a": "ended early, why"}
    assert [ok for ok, _ in verdicts(early, early, {})] == [False]
    assert counted("asks the same 4\nquestions", same) == (True, "docs/testing.md: 4 questions")
    assert not counted("asks the same 3 questions", same)[0]
    print("alike: 9 passed, 0 failed")


def main(words):
    if words == ["--self-test"]:
        return self_test()
    stand_in = answers(asked("stand-in", ASK))
    real = answers(asked("real", ASK))
    instance = answers(asked("real", ASK_INSTANCE, "driver module"))
    larger = answers(asked("real", OPEN + "cgpu-gpu ask", memory=H200_MIB))
    h100, h200 = (answers((HERE / f"{card}.txt").read_text()) for card in ("h100", "h200"))
    passed = failed = 0
    for ours, theirs, name in (
        (stand_in, real, "differences.txt"),
        (instance, real, "differences-instance.txt"),
        (h100, {question: real.get(question, "-") for question in h100}, "differences-h100.txt"),
        (h200, larger, "differences-h200.txt"),
    ):
        explained = known((HERE / name).read_text())
        for is_right, what in verdicts(ours, theirs, explained):
            passed, failed = passed + is_right, failed + (not is_right)
            if not is_right:
                print(f"FAILED ({name}): {what}")
    is_right, what = counted((HERE.parents[1] / "docs/testing.md").read_text(), real)
    passed, failed = passed + is_right, failed + (not is_right)
    if not is_right:
        print(f"FAILED: {what}")
    print(f"alike: {passed} passed, {failed} failed")
    return bool(failed) or not passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
