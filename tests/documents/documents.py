#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""documents.py PLACE: prints a script with the commands of README and docs/ that run in PLACE, in
their order: host, folder or machine (documents.sh says what these are).

documents.py --judge FILE...: reads what the scripts printed. Each command must have run and
exited as its document says; where a page shows output, that must have come. Ends in "documents: N
passed, N failed".

documents.py --self-test: each kind of fault that is planted in a small page is found.

Last come the examples in the help of cgpuctl's commands, as its own test has recorded it.

A command is a line of a `sh` block, or one behind `$ ` or `# ` of a `console` block, whose other
lines are its output: `...` there stands for any lines, `(exits with N)` for the exit code. A `text`
block is the output of the command before it. A command in a block of another kind is an error, and
so is an entry of the tables below that fits none."""

import dataclasses
import re
import shlex
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
MARK = "@@@"
# The output of each command's `--help` in a test, and the name that it has here as a page.
HELP = "cgpuctl/tests/snapshots/command_line__help.snap"
HELP_PAGE = "--help"
# How a line begins that is a command.
COMMAND = re.compile(
    r"\s*(?:[$#] )?(?:sudo |\./)?"
    r"(?:cgpuctl|podman|docker|make|install\.sh|uninstall\.sh|modprobe|dpkg|apt|apt-mark|helm|"
    r"kubectl|mokutil|tests/\S+\.py|reboot)(?: |$)"
)


@dataclasses.dataclass
class Command:
    """A command of a page, and what it is expected to do."""

    page: str
    line: int
    text: str
    output: list | None = None
    code: int = 0


# Pages whose output is compared: recorded in the machine that this test starts.
COMPARED = ("README.md", "docs/cgpuctl.md")
# (page, beginning of a command, why it does not run). An empty page is any.
LEFT_OUT = (
    ("", "make demo", "a machine of its own: the step `demo` runs it"),
    ("", "apt install linux-headers", "the folder has them already"),
    ("", "apt install nvidia-open", "no archive of NVIDIA's is used: the driver is the stand-in"),
    ("", "apt-mark ", "goes with the package of the line before it"),
    ("", "mokutil ", "asks the firmware, which the machine has not"),
    ("docs/kubernetes.md", "helm ", "wants a cluster: `make test-kubernetes` renders the chart"),
    ("docs/kubernetes.md", "curl ", "wants a cluster: `make test-kubernetes` reads the figures"),
    ("docs/kubernetes.md", "RUSTFLAGS=", "takes minutes: tests/kubernetes/node-test.sh does it"),
    ("docs/kubernetes.md", "docker ", "wants a daemon of Docker, and a registry"),
    ("docs/kubernetes.md", "kubectl ", "wants a cluster: lint looks who runs it (drift.py)"),
    ("docs/install.md", "make ", "README's same line has run; it is one way or the other"),
    (
        "docs/install.md",
        "apt install ./target",
        "README's same line has run; it is one way or the other",
    ),
    ("docs/install.md", "./install.sh --sign", "`sign-file` is gone with the headers"),
    ("docs/support.md", "", "wants a kernel of another distribution, and takes an hour"),
    ("docs/upgrading.md", "/usr/src/cgpu-", "the step `package` runs it beside the package"),
)
# Commands that run on the host that builds, and those that run in the folder before it starts as
# a machine. All others run in the machine.
HOST = (("README.md", "make object"), ("README.md", "make package"))
FOLDER = (
    ("README.md", "./install.sh"),
    ("README.md", "apt install ./target"),
    ("docs/install.md", "dist/supported.sh"),
)
# (page, beginning, what runs in its place, why).
INSTEAD = (
    ("README.md", "./install.sh", r"\g<0> --kernel $RELEASE", "the folder has not started yet"),
    (
        "docs/install.md",
        "dist/supported.sh",
        "dist/supported.sh /lib/modules/$RELEASE/build target/object/exports",
        "the folder has not started yet",
    ),
    (
        "docs/install.md",
        "./install.sh",
        r"\g<0> --prebuilt /files/prebuilt",
        "compilers take minutes in an emulated machine, and README's line has built it",
    ),
    (
        "",
        "cgpuctl metrics --listen 127.0.0.1:9400",
        r"\g<0> & for n in $(seq 60); do sleep 1; code=0;"
        " busybox wget -qO- http://127.0.0.1:9400/metrics | grep cgpu_info && break; code=1; done;"
        " kill $!; (exit $code)",
        "it serves until it is stopped",
    ),
    (
        HELP_PAGE,
        "cgpuctl events",
        r"timeout 300 \g<0> & for weight in 32 33 34 31; do sleep 5;"
        " cgpuctl inst set train --weight $weight; done; wait $!",
        "it waits for an event",
    ),
)
# (page, beginning of a command, what is done before its first run).
BEFORE = (
    # The other way of two.
    ("README.md", "apt install ./target", "./uninstall.sh"),
    # Instances get their numbers anew after those of the first screen.
    ("README.md", "cgpuctl gpu list", "cgpuctl unload; modprobe cgpu_km"),
    # Udev's rule does this on a host.
    ("README.md", "podman run --rm --device cgpu.io/gpu=infer", "cgpuctl cdi generate --to-file /run/cdi/cgpu.json"),
    ("README.md", "docker run", "engine"),
    # README's last lines have removed the module.
    ("docs/cgpuctl.md", "cgpuctl gpu list", "./install.sh --prebuilt /files/prebuilt"),
    ("docs/cgpuctl.md", "cgpuctl inst destroy train", "exec 3<>/dev/cgpu0"),
    ("docs/cgpuctl.md", "cgpuctl run", "modprobe cgpu_km; echo 'print(1)' >train.py"),
    (
        "docs/cgpuctl.md",
        "cgpuctl apply",
        "cgpuctl inst create train --gpu 0 --mem 24GiB --weight 30",
    ),
    ("docs/cgpuctl.md", "modprobe cgpu_km unsafe", "cgpuctl unload"),
    (
        "docs/cgpuctl.md",
        "cgpuctl inst show train --refused",
        "cgpuctl inst create train --gpu 0 --mem 8GiB",
    ),
    (
        "docs/compute.md",
        "cgpuctl inst set train --weight 75",
        "cgpuctl inst create infer --gpu 0 --mem 8GiB",
    ),
    ("docs/containers.md", "docker run", "engine cgpu-runtime"),
    # Percentages of a GPU add up to 100.
    ("docs/migration.md", "cgpuctl gpu", "cgpuctl rm service; cgpuctl rm batch"),
    (
        HELP_PAGE,
        "cgpuctl inst create train",
        "cgpuctl rm train; cgpuctl rm infer; cgpuctl gpu set 0 --policy native",
    ),
    (HELP_PAGE, "cgpuctl rm batch", "cgpuctl inst create batch --gpu 0 --mem 1GiB"),
    (HELP_PAGE, "cgpuctl completions", "mkdir -p /etc/bash_completion.d"),
    ("docs/faq.md", "podman run", "cgpuctl cdi generate --to-file /run/cdi/cgpu.json"),
    ("docs/metrics.md", "cgpuctl metrics >", "mkdir -p /var/lib/prometheus/node-exporter"),
)
# The command with which README has a host with cgpu.
INSTALLED = ("README.md", "cgpuctl doctor")
# (page, beginning of a command, why its output is another).
OTHER_OUTPUT = (
    ("docs/cgpuctl.md", "cgpuctl inst show train --refused", "of a program that draws"),
)


def fits(entry, command):
    return entry[0] in ("", command.page) and command.text.startswith(entry[1])


def commands(page, text):
    """The commands of a page; raises ValueError at one in a block of another kind."""
    found = []
    for block in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```", text, re.M | re.S):
        line = text.count("\n", 0, block.start()) + 1
        kind, lines = block.group(2), block.group(3).splitlines()
        if kind == "text" and found:
            found[-1].output = lines
            continue
        if kind not in ("sh", "console"):
            wrong = next((l for l in lines if COMMAND.match(l)), None)
            if wrong:
                raise ValueError(f"{page}:{line}: {wrong!r} is in a block that is not `sh`")
            continue
        held = ""
        for said in lines:
            line += 1
            said = held + said.removeprefix(block.group(1))
            held = ""
            prompt = re.match(r"[$#] ", said) if kind == "console" else None
            ended = re.fullmatch(r"\(exits with (\d+)\)", said)
            if kind == "sh" and said.endswith("\\"):
                held = said[:-1]
            elif kind == "sh" or prompt:
                said = said.partition("  # ")[0].rstrip()
                if said:
                    found.append(Command(page, line, said[2:] if prompt else said))
                    found[-1].output = [] if prompt else None
            elif ended:
                found[-1].code = int(ended.group(1))
            elif found:
                found[-1].output.append(said.rstrip())
    return found


def examples(text):
    """The examples in the help of all commands, as a page."""
    for found in re.finditer(r"^Examples:\n((?:  .*\n)+)", text, re.M):
        line = text.count("\n", 0, found.start()) + 1
        for at, example in enumerate(found.group(1).splitlines(), line + 1):
            yield Command(HELP_PAGE, at, example.strip())


def files(text):
    """(path, content) of each block whose first line is a comment with the file's path."""
    for found in re.finditer(r"^```\w+\n# (/\S+)\n(.*?)^```", text, re.M | re.S):
        yield found.groups()


