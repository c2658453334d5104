#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""floors.py [--again] lint|host|vm|driver|kubernetes|debian13|debug ...: runs the tests of these
floors and goes on after a failure. Ends in what each step that failed said of it, and "N passed, N
failed", which counts every test that a step reports, and the step itself where it reports none.

Two steps run at once, or JOBS=N: most of them keep one core busy. A step waits for those that it is
listed after. What the steps print comes in the order of the list, as if they ran one by one.

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
import threading
import time
import typing
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cgpu"
# Results are forgotten after so many days: Debian's packages under the test machine may be others
# then.
FORGOTTEN = 7
# Lines in which a step reports its failure. The first of these lines and the last of all lines are
# shown again at the end.
TELLING = re.compile(r"FAILED|^error|^Error|panicked|kernel fault|stopped after|ended early|not ok")
SHOWN = 6
SUMMARIES = re.compile(r"(\d+) passed[,;] (\d+) failed")

CLIPPY = ["cargo", "clippy", "--quiet", "--locked"]
# Lints against panics: a panic in the module would take the kernel with it.
NO_PANICS = [
    "indexing_slicing",
    "unwrap_used",
    "expect_used",
    "panic",
    "unreachable",
    "string_slice",
]
RUN = ["tests/vm/run.sh"]
# How many steps run at once.
JOBS = int(os.environ.get("JOBS") or 2)
# Opens of each proxy in the long test.
MANY = os.environ.get("HAMMER", "100000")
# Raced calls in the long test.
RACED = os.environ.get("RACE", "1000000")
# Seconds of the long storm.
STORM = os.environ.get("STORM", "120")
# The storms in the test machine draw the same every time. How their processes take turns is not
# drawn.
SEED = "--seed 1"


class Step(typing.NamedTuple):
    """A step: its command, and the names of those that must have ended before."""

    name: str
    command: list
    after: tuple = ()


def after(first, *steps):
    """A step that leaves what others need, and those."""
    return (Step(*first), *(Step(*step, after=(first[0],)) for step in steps))


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


# For tests that measure time: nothing else that this machine does reaches the figures.
COUNTED = "--count-instructions --limit 1800"

