#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""commits.py [TREE]: each commit since the one that brought this file says what CONTRIBUTING.md
asks for: a subject of at most 72 columns with the subsystem in front, a body, and no trailers.
Merges are left out. A checkout without that history has nothing to look at, and passes.

commits.py --self-test: each planted fault is found in a small repository, and a good commit passes.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

# The commit that has added it is the last that is not looked at.
SELF = "tests/lint/commits.py"
LONGEST = 72
SUBJECT = re.compile(r"[\w./-]+(?:, [\w./-]+)*: \S.*")
TRAILER = re.compile(r"^(?:[A-Z][a-z]+(?:-[a-z]+)*-by|Change-Id): ", re.M)


def faults(subject, body):
    """Each fault of a commit."""
    if len(subject) > LONGEST:
        yield f"the subject has {len(subject)} columns, of {LONGEST} at most"
    if not SUBJECT.fullmatch(subject):
        yield "the subject has no subsystem in front (`proxy: refuse a second export`)"
    if not body.strip():
        yield "there is no body that says why"
    trailer = TRAILER.search(body)
    if trailer:
        yield f"it has a trailer: {trailer.group(0)}"


def git(tree, *command):
    """The output of git, or nothing where it fails: there is no git, or no history."""
    try:
        ran = subprocess.run(["git", "-C", tree, *command], capture_output=True, text=True)
    except OSError:
        return ""
    return ran.stdout if ran.returncode == 0 else ""


def commits(tree):
    """(hash, subject, body) of each commit that is looked at."""
    added = git(tree, "log", "--diff-filter=A", "--format=%H", "--", SELF).split()
    if not added:
        return
    form = "--format=%h%x00%s%x00%b%x01"
    for said in git(tree, "log", "--no-merges", form, f"{added[-1]}..HEAD").split("\x01"):
        if said.strip():
            yield said.strip("\n").split("\x00")


def violations(tree):
    """(hash, subject, what is wrong) of each fault."""
    for name, subject, body in commits(tree):
        for fault in faults(subject, body):
            yield name, subject, fault


def self_test():
    """Planted faults are found, each in a commit of its own."""
    why = "\n\nIt was wrong.\n"
    good = ("a: do it" + why, "tests/vm, docs: do it" + why, "a: " + "x" * (LONGEST - 3) + why)
    bad = (
        "a: " + "x" * (LONGEST - 2) + why,
        "do it" + why,
        "fixup! a: do it" + why,
        "a: do it",
        "a: do it" + why + "\nSigned-off-by: A <a@example.org>\n",
    )
    failed = 0
    with tempfile.TemporaryDirectory() as tree:
        author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        git(tree, "init", "-q")

        def found_after(message):
            git(tree, *author, "commit", "-q", "--allow-empty", "-m", message)
            return len(list(violations(tree)))

        cases = [("a checkout without history", len(list(violations(tree))), 0)]
        cases.append(("a commit before the rule", found_after("no rule yet"), 0))
        path = Path(tree) / SELF
        path.parent.mkdir(parents=True)
        path.write_text("\n")
        git(tree, "add", SELF)
        cases.append(("the commit that brings the rule", found_after("the rule"), 0))
        cases += [(f"a good commit: {message!r}", found_after(message), 0) for message in good]
        cases += [
            (f"a bad commit: {message!r}", found_after(message), number)
            for number, message in enumerate(bad, 1)
        ]
    for name, have, wanted in cases:
        failed += have != wanted
        print(f"{'ok' if have == wanted else 'FAILED'}: {name}")
    print(f"commits.py: {len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = list(violations(sys.argv[1] if sys.argv[1:] else "."))
    for name, subject, fault in found:
        print(f"{name} {subject!r}: {fault}")
    print(f"commits: {len(found)} violations", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