def pages():
    return {
        p.relative_to(TREE).as_posix(): p.read_text()
        for p in (TREE / "README.md", *order())
    }


def order():
    """Pages of docs/ as the book has them: one that is read first runs first."""
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (TREE / "docs/SUMMARY.md").read_text())
    return [TREE / "docs" / name for name in dict.fromkeys(listed)]


def every():
    """All commands in their order. Those of README's first screen need a host with cgpu, and come
    when README has one."""
    texts = pages()
    found = [c for page, text in texts.items() for c in commands(page, text)]
    end = texts["README.md"].partition("\n## ")[0].count("\n")
    first = [c for c in found if c.page == "README.md" and c.line <= end]
    found = [c for c in found if c not in first]
    at = next(n for n, c in enumerate(found) if (c.page, c.text) == INSTALLED)
    found[at + 1 : at + 1] = first
    return found + list(examples((TREE / HELP).read_text()))


def stale(found):
    """Entries of the tables that fit no command."""
    for name, table in (
        ("LEFT_OUT", LEFT_OUT),
        ("HOST", HOST),
        ("FOLDER", FOLDER),
        ("INSTEAD", INSTEAD),
        ("BEFORE", BEFORE),
        ("OTHER_OUTPUT", OTHER_OUTPUT),
    ):
        for entry in table:
            if not any(fits(entry, command) for command in found):
                yield f"{name} has {entry[:2]}, which fits no command"


