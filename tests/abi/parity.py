#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Compares the numbers in the tree with NVIDIA's: classes, controls, UVM commands, escapes,
statuses, sizes of structs, offsets and sizes of fields, of every branch.

    parity.py                    with the driver's source packages in Debian's contrib section
                                 (535, 550), and with what the headers of the tables' releases
                                 said (facts.txt)
    parity.py SOURCE...          with folders of releases of NVIDIA's open-gpu-kernel-modules
    parity.py --facts SOURCE...  writes facts.txt
    parity.py --self-test        makes numbers wrong, one of each kind, and wants each to be found

Ends in "N passed, N failed": one for each comparison, and one for each release in facts.txt that
it speaks of all that the tree has. Debian's packages come from the mirror that this machine's apt
uses, or CGPU_DEBIAN_MIRROR, and are kept under ~/.cache/cgpu by their version. If a mirror has no
source package, the headers in the binary package of the kernel's side are compared (UVM and the
escapes' own structs), and the output says so.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import committed
import facts
import standin
from headers import Headers

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cgpu/nvidia-headers"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# The suites of Debian that have a branch, in the order in which they are asked.
SUITES = {"535": ["bookworm"], "550": ["trixie", "trixie-backports"]}
SOURCE = "nvidia-open-gpu-kernel-modules"
BINARY = "nvidia-open-kernel-dkms"
BRANCHES = ("535", "550", "570", "580", "595")
# Fewer numbers compared: the comparison is not one.
FEWEST = {"source": 1000, "binary": 150}


class KernelHeaders(Headers):
    """The headers of a release's kernel side alone, as Debian's binary package has them."""

    def __init__(self, source, version):
        self.source, self.version = str(source), version
        self.rm_headers = ["nvtypes.h", "nvstatus.h", "nv-ioctl.h", "nv-ioctl-numbers.h"]


def run(*command, cwd=None):
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def must(*command):
    """Runs what has to succeed."""
    code, out, err = run(*command)
    if code:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {code}: {out}{err}")


def mirror():
    """The Debian mirror of this machine's apt."""
    if os.environ.get("CGPU_DEBIAN_MIRROR"):
        return os.environ["CGPU_DEBIAN_MIRROR"]
    _, sites, _ = run("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages")
    for site in sites.splitlines():
        if re.search(r"/debian/?$", site):
            return site
    raise SystemExit("this machine's apt knows no Debian mirror; set CGPU_DEBIAN_MIRROR")


def keyring(folder):
    """Debian's keys: the machine's, or those of the package, which is not installed for that."""
    if KEYRING.exists():
        return KEYRING
    apt = Apt(folder)
    good, why = apt.get("download", KEYRING.stem)
    deb = apt.got("*.deb")
    if not good or not deb:
        raise SystemExit(f"no {KEYRING}, and its package cannot be had: {why}")
    must("dpkg-deb", "-x", deb, folder / "unpacked")
    return folder / "unpacked" / KEYRING.relative_to("/")


class Apt:
    """apt with lists of its own, so that the machine's stay as they are: for what suites of Debian
    have, or, without any, what the machine's own sources have."""

    def __init__(self, folder, suites=()):
        self.folder = Path(folder)
        for part in ("lists/partial", "cache/archives/partial", "got"):
            (self.folder / part).mkdir(parents=True)
        self.options = [
            f"-oDir::State::Lists={self.folder}/lists",
            f"-oDir::Cache={self.folder}/cache",
            "-oAPT::Sandbox::User=root",
        ]
        if suites:
            self.options += self.sources(suites)
        code, out, err = run("apt-get", *self.options, "update")
        if code:
            what = f"{', '.join(suites)} contrib" if suites else "this machine's sources"
            raise SystemExit(f"apt-get update of {what} failed:\n{out}{err}")

    def sources(self, suites):
        """Options for suites of Debian's mirror, contrib alone."""
        by = f"signed-by={keyring(self.folder / 'keyring')}"
        lines = [
            f"{kind} {mirror()} {suite} contrib\n"
            for suite in suites
            for kind in (f"deb-src [{by}]", f"deb [arch=amd64 {by}]")
        ]
        (self.folder / "sources.list").write_text("".join(lines))
        return [
            f"-oDir::Etc::SourceList={self.folder}/sources.list",
            "-oDir::Etc::SourceParts=-",
            "-oAPT::Architecture=amd64",
        ]

    def versions(self, package, branch):
        """The versions of a branch that the suites have, in their order."""
        _, out, _ = run("apt-cache", *self.options, "madison", package)
        found = [line.split("|")[1].strip() for line in out.splitlines() if line.count("|") >= 2]
        return [v for v in dict.fromkeys(found) if v.startswith(f"{branch}.")]

    def get(self, *words):
        """Downloads into `got`; whether it worked, and what apt said."""
        code, out, err = run("apt-get", *self.options, *words, cwd=self.folder / "got")
        return not code, out + err

    def got(self, pattern):
        return next((self.folder / "got").glob(pattern), None)


