# SPDX-License-Identifier: GPL-2.0
"""Rules about what documents say of the code: the ABI's number, the names of metrics and of files,
and the command lines of cgpuctl. What the tool itself prints is compared by
cgpuctl/tests/command_line.rs."""

import re
from pathlib import PurePosixPath

from prose import is_document

ABI = "cgpu_km/uapi/lib.rs"
# The page about it, which states its number.
ABI_PAGE = "docs/uapi.md"
# The output of `cgpuctl metrics` in a test, and the page that explains each figure.
PRINTED = "cgpuctl/tests/snapshots/commands__metrics.text.snap"
EXPLAINED = "docs/metrics.md"
# The folder of the code with the figures of `cgpu-dra` alone, and the page that explains those.
PRINTED_BY_DRA = "cgpu-dra/src/"
EXPLAINED_OF_DRA = "docs/kubernetes.md"
METRIC = re.compile(r"\bcgpu_(?:info|(?:gpu|instance|dra)_[a-z_]*[a-z])\b")
# The output of each command's `--help` in a test.
HELP = "cgpuctl/tests/snapshots/command_line__help.snap"
# The folders of dashboards and alerts, which name figures.
ASKED = ("dist/grafana/", "dist/prometheus/")
# The files in /proc/cgpu_km, and the page that lists them.
PROC = "cgpu_km/procfs.rs"
PROC_LISTED = "docs/procfs.md"
# The folder of the documents on a host (dist/userland.sh), and what people read there: messages of
# the tools, and files that are installed.
INSTALLED = "/usr/share/doc/cgpu/"
READ_ON_A_HOST = re.compile(
    rf"cgpuctl/(?:client/)?src/.*\.rs|{re.escape(HELP)}|dist/[\w-]+\.(?:sh|service|rules)"
)
# The folder that each list of files is for.
FOLDERS = {"MODULE_FILES": "", "GPU_FILES": "<minor>/", "INSTANCE_FILES": "<minor>/NAME/"}
# The page whose commands want a cluster, the tests that run them on one, and the commands that none
# of these runs, with the reason.
CLUSTER_PAGE = "docs/kubernetes.md"
CLUSTER_TESTS = "tests/kubernetes/"
NOT_RUN = {
    "helm install": "helm renders the objects there, and kubectl makes them",
    "helm upgrade": "the same",
    "helm uninstall": "kubectl deletes the same objects",
    "kubectl drain": "the test has one node",
    "kubectl delete namespace": "the machine ends with it",
}
TOPS = r"(?:cgpu_km|cgpuctl|cgpu-dra|dist|docs|tests)"


def found_in(pattern, text):
    """(line, match) of each match."""
    for found in re.finditer(pattern, text):
        yield text.count("\n", 0, found.start()) + 1, found


def abi(files, paths):
    """A document names the number of the ABI that the code has, and the page about it does."""
    number = re.search(r"\bABI_VERSION: u32 = (\d+);", files.get(ABI, ""))
    if number and not re.search(r"\bThe\sABI\sis\s\d", files.get(ABI_PAGE, "")):
        yield ABI_PAGE, 0, f"lacks the sentence 'The ABI is {number.group(1)}.'"
    for path, text in files.items():
        if not is_document(path):
            continue
        for line, found in found_in(r"\(ABI (\d+)\)|\bABI\s(?:version\s)?is\s(\d+)", text):
            if number and (found.group(1) or found.group(2)) != number.group(1):
                yield path, line, f"the ABI is {number.group(1)} ({ABI})"


def metrics(files, paths):
    """Every figure is explained, and every figure that is named exists."""
    of_dra = {
        name
        for path, text in files.items()
        if path.startswith(PRINTED_BY_DRA)
        for name in METRIC.findall(text)
    }
    printed = set(re.findall(r"^# HELP (\w+)", files.get(PRINTED, ""), re.M))
    own = {name for name in of_dra if name.startswith("cgpu_dra_")}
    for page, names in ((EXPLAINED, printed), (EXPLAINED_OF_DRA, own)):
        rows = set(re.findall(r"^\| `(cgpu_\w+)`", files.get(page, ""), re.M))
        for name in sorted(names - rows):
            yield page, 0, f"{name} is not explained"
    for path, text in files.items():
        if not (is_document(path) or path.startswith(ASKED)):
            continue
        for line, found in found_in(METRIC, text):
            if found.group(0) not in printed | of_dra:
                yield path, line, f"nothing prints {found.group(0)}"


def places(files, paths):
    """A file or folder of the tree that a document names is there."""
    there = {part for path in paths for part in (path, *map(str, PurePosixPath(path).parents))}
    for path, text in files.items():
        if not is_document(path):
            continue
        for line, found in found_in(rf"`({TOPS}/[\w./-]*\w)(?:/?`|[ :])", text):
            name = found.group(1)
            if not {name, f"{name}.rs", f"{name}.py"} & there:
                yield path, line, f"names {name}, which is not there"