def place(command):
    if any(fits(entry, command) for entry in LEFT_OUT):
        return None
    if any(fits(entry, command) for entry in HOST):
        return "host"
    return "folder" if any(fits(entry, command) for entry in FOLDER) else "machine"


def script(where, found):
    """The commands of a place as a script that says of each what it printed and how it ended."""
    texts, done, written = pages(), set(), set()
    for number, command in enumerate(found):
        if place(command) != where:
            continue
        if command.page not in written:
            written.add(command.page)
            for path, content in files(texts.get(command.page, "")):
                yield f"mkdir -p {Path(path).parent}; printf %s {shlex.quote(content)} >{path}"
        for entry in BEFORE:
            if entry not in done and fits(entry, command):
                done.add(entry)
                yield f"{{ {entry[2]}; }} >&2"
        text = command.text
        for page, begins, instead, _ in INSTEAD:
            if fits((page, begins), command):
                text = re.sub(r"^.*$", instead, text, count=1)
        yield f"echo '{MARK} begin {number}'"
        yield f"(eval {shlex.quote(text)}) 2>&1; code=$?"
        yield f"echo; echo {MARK} end {number} $code"
        if (command.page, command.text) == ("docs/cgpuctl.md", "cgpuctl unload"):
            # The second time, its programs have ended.
            yield "exec 3>&-"


def ran(transcript):
    """{number of a command: (exit code, lines)} of what the scripts printed."""
    pattern = rf"^{MARK} begin (\d+)\n(.*?)^{MARK} end \1 (\d+)$"
    return {
        int(number): (int(code), [l.rstrip() for l in said.rstrip("\n").split("\n")])
        for number, said, code in re.findall(pattern, transcript, re.M | re.S)
    }


