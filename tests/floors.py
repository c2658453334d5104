#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""floors.py [--again] lint|host|vm|driver|kubernetes|debug ...: runs the tests of these floors one
after the other and goes on after a failure. Ends in what each step that failed said of it, and "N
passed, N failed", which counts every test that a step reports, and the step itself where it reports
none.

A step that has passed is not run again as long as neither the tree (all files that git would take)
nor the toolchain has changed: it is said to have passed before, and its tests count. --again, or
AGAIN=1, runs all."""

import collections
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cgpu"
# Results are forgotten after so many days: Debian's packages under the test machine may be others
# then.
FORGOTTEN = 7
# What a step says of its failure; of these lines the first ones, and of all the last ones, are
# shown again at the end.
TELLING = re.compile(r"FAILED|^error|^Error|panicked|kernel fault|stopped after|ended early|not ok")
SHOWN = 6
SUMMARIES = re.compile(r"(\d+) passed[,;] (\d+) failed")

CLIPPY = ["cargo", "clippy", "--quiet", "--locked"]
# What the kernel must not do: it has no panic handler that anybody would want to meet.
NO_PANICS = [
    "indexing_slicing",
    "unwrap_used",
    "expect_used",
    "panic",
    "unreachable",
    "string_slice",
]
RUN = ["tests/vm/run.sh"]
# Opens of each proxy in the long test.
MANY = os.environ.get("HAMMER", "100000")
# Raced calls in the long test.
RACED = os.environ.get("RACE", "1000000")
# Seconds of the long storm.
STORM = os.environ.get("STORM", "120")


def guest(name, command, options="", kernel="stock"):
    """A command in the test machine, as one types it, with options of run.sh."""
    return [
        *RUN,
        *f"--no-build --kernel {kernel} --name".split(),
        name,
        *options.split(),
        "--",
        *command.split(),
    ]


# Where time is measured: nothing that this machine does meanwhile reaches the figures.
COUNTED = "--count-instructions --limit 1800"

LINT = (
    ("lint finds what is planted", ["tests/lint/lint.py", "--self-test"]),
    ("lint", ["tests/lint/lint.py"]),
    ("commands of documents that fail are found", ["tests/documents/documents.py", "--self-test"]),
    ("dead links in the book are found", ["docs/book.py", "--self-test"]),
    ("large frames are found", ["tests/lint/frames.py", "--self-test"]),
    ("kernel faults are found", ["tests/vm/check-log-test.sh"]),
    ("differences of drivers are found", ["tests/driver/alike.py", "--self-test"]),
    ("differences from recordings are found", ["tests/driver/recordings.py", "--self-test"]),
    ("numbers of cases that are old are found", ["tests/driver/counted.py", "--self-test"]),
    ("format", ["cargo", "fmt", "--all", "--check"]),
    ("format of the module", ["rustfmt", "--check", "cgpu_km/cgpu_km_main.rs"]),
    ("scripts", ["tests/lint/scripts.sh"]),
    ("attacks name functions that exist", ["tests/abi/functions.py"]),
    ("clippy", [*CLIPPY, "--workspace", "--all-targets", "--", "-D", "warnings"]),
    (
        "clippy: nothing panics",
        [
            *CLIPPY,
            "-p",
            "cgpu_km",
            "--lib",
            "--",
            "-D",
            "warnings",
            *(w for l in NO_PANICS for w in ("-D", f"clippy::{l}")),
        ],
    ),
)
HOST = (
    ("unit and property tests", ["cargo", "test", "--quiet", "--locked", "--workspace"]),
    (
        "shares of compute on the model",
        ["sh", "-c", "make --no-print-directory bench-weights >/dev/null"],
    ),
    ("the tables know the recordings", ["tests/abi/recordings.py"]),
    ("programs on a real GPU count right", ["tests/gpu/programs/count.py", "--self-test"]),
    ("wrong numbers are found", ["tests/abi/parity.py", "--self-test"]),
    ("numbers are those of NVIDIA's headers", ["tests/abi/parity.py"]),
    ("fuzzing, a short run", ["tests/fuzz/fuzz.py", "smoke"]),
)
VM = (
    ("build", ["tests/vm/build.sh"]),
    ("clippy of the module", ["tests/vm/build.sh", "--clippy"]),
    ("suite", guest("suite", "cgpu-guest suite --unload", "--gpus 2 --limit 600")),
    ("attacks", guest("attacks", "cgpu-guest attacks", "--gpus 2 --limit 600")),
    ("weights and caps", guest("weights", "cgpu-guest weights", COUNTED)),
    ("storm", guest("storm", "cgpu-guest storm", "--limit 300")),
    (
        "the tool",
        guest(
            "tool",
            "sh /files/guest.sh",
            "--gpus 2 --file cgpuctl/tests/guest.sh --file tests/vm/guest-check.sh",
        ),
    ),
    ("stand-in driver", guest("stand-in", "standin-check", "--gpus 2 --load driver")),
    ("one object for every kernel", ["dist/object/test.sh"]),
    ("module for 6.1", ["tests/vm/build.sh", "--kernel", "6.1"]),
    ("suite on 6.1", guest("suite", "cgpu-guest suite --unload", "--gpus 2 --limit 600", "6.1")),
    ("attacks on 6.1", guest("attacks", "cgpu-guest attacks", "--gpus 2 --limit 600", "6.1")),
    ("seals, or the module is not loaded", ["tests/vm/seal-test.sh", "--kernel", "6.1"]),
    ("module for 6.12", ["tests/vm/build.sh", "--kernel", "6.12"]),
    (
        "stand-in driver on 6.12",
        guest("stand-in on 6.12", "standin-check", "--gpus 2 --load driver", "6.12"),
    ),
    ("suite on 6.12", guest("suite", "cgpu-guest suite --unload", "--gpus 2 --limit 600", "6.12")),
    ("module for the newest kernel", ["tests/vm/build.sh", "--kernel", "newest"]),
    (
        "loaded on the newest kernel",
        guest("newest", "cgpu-guest suite --unload --only unload:", "--limit 300", "newest"),
    ),
    ("replays", ["tests/vm/replays.py", "--no-build"]),
    ("hammer", guest("hammer", "cgpu-guest hammer 20000", "--limit 300")),
    ("storm of memory", guest("storm", "cgpu-guest storm-memory --seconds 12", "--limit 300")),
    ("race", guest("race", "cgpu-guest race 10000", "--limit 300")),
    ("module before driver", ["tests/vm/load-order.sh"]),
    ("install", ["tests/vm/install-test.sh"]),
    ("container engines", ["tests/vm/engine-test.sh"]),
    ("package", ["tests/vm/package-test.sh"]),
    ("commands of the documents", ["tests/documents/documents.sh"]),
)
DEBUG = (
    ("debug build", ["tests/vm/build.sh", "--kernel", "debug"]),
    (
        "suite on the debug kernel",
        guest("suite", "cgpu-guest suite --unload", "--gpus 2 --limit 1800 --leaks", "debug"),
    ),
    (
        "attacks on the debug kernel",
        guest("attacks", "cgpu-guest attacks", "--gpus 2 --limit 1800 --leaks", "debug"),
    ),
    (
        "storm on the debug kernel",
        guest("storm", f"cgpu-guest storm --seconds {STORM}", "--limit 3600 --leaks", "debug"),
    ),
    (
        "stand-in driver on the debug kernel",
        guest("stand-in", "standin-check", "--gpus 2 --load driver --limit 600 --leaks", "debug"),
    ),
    (
        "replays on the debug kernel",
        ["tests/vm/replays.py", "--no-build", "--kernel", "debug", "--limit", "7200"],
    ),
    (
        f"hammer of {MANY} on the debug kernel",
        guest("hammer", f"cgpu-guest hammer {MANY}", "--limit 14400", "debug"),
    ),
    (
        "storm of memory on the debug kernel",
        guest("storm", "cgpu-guest storm-memory --seconds 120", "--limit 1200 --leaks", "debug"),
    ),
    (
        "storm of memory with failing allocations",
        guest(
            "failing",
            "cgpu-guest storm-memory --seconds 120 --fail-allocations",
            "--limit 1200 --leaks",
            "debug",
        ),
    ),
    (
        "race on the debug kernel",
        guest("race", "cgpu-guest race 20000", "--limit 1800", "debug"),
    ),
    ("stock build", ["tests/vm/build.sh"]),
    (
        f"race of {RACED} on the stock kernel",
        guest("race", f"cgpu-guest race {RACED}", "--limit 7200"),
    ),
    (
        f"hammer of {MANY} on the stock kernel",
        guest("hammer", f"cgpu-guest hammer {MANY}", "--limit 3600"),
    ),
)
DRIVER = (
    ("programs for the machine", ["tests/vm/build.sh"]),
    ("modules of the real driver", ["tests/driver/build.sh"]),
    ("real driver", ["tests/driver/test.sh"]),
    ("stand-in and real driver answer alike", ["tests/driver/alike.py"]),
    ("recordings on the real driver", ["tests/driver/recordings.py"]),
    ("demo", ["tests/vm/demo.sh", "--check"]),
)
KUBERNETES = (
    ("control plane of Kubernetes", ["tests/kubernetes/build.sh"]),
    ("DRA driver on the control plane", ["tests/kubernetes/test.sh"]),
)
FLOORS = {
    "lint": LINT,
    "host": HOST,
    "vm": VM,
    "driver": DRIVER,
    "kubernetes": KUBERNETES,
    "debug": DEBUG,
}


def run(command):
    """Runs a step, shows its output as it comes, and returns its exit code, its summary lines, and
    what to show again if it failed."""
    tallies, telling, last = [], [], collections.deque(maxlen=SHOWN)
    with subprocess.Popen(
        command,
        cwd=TREE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as step:
        for line in step.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            last.append(line)
            if TELLING.search(line) and len(telling) < SHOWN:
                telling.append(line)
            found = SUMMARIES.search(line)
            if found:
                tallies.append((int(found.group(1)), int(found.group(2))))
    return step.returncode, tallies, telling + [line for line in last if line not in telling]


def content():
    """A hash of everything that a result depends on: the tree's files and the toolchain. None: git
    does not know this tree."""
    ask = lambda *command: subprocess.run(command, cwd=TREE, check=True, capture_output=True).stdout
    every = hashlib.sha256(ask("cargo", "--version") + ask("rustc", "--version"))
    try:
        names = ask("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except subprocess.CalledProcessError:
        return None
    for name in sorted(set(names.split(b"\0")) - {b""}):
        path = TREE / os.fsdecode(name)
        if path.is_symlink():
            data = os.fsencode(os.readlink(path))
        elif path.is_file():
            data = path.read_bytes()
        else:
            continue
        every.update(b"%d %s %d\0" % (path.lstat().st_mode, name, len(data)))
        every.update(data)
    return every.hexdigest()


class Before:
    """What has passed before, by what it depended on."""

    def __init__(self, again):
        self.folder = CACHE / "passed"
        self.content = content()
        self.again = again
        limit = time.time() - FORGOTTEN * 86400
        for old in self.folder.glob("*") if self.folder.is_dir() else ():
            if old.stat().st_mtime < limit:
                old.unlink(missing_ok=True)

    def place(self, command):
        return (
            self.folder
            / hashlib.sha256(json.dumps([self.content, command]).encode()).hexdigest()[:32]
        )

    def passed(self, command):
        """How many tests passed when this was run last, if it passed."""
        if self.again or not self.content or builds(command):
            return None
        try:
            return json.loads(self.place(command).read_text())["passed"]
        except (OSError, ValueError, KeyError):
            return None

    def note(self, command, passed):
        """Only what passed on a tree that is still the same."""
        if not self.content or content() != self.content:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.place(command).write_text(json.dumps({"command": command, "passed": passed}))


def builds(command):
    """Whether a step leaves what later ones need: it knows itself what is to be done."""
    return command[0].endswith("/build.sh") and "--clippy" not in command


def have_tools():
    """A fresh machine has cargo, but maybe nothing that links, and a tree of no clone."""
    wanted = []
    if not shutil.which("cc"):
        wanted += ["gcc", "libc6-dev"]
    # libFuzzer is C++.
    if not shutil.which("c++"):
        wanted += ["g++"]
    # It makes a key for the control plane of Kubernetes.
    if not shutil.which("openssl"):
        wanted += ["openssl"]
    if not shutil.which("git"):
        wanted += ["git"]
    if not wanted:
        return
    print(f"== installing {' '.join(wanted)}", flush=True)
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", *wanted],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def lacks(command):
    """What a step needs and this machine's toolchain may not have; it is skipped by name, not
    silently."""
    if command[:2] == ["cargo", "clippy"] and not shutil.which("cargo-clippy"):
        return "this toolchain has no clippy"
    if (command[0] == "rustfmt" or command[:2] == ["cargo", "fmt"]) and not shutil.which("rustfmt"):
        return "this toolchain has no rustfmt"
    if command[0].startswith("tests/kubernetes/"):
        return go_is_missing()
    return None


@functools.cache
def go_is_missing():
    """Why there is no Go that builds Kubernetes; it is installed where Debian has one."""
    asked = subprocess.run(["tests/kubernetes/go.sh"], cwd=TREE, capture_output=True, text=True)
    return asked.stderr.strip() if asked.returncode else None


def main():
    floors = [word for word in sys.argv[1:] if word != "--again"]
    if not floors or set(floors) - set(FLOORS):
        sys.exit(f"usage: floors.py [--again] {'|'.join(FLOORS)} ...")
    os.environ["CARGO_TERM_COLOR"] = "never"
    # A verdict belongs to the tree, not to the draw. `cargo test` by itself draws new cases.
    os.environ.setdefault("PROPTEST_RNG_SEED", "1")
    have_tools()
    again = "--again" in sys.argv[1:] or os.environ.get("AGAIN", "0") not in ("", "0")
    before = Before(again)
    began = time.monotonic()
    passed = failed = skipped = 0
    failures = {}
    for floor in floors:
        for name, command in FLOORS[floor]:
            missing = lacks(command)
            if missing:
                print(f"== {name}: SKIPPED, {missing}", flush=True)
                skipped += 1
                continue
            good = before.passed(command)
            if good is not None:
                print(
                    f"== {name}: ok, {good} passed before with the same tree (AGAIN=1 runs it)",
                    flush=True,
                )
                passed += good
                continue
            print(f"== {name}", flush=True)
            at = time.monotonic()
            code, tallies, said = run(command)
            good, bad = sum(t[0] for t in tallies), sum(t[1] for t in tallies)
            if code and not bad:
                bad += 1
            elif not code and bad:
                code = 1
            elif not code and not good:
                good = 1
            passed += good
            failed += bad
            if code:
                failures[name] = said
            else:
                before.note(command, good)
            print(
                f"== {name}: {'FAILED' if code else 'ok'} ({time.monotonic() - at:.0f} s)",
                flush=True,
            )
    for name, said in failures.items():
        print(f"== {name} failed:")
        print("".join(f"   {line.rstrip()[:300]}\n" for line in said), end="")
    print(f"== {time.monotonic() - began:.0f} s; failed: {', '.join(failures) or 'nothing'}")
    print(
        f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""),
        flush=True,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