def commands_of(text):
    """Each command of cgpuctl, aliases included, with the text of its help."""
    sections = re.split(r"^==== cgpuctl ?(.*?) ?--help$", text, flags=re.M)[1:]
    known = {tuple(name.split()): body for name, body in zip(sections[::2], sections[1::2])}
    for name, body in list(known.items()):
        listed = body.partition("Commands:\n")[2].partition("\n\n")[0]
        for entry in re.split(r"\n  (?=\S)", "\n" + listed):
            for alias in re.findall(r"\[alias(?:es)?: ([^\]]*)\]", entry):
                own = (*name, entry.split()[0])
                for short in alias.split(", "):
                    known |= {
                        (*name, short, *long[len(own) :]): text
                        for long, text in list(known.items())
                        if long[: len(own)] == own
                    }
    # It lists itself without a help of its own.
    return {**known, ("help",): ""} if known else known


def unknown_word(known, words):
    """The first word of a command line that its command's help does not have."""
    path = ()
    for word in words:
        if (*path, word) in known:
            path = (*path, word)
        elif "Commands:" in known[path] and re.fullmatch(r"[a-z][a-z-]*", word):
            return word
        else:
            flag = re.match(r"\[?(--[a-z][a-z-]*)", word)
            if flag and flag.group(1) not in known[path]:
                return flag.group(1)
    return None


def commands(files, paths):
    """A command line of cgpuctl in a document has commands and options that exist."""
    known = commands_of(files.get(HELP, ""))
    if not known:
        return
    for path, text in files.items():
        if not is_document(path):
            continue
        for line, found in found_in(r"(?m)(?:`|^(?:[$#] )?)cgpuctl(?: |\n(?!\n))([^`|#\n]*)", text):
            word = unknown_word(known, found.group(1).replace(";", " ").split())
            if word:
                yield path, line, f"cgpuctl has no {word}: {found.group(0).strip()}"


def proc_files(files, paths):
    """The page, the head of the source and the list of names that no instance may have name each
    file of /proc/cgpu_km, the first two with whether it can be written."""
    source = files.get(PROC, "")
    there = {}
    tables = re.findall(r"const (\w+): \[TextFile<.*?\] = \[(.*?)\n?\];\n", source, re.S)
    for owner, body in tables:
        for way, name in re.findall(r"\b(read|written)\(\s*c\"(\w+)\"", body):
            there[FOLDERS.get(owner, "?/") + name] = way == "written"
    rows = re.findall(r"^\| `([\w<>/]+)` \|.*\| (yes|no) \|$", files.get(PROC_LISTED, ""), re.M)
    head = source.partition("```text\n")[2].partition("//! ```")[0]
    head = re.findall(r"^//! (\S+) +\S.*?( written by root)?$", head, re.M)
    lists = {
        PROC_LISTED: {path: word == "yes" for path, word in rows},
        PROC: {path: bool(word) for path, word in head},
    }
    for page, listed in lists.items():
        for path in sorted(there.keys() ^ listed.keys()):
            yield page, 0, f"{path} is {'not listed' if path in there else 'no file'}"
        for path in sorted(there.keys() & listed.keys()):
            if there[path] != listed[path]:
                yield page, 0, f"{path} can{'' if there[path] else 'not'} be written"
    reserved = re.search(r"RESERVED_NAMES.*?= \[(.*?)\];", files.get(ABI, ""), re.S)
    for path in there:
        folder, name = path.rpartition("/")[::2]
        if folder != "<minor>/NAME" and reserved and f'"{name}"' not in reserved.group(1):
            yield ABI, 0, f"an instance could have the name of the file {path}"


def cluster_commands(files, paths):
    """A test runs each command on a cluster that the page has: the same verb on the same object."""
    shown = files.get(CLUSTER_PAGE, "")
    run = "\n".join(text for path, text in files.items() if path.startswith(CLUSTER_TESTS))
    said = set()
    for line, found in found_in(r"(?m)^ *(kubectl|helm) (.*)$", shown):
        bare = [word for word in found.group(2).split() if not word.startswith("-")]
        words = [found.group(1), *bare[: 2 if found.group(1) == "kubectl" else 1]]
        names = [name for name in NOT_RUN if " ".join(words).startswith(name)]
        said.update(names)
        is_run = re.search(r"(?:\s+-\S+)*\s+".join(map(re.escape, words)) + r"\b", run)
        if not is_run and not names:
            yield CLUSTER_PAGE, line, f"nothing in {CLUSTER_TESTS} runs {' '.join(words)}"
        elif is_run and names:
            yield CLUSTER_PAGE, line, f"{names[0]} is run: it should not be in NOT_RUN"
    for name in NOT_RUN.keys() - said if shown and run else ():
        yield CLUSTER_PAGE, 0, f"NOT_RUN has {name}, which the page has not"


def pages_on_a_host(files, paths):
    """A message or an installed file names a page by where it is on a host, and there it is."""
    for path, text in files.items():
        if not READ_ON_A_HOST.fullmatch(path):
            continue
        for line, found in found_in(r"(?m)^(?!\s*(?://|#)).*", text):
            for name in re.findall(rf"{INSTALLED}([\w./-]+\.md)", found.group(0)):
                if name not in paths:
                    yield path, line, f"names {INSTALLED}{name}, which is not installed"
            for name in re.findall(r"(?<![\w/.])(?:docs/[\w/-]+|[A-Z]+)\.md", found.group(0)):
                yield path, line, f"names {name}: a host has it in {INSTALLED}"


RULES = (abi, metrics, places, commands, proc_files, cluster_commands, pages_on_a_host)