LINT = (
    Step("lint finds what is planted", ["tests/lint/lint.py", "--self-test"]),
    Step("lint", ["tests/lint/lint.py"]),
    Step("commits that say too little are found", ["tests/lint/commits.py", "--self-test"]),
    Step("commits", ["tests/lint/commits.py"]),
    Step(
        "commands of documents that fail are found", ["tests/documents/documents.py", "--self-test"]
    ),
    Step("dead links in the book are found", ["docs/book.py", "--self-test"]),
    Step("large frames are found", ["tests/lint/frames.py", "--self-test"]),
    Step("kernel faults are found", ["tests/vm/check-log-test.sh"]),
    Step("differences of drivers are found", ["tests/driver/alike.py", "--self-test"]),
    Step("differences from recordings are found", ["tests/driver/recordings.py", "--self-test"]),
    Step("numbers of cases that are old are found", ["tests/driver/counted.py", "--self-test"]),
    Step("unknown lines of the driver's are found", ["tests/driver/lines.py", "--self-test"]),
    Step("rust-analyzer finds the module's crate", ["dist/rust-project.py", "--self-test"]),
    Step("wrong logs of attacks are found", ["tests/attacks.py", "--self-test"]),
    Step("all attacks are in the table of runs", ["tests/attacks.py", "--check"]),
    Step("order of steps is kept", ["tests/floors.py", "--self-test"]),
    Step("kernels keep their lines in the table", ["tests/hosts.py", "--self-test"]),
    Step("format", ["cargo", "fmt", "--all", "--check"]),
    Step("format of the module", ["rustfmt", "--check", "cgpu_km/cgpu_km_main.rs"]),
    Step("scripts", ["tests/lint/scripts.sh"]),
    Step("shellcheck", ["tests/lint/scripts.sh", "--shellcheck"]),
    Step("attacks name functions that exist", ["tests/abi/functions.py"]),
    Step("clippy", [*CLIPPY, "--workspace", "--all-targets", "--", "-D", "warnings"]),
    Step(
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
        # Cargo lets one at a time into a folder of what it built.
        ("clippy",),
    ),
)
HOST = (
    # Cold, mdbook is built first, which takes a minute of two cores.
    Step("the book, and its links followed", ["docs/book.py"]),
    Step(
        "unit and property tests",
        ["cargo", "test", "--quiet", "--locked", "--workspace"],
        ("clippy",),
    ),
    Step(
        "shares of compute on the model",
        ["sh", "-c", "make --no-print-directory bench-weights >/dev/null"],
        ("clippy",),
    ),
    Step("the tables know the recordings", ["tests/abi/recordings.py"]),
    Step("programs on a real GPU count right", ["tests/gpu/programs/count.py", "--self-test"]),
    Step("tenants in turns are counted right", ["tests/gpu/programs/turns.py", "--self-test"]),
    Step("wrong numbers are found", ["tests/abi/parity.py", "--self-test"]),
    Step("faults can be planted", ["tests/mutation/mutate.py", "--check"]),
    Step("numbers are those of NVIDIA's headers", ["tests/abi/parity.py"]),
    Step("fuzzing, a short run", ["tests/fuzz/fuzz.py", "smoke"]),
)
SUITE = "cgpu-guest suite --unload"
ATTACKS = "cgpu-guest attacks --beside 15"
VM = (
    *after(
        ("build", ["tests/vm/build.sh"]),
        ("clippy of the module", ["tests/vm/build.sh", "--clippy"]),
        ("suite", guest("suite", SUITE, "--gpus 2 --limit 1200")),
        ("attacks", guest("attacks", ATTACKS, "--gpus 2 --limit 1200")),
        ("weights and caps", guest("weights", "cgpu-guest weights", COUNTED)),
        ("storm", guest("storm", f"cgpu-guest storm {SEED}", "--limit 600")),
        (
            "the tool",
            guest(
                "tool",
                "sh /files/guest.sh",
                "--gpus 2 --limit 600"
                " --file cgpuctl/tests/guest.sh --file tests/vm/guest-check.sh",
            ),
        ),
        ("one object for every kernel", ["dist/object/test.sh"]),
        ("replays", ["tests/vm/replays.py", "--no-build"]),
        ("hammer", guest("hammer", "cgpu-guest hammer 20000", "--limit 600")),
        (
            "storm of memory",
            guest("storm", f"cgpu-guest storm-memory --seconds 12 {SEED}", "--limit 600"),
        ),
        (
            "storm of pages",
            guest("storm", f"cgpu-guest storm-pages --seconds 12 {SEED}", "--limit 600"),
        ),
        ("race", guest("race", "cgpu-guest race 10000", "--limit 600")),
        ("module before driver", ["tests/vm/load-order.sh"]),
        ("install", ["tests/vm/install-test.sh"]),
        ("container engines", ["tests/vm/engine-test.sh"]),
        ("commands of the documents", ["tests/documents/documents.sh"]),
        ("proxy of the documents", ["tests/documents/proxy-test.sh"]),
    ),
    *after(
        ("module for 6.1", ["tests/vm/build.sh", "--kernel", "6.1"]),
        ("suite on 6.1", guest("suite", SUITE, "--gpus 2 --limit 1200", "6.1")),
        ("attacks on 6.1", guest("attacks", ATTACKS, "--gpus 2 --limit 1200", "6.1")),
        ("seals, or the module is not loaded", ["tests/vm/seal-test.sh", "--kernel", "6.1"]),
        # It boots 6.1.
        ("package on Debian 12", ["tests/vm/debian12-test.sh"]),
    ),
    *after(
        ("module for 6.12", ["tests/vm/build.sh", "--kernel", "6.12"]),
        ("suite on 6.12", guest("suite", SUITE, "--gpus 2 --limit 1200", "6.12")),
        # It boots 6.12 too.
        ("package", ["tests/vm/package-test.sh"]),
    ),
    *after(
        ("module for the newest kernel", ["tests/vm/build.sh", "--kernel", "newest"]),
        (
            "loaded on the newest kernel",
            guest("newest", "cgpu-guest suite --unload --only unload:", "--limit 600", "newest"),
        ),
    ),
)
DEBUG = (
    *after(
        ("debug build", ["tests/vm/build.sh", "--kernel", "debug"]),
        (
            "suite on the debug kernel",
            guest("suite", SUITE, "--gpus 2 --limit 3600 --leaks", "debug"),
        ),
        (
            "attacks on the debug kernel",
            guest("attacks", ATTACKS, "--gpus 2 --limit 3600 --leaks", "debug"),
        ),
        (
            "storm on the debug kernel",
            guest(
                "storm",
                f"cgpu-guest storm --seconds {STORM} {SEED}",
                "--limit 3600 --leaks",
                "debug",
            ),
        ),
        (
            "replays on the debug kernel",
            ["tests/vm/replays.py", "--no-build", "--kernel", "debug", "--limit", "14400"],
        ),
        (
            f"hammer of {MANY} on the debug kernel",
            guest("hammer", f"cgpu-guest hammer {MANY}", "--limit 28800", "debug"),
        ),
        (
            "storm of memory on the debug kernel",
            guest(
                "storm",
                f"cgpu-guest storm-memory --seconds 120 {SEED}",
                "--limit 2400 --leaks",
                "debug",
            ),
        ),
        (
            "storm of memory with failing allocations",
            guest(
                "failing",
                f"cgpu-guest storm-memory --seconds 120 --fail-allocations {SEED}",
                "--limit 2400 --leaks",
                "debug",
            ),
        ),
        (
            "storm of pages on the debug kernel",
            guest(
                "storm",
                f"cgpu-guest storm-pages --seconds 120 {SEED}",
                "--limit 2400 --leaks",
                "debug",
            ),
        ),
        (
            "race on the debug kernel",
            guest("race", "cgpu-guest race 20000", "--limit 3600", "debug"),
        ),
    ),
    *after(
        ("stock build", ["tests/vm/build.sh"]),
        (
            f"race of {RACED} on the stock kernel",
            guest("race", f"cgpu-guest race {RACED}", "--limit 14400"),
        ),
        (
            f"hammer of {MANY} on the stock kernel",
            guest("hammer", f"cgpu-guest hammer {MANY}", "--limit 7200"),
        ),
    ),
)
DRIVER = (
    Step("programs for the machine", ["tests/vm/build.sh"], ("build",)),
    Step("modules of the real driver", ["tests/driver/build.sh"], ("programs for the machine",)),
    *(
        Step(
            f"real driver: {title}", ["tests/driver/test.sh", part], ("modules of the real driver",)
        )
        for title, part in (
            ("suite and attacks", "suite"),
            ("programs", "session"),
            ("orders of loading", "orders"),
            ("what goes wrong with GPUs", "faults"),
            ("GPU time", "sharing"),
        )
    ),
    Step(
        "stand-in and real driver answer alike",
        ["tests/driver/alike.py"],
        ("modules of the real driver",),
    ),
    Step(
        "recordings on the real driver",
        ["tests/driver/recordings.py"],
        ("modules of the real driver",),
    ),
    Step("demo", ["tests/vm/demo.sh", "--check"], ("modules of the real driver",)),
)
NEWEST = ["env", "KUBERNETES=v1.37.2"]
KUBERNETES = (
    *after(
        ("control plane of Kubernetes", ["tests/kubernetes/build.sh"]),
        ("DRA driver on the control plane", ["tests/kubernetes/test.sh"]),
        ("pods on a node", ["tests/kubernetes/node-test.sh"]),
    ),
    # One builds at a time, which takes both cores, and one machine is a node.
    Step(
        "control plane of Kubernetes 1.37",
        [*NEWEST, "tests/kubernetes/build.sh"],
        ("DRA driver on the control plane",),
    ),
    Step(
        "DRA driver on Kubernetes 1.37",
        [*NEWEST, "CLAIMS=1000", "NODES=200", "tests/kubernetes/test.sh"],
        ("control plane of Kubernetes 1.37",),
    ),
    Step(
        "pods on a node of Kubernetes 1.37",
        [*NEWEST, "tests/kubernetes/node-test.sh"],
        ("control plane of Kubernetes 1.37", "pods on a node"),
    ),
)
DEBIAN13 = after(
    ("programs for the host with Debian 13", ["tests/vm/build.sh"]),
    ("way of a user of Debian 13", ["tests/debian13/test.sh"]),
)
FLOORS = {
    "lint": LINT,
    "host": HOST,
    "vm": VM,
    "driver": DRIVER,
    "kubernetes": KUBERNETES,
    "debian13": DEBIAN13,
    "debug": DEBUG,
}