def agrees(wanted, said):
    """Whether output is what a document shows; `...` there stands for any lines."""
    pattern = "\n".join(
        r"(?:.*\n?)*?" if line.strip() == "..." else re.escape(line) for line in wanted
    )
    return re.fullmatch(pattern + r"\n*" if wanted else r"\n*", "\n".join(said)) is not None


def faults(found, results):
    """(command, what is wrong with it or None) of each command that has a place."""
    for number, command in enumerate(found):
        if not place(command):
            continue
        if number not in results:
            yield command, "it did not run"
            continue
        code, said = results[number]
        shown = "\n".join(f"    {line}" for line in said)
        compared = command.page in COMPARED and command.output is not None
        compared = compared and not any(fits(entry, command) for entry in OTHER_OUTPUT)
        if code != command.code:
            yield command, f"it exits with {code}, not {command.code}\n{shown}"
        elif compared and not agrees(command.output, said):
            yield command, f"it prints\n{shown}"
        else:
            yield command, None


def judge(paths):
    found = every()
    results = ran("".join(Path(path).read_text(errors="replace") for path in paths))
    passed = failed = 0
    for problem in stale(found):
        print(f"FAILED: documents.py: {problem}")
        failed += 1
    for command, fault in faults(found, results):
        passed, failed = passed + (not fault), failed + bool(fault)
        name = f"{command.page}:{command.line}: {command.text}"
        print(f"FAILED: {name}\n    {fault}" if fault else f"ok: {name}")
    for command in found:
        for entry in LEFT_OUT:
            if fits(entry, command):
                print(f"left out: {command.page}:{command.line}: {command.text}: {entry[2]}")
                break
    print(f"documents: {passed} passed, {failed} failed")
    return 1 if failed else 0


def self_test():
    """Each planted fault is found, and a page that is right passes."""
    page = "docs/cgpuctl.md"
    text = "```console\n$ cgpuctl a\none\n...\nlast\n$ cgpuctl b\n(exits with 6)\n```\n"
    text += "```sh\ncgpuctl c\n```\n```text\nthree\n```\n"
    found = commands(page, text)
    good = f"{MARK} begin 0\none\nx\nlast\n{MARK} end 0 0\n{MARK} begin 1\n\n{MARK} end 1 6\n"
    good += f"{MARK} begin 2\nthree\n{MARK} end 2 0\n"
    cases = (
        ("a page that is right", good, 0),
        ("a command that did not run", good[: good.find(f"{MARK} begin 2")], 1),
        ("another exit code", good.replace("end 1 6", "end 1 0"), 1),
        ("another output", good.replace("last", "lost"), 1),
        ("more output", good.replace("last\n", "last\nmore\n"), 1),
        ("another output than the block below", good.replace("three", "two"), 1),
    )
    failed = 0
    for name, transcript, wanted in cases:
        have = sum(fault is not None for _, fault in faults(found, ran(transcript)))
        failed += have != wanted
        print(f"{'ok' if have == wanted else 'FAILED'}: {name}")
    try:
        commands(page, "```\ncgpuctl status\n```\n")
        failed += 1
        print("FAILED: a command in a block without a kind")
    except ValueError:
        print("ok: a command in a block without a kind")
    # All but the entries for any page are stale where there are no commands.
    unfit = len(list(stale([]))) == sum(
        len(t) for t in (LEFT_OUT, HOST, FOLDER, INSTEAD, BEFORE, OTHER_OUTPUT)
    )
    failed += not unfit
    print(f"{'ok' if unfit else 'FAILED'}: entries that fit nothing")
    print(f"documents.py: {len(cases) + 2 - failed} passed, {failed} failed")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    try:
        if sys.argv[1:2] == ["--judge"]:
            return judge(sys.argv[2:])
        if sys.argv[1:] in (["host"], ["folder"], ["machine"]):
            print("\n".join(script(sys.argv[1], every())))
            return 0
    except ValueError as problem:
        sys.exit(f"documents.py: {problem}")
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