def fetch(branch):
    """A folder in the cache with the headers of a branch from Debian: package_version-kind."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for kind in ("source", "binary"):
        for folder in sorted(CACHE.glob(f"{branch}.*-{kind}")):
            if (folder / "ready").exists():
                return folder
    with tempfile.TemporaryDirectory(dir=CACHE) as tmp:
        apt = Apt(tmp, SUITES[branch])
        said = []
        for version in apt.versions(SOURCE, branch):
            good, why = apt.get("source", "--download-only", "--tar-only", f"{SOURCE}={version}")
            tar = apt.got("*.orig.tar.*")
            if good and tar:
                untar = ("tar", "--strip-components=1", "-xf", tar, "-C")
                return keep(branch, version, "source", lambda to: must(*untar, to))
            answers = re.findall(r"\b\d{3} +[A-Z][\w ]+", why)
            said.append(f"{SOURCE} {version}: " + "; ".join(answers[:1]))
        for version in apt.versions(BINARY, branch):
            good, why = apt.get("download", f"{BINARY}={version}")
            deb = apt.got("*.deb")
            if good and deb:
                print(f"{branch}: no source package on this mirror ({', '.join(said)})")
                return keep(branch, version, "binary", lambda to: unpack(deb, to))
            said.append(f"{BINARY} {version}")
        suites, why = ", ".join(SUITES[branch]), ", ".join(said) or "no such package"
        raise SystemExit(f"{branch}: nothing of it can be had from {suites} contrib: {why}")


def unpack(deb, to):
    """A binary package's headers, where a source has them."""
    with tempfile.TemporaryDirectory(dir=CACHE) as tmp:
        must("dpkg-deb", "-x", deb, tmp)
        [inner] = Path(tmp).glob("usr/src/nvidia-*")
        shutil.copytree(inner, Path(to) / "kernel-open")


def keep(branch, version, kind, fill):
    """Puts what `fill` makes into the cache, whole or not at all."""
    final = CACHE / f"{version}-{kind}"
    with tempfile.TemporaryDirectory(dir=CACHE) as tmp:
        made = Path(tmp) / "made"
        made.mkdir()
        fill(made)
        wanted = "version.mk" if kind == "source" else "kernel-open/nvidia-uvm/uvm_ioctl.h"
        if not (made / wanted).exists():
            raise SystemExit(f"{branch}: {version} of Debian has no {wanted}")
        (made / "ready").touch()
        shutil.rmtree(final, ignore_errors=True)
        made.rename(final)
    return final


def computed(name, compute):
    """The compiler's answer to a question. Answers are kept, by question."""
    asked = hashlib.sha256(name.encode())
    for file in sorted(HERE.glob("*.py")) + sorted(HERE.glob("*.txt")):
        asked.update(file.read_bytes())
    file = CACHE / f"facts-{asked.hexdigest()[:16]}.json"
    if not file.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".tmp").write_text(json.dumps(compute()))
        file.with_suffix(".tmp").rename(file)
    return {word: tuple(value) for word, value in json.loads(file.read_text()).items()}


def of_debian(branch):
    """(what was compared, its facts, of which kind they are)."""
    folder = fetch(branch)
    version, kind = folder.name.rsplit("-", 1)
    if kind == "source":
        told = computed(folder.name, lambda: facts.of(Headers(str(folder))))
        return f"Debian's source package {SOURCE} {version}", told, kind
    headers = KernelHeaders(folder, version)
    parts = (uvm, facts.structs, facts.named)
    told = computed(folder.name, lambda: {w: v for part in parts for w, v in part(headers).items()})
    return f"Debian's {BINARY} {version}, the headers of the kernel's side alone", told, kind


def uvm(headers):
    """The UVM commands, which the kernel's side defines."""
    found = {}
    for number, name, size, status, names, *_ in facts.generate.uvm_table(headers)[0]:
        found[f"uvm {name}"] = (number, size, status, *names)
    return found