class Screen:
    """The steps' output, in the order of the list. That of the first one that has not ended is
    shown as it comes, that of later ones is kept until then."""

    def __init__(self, write):
        self.write = write
        self.lock = threading.Lock()
        self.shown = 0
        self.kept = collections.defaultdict(list)
        self.ended = set()

    def say(self, place, text):
        """A text of the step that has this place in the list."""
        with self.lock:
            if place == self.shown:
                self.write(text)
            else:
                self.kept[place].append(text)

    def end(self, place):
        """The step says nothing more."""
        with self.lock:
            self.ended.add(place)
            while self.shown in self.ended:
                self.shown += 1
                self.write("".join(self.kept.pop(self.shown, ())))


def show(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def run(command, say=show):
    """Runs a step, says what it prints as it comes, and returns its exit code, its summary lines,
    and what to show again if it failed."""
    tallies, telling, last = [], [], collections.deque(maxlen=SHOWN)
    with subprocess.Popen(
        command,
        cwd=TREE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as step:
        for line in step.stdout:
            say(line)
            last.append(line)
            if TELLING.search(line) and len(telling) < SHOWN:
                telling.append(line)
            found = SUMMARIES.search(line)
            if found:
                tallies.append((int(found.group(1)), int(found.group(2))))
    return step.returncode, tallies, telling + [line for line in last if line not in telling]


# Variables by which a step tests something else, or less.
DEPENDS_ON = (
    "KUBERNETES DRIVER_BRANCH REAL_MEMORY CASES ONLY BESIDE CLAIMS NODES"
    " STORM_SEED STORM_STEPS PROPTEST_RNG_SEED PROPTEST_CASES"
).split()
# Variables that name files outside the tree: what is in them may change, so nothing is remembered.
OUTSIDE = "NVIDIA_SRC KHEADERS KIMAGE".split()


def content():
    """A hash of everything that a result depends on: the tree's files, the toolchain and variables.
    None: git does not know this tree, or a variable names files outside it."""
    if any(os.environ.get(name) for name in OUTSIDE):
        return None
    ask = lambda *command: subprocess.run(command, cwd=TREE, check=True, capture_output=True).stdout
    every = hashlib.sha256(ask("cargo", "--version") + ask("rustc", "--version"))
    # Of another version, or another draw, nothing is known; and a part is not the whole.
    for name in DEPENDS_ON:
        every.update(f"{name}={os.environ.get(name, '')}\0".encode())
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
    """The steps that have passed before, by what they depended on."""

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


def program(command):
    """The program of a command, behind the variables that are set for it."""
    words = command[1:] if command[0] == "env" else command
    return next(word for word in words if "=" not in word)


def builds(command):
    """Whether a step leaves what later ones need: it knows itself what is to be done."""
    return program(command).endswith("/build.sh") and "--clippy" not in command


def again():
    """Whether all is to run, also what has passed before."""
    return "--again" in sys.argv[1:] or os.environ.get("AGAIN", "0") not in ("", "0")


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


def lacks(step):
    """A tool that a step needs and this machine may not have. The step is then skipped by name, not
    silently."""
    command = step.command
    if command[:2] == ["cargo", "clippy"] and not shutil.which("cargo-clippy"):
        return "this toolchain has no clippy"
    if (command[0] == "rustfmt" or command[:2] == ["cargo", "fmt"]) and not shutil.which("rustfmt"):
        return "this toolchain has no rustfmt"
    if "--shellcheck" in command and not shutil.which("shellcheck"):
        return "this machine has no shellcheck"
    if program(command).startswith("tests/kubernetes/"):
        return go_is_missing()
    return None


@functools.cache
def go_is_missing():
    """Why there is no Go that builds Kubernetes; it is installed where Debian has one."""
    asked = subprocess.run(["tests/kubernetes/go.sh"], cwd=TREE, capture_output=True, text=True)
    return asked.stderr.strip() if asked.returncode else None


class Result(typing.NamedTuple):
    """The result of a step."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    # Lines to show again if it failed, or why it was skipped.
    telling: list = ()


def count(code, tallies):
    """How many tests of a step passed and failed, by its exit code and its summary lines. A step
    without such a line is itself a test. One that has them and counts nothing has tested
    nothing."""
    good, bad = sum(t[0] for t in tallies), sum(t[1] for t in tallies)
    if (code or (tallies and not good)) and not bad:
        bad += 1
    elif not good and not bad:
        good = 1
    return good, bad


def carry_out(step, before, say):
    """Runs a step, unless it cannot be run here or has passed before."""
    missing = lacks(step)
    if missing:
        say(f"== {step.name}: SKIPPED, {missing}\n")
        return Result(skipped=1, telling=[missing])
    good = before.passed(step.command)
    if good is not None:
        say(f"== {step.name}: ok, {good} passed before with the same tree (AGAIN=1 runs it)\n")
        return Result(passed=good)
    say(f"== {step.name}\n")
    at = time.monotonic()
    code, tallies, telling = run(step.command, say)
    good, bad = count(code, tallies)
    if not bad:
        before.note(step.command, good)
    say(f"== {step.name}: {'FAILED' if bad else 'ok'} ({time.monotonic() - at:.0f} s)\n")
    return Result(good, bad, telling=telling)


def carry_out_all(steps, work, jobs, write=show):
    """Does `work(step, say)` for all, `jobs` at a time, each after those that it is listed after.
    If one of these was to build what it needs and failed, it is not done, and fails. Returns the
    results by name, in the order of the list."""
    screen, results, waiting = Screen(write), {}, list(enumerate(steps))
    names = {step.name for step in steps}
    leaving = {step.name for step in steps if builds(step.command)}
    changed = threading.Condition()

    def ready():
        for entry in waiting:
            if all(name in results or name not in names for name in entry[1].after):
                return entry
        return None

    def go_on():
        while True:
            with changed:
                changed.wait_for(lambda: not waiting or ready())
                if not waiting:
                    return
                place, step = entry = ready()
                waiting.remove(entry)
            say = functools.partial(screen.say, place)
            # A build from before is another tree's.
            without = [n for n in step.after if n in leaving and results[n].failed]
            result = None
            try:
                if without:
                    result = Result(failed=1, telling=[f"not run without: {', '.join(without)}\n"])
                    say(f"== {step.name}: FAILED, {result.telling[0]}")
                else:
                    result = work(step, say)
            except Exception as error:  # the others go on
                result = Result(failed=1, telling=[f"{step.name}: {error}\n"])
            finally:
                screen.end(place)
                with changed:
                    results[step.name] = result or Result(failed=1)
                    changed.notify_all()

    workers = [threading.Thread(target=go_on, daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {step.name: results[step.name] for step in steps}


def self_test():
    """Steps that end in another order than the list's are told in the list's, and none runs before
    those that it is listed after."""
    run = ["true"]
    steps = (Step("a", run), *after(("b", run), ("c", run), ("d", run)), Step("e", run, ("gone",)))
    said, began, ended, second = [], [], [], threading.Event()

    def work(step, say):
        began.append((step.name, tuple(ended)))
        say(f"{step.name} begins\n")
        if step.name == "b":
            second.set()
        # The first one ends only if another has begun meanwhile, however busy the machine is.
        elif step.name == "a" and not second.wait(60):
            raise OSError("nothing else has begun")
        say(f"{step.name} ends\n")
        ended.append(step.name)
        return Result(passed=1)

    results = carry_out_all(steps, work, 2, said.append)
    told = "".join(f"{step.name} begins\n{step.name} ends\n" for step in steps)
    assert "".join(said) == told, said
    assert list(results) == list("abcde"), results
    assert all(result.passed for result in results.values()), results
    assert all("b" in there for name, there in began if name in "cd"), began

    def fail(step, _say):
        raise OSError("no such program")

    assert all(result.failed for result in carry_out_all(steps, fail, 2, said.append).values())

    # Nothing runs on what an older tree has left.
    steps = (*after(("build", ["tests/build.sh"]), ("uses", run)), Step("other", run, ("uses",)))
    done = []

    def fail_to_build(step, _say):
        done.append(step.name)
        return Result(failed=1) if step.name == "build" else Result(passed=1)

    results = carry_out_all(steps, fail_to_build, 2, said.append)
    assert done == ["build", "other"], done
    assert [result.failed for result in results.values()] == [1, 1, 0], results

    # A version's build is one, too.
    assert builds([*NEWEST, "tests/build.sh"]) and not builds([*NEWEST, "tests/test.sh"])

    # A step's own count, of nothing too.
    counts = [count(0, []), count(1, []), count(0, [(3, 0), (0, 0)]), count(1, [(3, 2)])]
    assert counts == [(1, 0), (0, 1), (3, 0), (3, 2)], counts
    assert count(0, [(0, 0)]) == (0, 1) and count(3, [(5, 0)]) == (5, 1)

    # Nothing is remembered of files elsewhere, and other steps of a storm are another storm.
    for name in OUTSIDE:
        os.environ[name] = "/"
        assert content() is None, name
        del os.environ[name]
    os.environ["STORM_STEPS"] = "5"
    five = content()
    os.environ["STORM_STEPS"] = "6"
    assert five != content() or five is None
    print("floors: 10 passed, 0 failed")


def main():
    words = [word for word in sys.argv[1:] if word != "--again"]
    if words == ["--self-test"]:
        return self_test()
    if not words or set(words) - set(FLOORS):
        sys.exit(f"usage: floors.py [--again] {'|'.join(FLOORS)} ...")
    os.environ["CARGO_TERM_COLOR"] = "never"
    # A verdict belongs to the tree, not to the draw. `cargo test` by itself draws new cases.
    os.environ.setdefault("PROPTEST_RNG_SEED", "1")
    os.environ.setdefault("STORM_SEED", "1")
    have_tools()
    before = Before(again())
    began = time.monotonic()
    steps = [step for floor in words for step in FLOORS[floor]]
    results = carry_out_all(steps, lambda step, say: carry_out(step, before, say), JOBS)
    failures = {name: result for name, result in results.items() if result.failed}
    for name, result in failures.items():
        print(f"== {name} failed:")
        print("".join(f"   {line.rstrip()[:300]}\n" for line in result.telling), end="")
    for name, result in results.items():
        if result.skipped:
            print(f"== {name}: SKIPPED, {result.telling[0]}")
    print(f"== {time.monotonic() - began:.0f} s; failed: {', '.join(failures) or 'nothing'}")
    passed, failed, skipped = (
        sum(getattr(result, what) for result in results.values())
        for what in ("passed", "failed", "skipped")
    )
    print(
        f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""),
        flush=True,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