def compare(what, branch, told, kind="source"):
    """Prints what differs; whether all is the same."""
    wrong, compared = facts.differences(committed.everything(branch), told, partly=kind == "binary")
    for line in wrong:
        print(f"  {line}")
    if compared < FEWEST[kind]:
        wrong.append("few")
        print(f"  only {compared} numbers could be compared")
    print(f"{'FAILED' if wrong else 'ok'}  {branch}: {compared} numbers, {what}", flush=True)
    return not wrong


def check_standin(told, planted=None):
    """Whether the stand-in's structs are those of its release."""
    have = {**standin.have(), **(planted or {})}
    wrong = []
    for word, value in have.items():
        said = told.get(word)
        if said is None:
            wrong.append(f"{word}: facts.txt has nothing of it")
        elif tuple(map(str, said)) != tuple(map(str, value)):
            ours, theirs = facts.shown(value), facts.shown(said)
            wrong.append(f"{word}: {ours} in the stand-in, {theirs} in the headers")
    return wrong, len(have)


def tally(results):
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if results and all(results) else 1


def check():
    results = []
    for branch in SUITES:
        what, told, kind = of_debian(branch)
        results.append(compare(what, branch, told, kind))
    spoken = facts.words()
    for release, told in facts.kept().items():
        missing = sorted(set(committed.everything(release.split(".")[0])) - spoken)
        for word in missing:
            print(f"  {word}: not in facts.txt; write it anew (parity.py --facts)")
        results.append(not missing)
        branch = release.split(".")[0]
        results.append(compare(f"the headers of {release} (facts.txt)", branch, told))
        if release == standin.RELEASE:
            wrong, compared = check_standin(told)
            for line in wrong:
                print(f"  {line}")
            verdict = "FAILED" if wrong else "ok"
            print(f"{verdict}  the stand-in: {compared} structs and fields of {release}")
            results.append(not wrong)
    return tally(results)


def self_test():
    """Each kind of number is made wrong in the tree's numbers, and once left out on either side."""
    release, told = next((r, t) for r, t in facts.kept().items() if r.startswith("580."))
    have = committed.everything("580")
    same, compared = facts.differences(have, told)
    results = [not same]
    verdict = "FAILED" if same else "ok"
    print(f"{verdict}  580 as it is: {compared} numbers are those of {release}")
    listed = ("class", "control", "uvm")
    for kind in (*listed, "section", "struct", "field", "escape", "status", "call"):
        word = next(w for w in sorted(have) if w.startswith(f"{kind} ") and w in told)
        for place, value in enumerate(have[word]):
            other = {"Optional": "Required", "Required": "Optional"}
            wrong = value + 4 if isinstance(value, int) else other[value]
            planted = {**have, word: (*have[word][:place], wrong, *have[word][place + 1:])}
            found, _ = facts.differences(planted, told)
            good = [line.split(":")[0] for line in found] == [word]
            results.append(good)
            verdict, said = "ok" if good else "FAILED", found[0] if found else "not found"
            print(f"{verdict}  {word}: number {place} made {wrong}: {said}")
        if kind in listed:
            without = [{w: v for w, v in of.items() if w != word} for of in (have, told)]
            for left, right in ((without[0], told), (have, without[1])):
                good = len(facts.differences(left, right)[0]) == 1
                results.append(good)
                print(f"{'ok' if good else 'FAILED'}  {word}: left out")
    own = standin.have()
    for kind in ("struct", "field"):
        word = next(w for w in own if w.startswith(f"{kind} "))
        planted = {word: (own[word][0] + 4, *own[word][1:])}
        found, _ = check_standin(told, planted)
        good = [line.split(":")[0] for line in found] == [word]
        results.append(good)
        verdict, said = "ok" if good else "FAILED", found[0] if found else "not found"
        print(f"{verdict}  the stand-in's {word} made wrong: {said}")
    return tally(results)


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    if arguments[:1] == ["--facts"] and arguments[1:]:
        told = {}
        for folder in arguments[1:]:
            headers = Headers(folder)
            told[headers.version] = facts.of(headers)
        facts.write(told)
        return 0
    if any(word.startswith("-") for word in arguments):
        sys.exit(__doc__)
    if not arguments:
        return check()
    results = []
    for folder in arguments:
        headers = Headers(folder)
        branch = headers.version.split(".")[0]
        if branch not in BRANCHES:
            sys.exit(f"{folder}: no tables of branch {branch}: docs/design/adding-a-driver-version.md")
        results.append(compare(f"the headers of {headers.version}", branch, facts.of(headers)))
    return tally(results)


if __name__ == "__main__":
    sys.exit(main())
