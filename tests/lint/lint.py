#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""lint.py [TREE]: checks rules of the source tree that no compiler knows, and prints a line for
each violation. It looks at the files that git knows or would add.

The rules are functions: those about one file are below, those about the whole tree in structure.py
and clones.py, those about documents in prose.py and, where they speak of the code, in drift.py and
evidence.py.

lint.py --self-test: plants a violation of every rule in a small tree (planted.py). Each must be
found, and nothing in a tree without any, because a rule that cannot fail checks nothing.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import clones
import drift
import evidence
import structure
import planted
import prose
from rust import Sources, blank

# Unsafe code may be here: the module's kernel side, the tools' system calls, the test programs.
UNSAFE_MAY = (
    "cgpu_km/os_interface.rs",
    "cgpu_km/os_interface/",
    "cgpuctl/client/src/client.rs",
    "cgpuctl/src/bpf.rs",
    "cgpuctl/src/mount_attributes.rs",
    "tests/",
)
# The roots and what each must say; and the only places that may lift it, once each.
UNSAFE_ROOTS = {
    "cgpu_km/cgpu_km_main.rs": "#![deny(unsafe_code)]",
    "cgpu_km/host.rs": "#![forbid(unsafe_code)]",
    "cgpuctl/client/src/lib.rs": "#![deny(unsafe_code)]",
    "cgpuctl/src/lib.rs": "#![deny(unsafe_code)]",
}
UNSAFE_LIFTED = {
    "cgpu_km/cgpu_km_main.rs": 1,
    "cgpuctl/client/src/lib.rs": 1,
    "cgpuctl/src/lib.rs": 2,
}

SPDX = re.compile(r"SPDX-License-Identifier: (GPL-2\.0|GPL-2\.0 OR MIT)( \*/)?$")
DUAL = ("cgpu_km/uapi/", "cgpu_km/nvidia/", "cgpu_km/nvidia.rs", "cgpuctl/")
SOURCE_ENDS = (".rs", ".c", ".h", ".sh", ".py", ".config")
SOURCE_NAMES = ("Makefile", "Kbuild", "guest-init", "run")
LONGEST = 600
# A model or a list of cases may be longer.
LONGEST_OF_TESTS = 900


def is_module(path):
    """Code that runs in the kernel: everything under cgpu_km but its tests and host side."""
    return (
        path.startswith("cgpu_km/")
        and path.endswith(".rs")
        and "/tests" not in path
        and "/generated" not in path
        and path not in ("cgpu_km/host.rs", "cgpu_km/vector_host.rs", "cgpu_km/whole.rs")
    )


def without_tests(code):
    """Rust without what follows `#[cfg(test)]` and a module in braces, which comes last here."""
    found = re.search(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ \{", code)
    return code[: found.start()] if found else code


def lines_with(pattern, code):
    """Numbers (from 1) of the lines in which a pattern begins."""
    for found in re.finditer(pattern, code):
        yield code.count("\n", 0, found.start()) + 1


def unsafe(path, text, code):
    """No unsafe code outside its places, no attribute that is unsafe in disguise."""
    if not path.endswith(".rs") or path.startswith(UNSAFE_MAY):
        return
    for line in lines_with(r"\bunsafe\b|#!?\[\s*(?:no_mangle|export_name|link_section)\b", code):
        yield line, "unsafe code"
    lifted = list(lines_with(r"\b(?:allow|expect|warn)\s*\([^)]*\bunsafe_code\b", code))
    for line in lifted[UNSAFE_LIFTED.get(path, 0) :]:
        yield line, "unsafe_code is lifted here"
    wanted = UNSAFE_ROOTS.get(path)
    if wanted and wanted not in code:
        yield 1, f"lacks {wanted}"


def spans_of(pattern, code):
    """(place, text) of what a pattern finds."""
    return [(found.start(), found.group(0)) for found in re.finditer(pattern, code, re.M)]


def raw_interface(path, text, code):
    """Public items of os_interface take and return no raw pointer and no bare address."""
    if not path.startswith("cgpu_km/os_interface"):
        return
    # Also what a public trait asks for: its functions have no `pub`.
    spans = spans_of(r"\bpub (?:unsafe |const |async )*fn [^{;]*", code)
    for trait in re.finditer(r"\bpub (?:unsafe )?trait [^{]*\{(.*?)^\}", code, re.S | re.M):
        base = trait.start(1)
        spans += [(base + at, item) for at, item in spans_of(r"\bfn [^{;]*", trait.group(1))]
    field = r"^[ \t]*pub (?!fn\b|struct|enum|trait|mod|use|const|static|type)\w+: [^\n]*"
    spans += spans_of(field, code)
    spans += spans_of(r"\bpub (?:type|const(?! (?:unsafe )?fn)|static) [^;]*;", code)
    spans += spans_of(r"\bpub struct \w+(?:<[^>]*>)?\([^;]*\bpub (?!\()[^;]*;", code)
    for start, item in spans:
        line = code.count("\n", 0, start) + 1
        if re.search(r"\*\s*(?:const|mut)\b|\bNonNull<", item):
            yield line, "raw pointer in a public item"
        # The newtype itself is made of a number.
        if not path.endswith("/user.rs") and re.search(
            r"\b(?:addr|address|ptr|pointer)\w*: &?(?:mut )?(?:usize|u64|c_ulong|isize)\b", item
        ):
            yield line, "bare address in a public item"


def panics(path, text, code):
    """Module code does not panic by design."""
    if not is_module(path):
        return
    constants = r"\bconst _: \(\) = (?:\{.*?\n\}|[^;]*);"
    run = re.sub(constants, blank, without_tests(code), flags=re.S)
    pattern = (
        r"\.(?:unwrap|expect|unwrap_err|expect_err)\("
        r"|\b(?:panic|unreachable|assert|assert_eq|assert_ne)!"
    )
    for line in lines_with(pattern, run):
        yield line, "may panic"


def casts(path, text, code):
    """Every `as` between numbers or pointers says why it is right."""
    if not is_module(path):
        return
    source = text.split("\n")
    pattern = (
        r"\bas (?:[ui](?:8|16|32|64|128|size)|f32|f64|bool|char|\*|_"
        r"|(?:ffi::)?c_\w+|kernel::ffi::\w+)(?!\w)"
    )
    for line in lines_with(pattern, without_tests(code)):
        near = [source[line - 1]]
        above = line - 2
        # The reason may stand above a statement of several lines.
        while above >= 0 and len(near) < 8:
            near.append(source[above])
            above -= 1
        if not any("CAST:" in said for said in near):
            yield line, "`as` without a CAST: reason"


def licence(path, text, code):
    """SPDX in line 1, or in line 2 after `#!`."""
    name = path.rsplit("/", 1)[-1]
    if not (path.endswith(SOURCE_ENDS) or name in SOURCE_NAMES):
        return
    lines = text.split("\n")
    script = lines[0].startswith("#!") and not lines[0].startswith("#![")
    first = lines[1] if script and len(lines) > 1 else lines[0]
    found = SPDX.search(first)
    if not found:
        yield 1, "no SPDX line"
    elif path.startswith(DUAL) and path.endswith(".rs") and found.group(1) != "GPL-2.0 OR MIT":
        yield 1, "this part is GPL-2.0 OR MIT"


def explained(path, text, code):
    """A Rust file says with `//!` what it is."""
    heads = text.split("\n")[1:4]
    if path.endswith(".rs") and not any(head.startswith("//!") for head in heads):
        yield 2, "no //! after the SPDX line"


def unfinished(path, text, code):
    """Nothing is left for later in the code."""
    if path.startswith("tests/lint/") or not path.endswith(SOURCE_ENDS):
        return
    words = r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b|\b(?:to" r"do|unimple" r"mented)!\s*\("
    for line in lines_with(words, text):
        yield line, "unfinished"


def length(path, text, code):
    """A file can be read in one go. Its imports do not count: they are long lists."""
    if path.endswith(".rs") and "/generated" not in path:
        lines = re.sub(r"^(?:pub(?:\([^)]*\))? )?use [^;]+;\n", "", text, flags=re.M).count("\n")
        longest = LONGEST_OF_TESTS if "tests" in path else LONGEST
        if lines > longest:
            yield longest, f"{lines} lines"


def machine(path, text, code):
    """Nothing of the machine it was written on: folders, host names of package registries."""
    if path.startswith(("tests/lint/", "LICENSES/")) or path == "Cargo.lock":
        return
    for line in lines_with(r"(?<![\w.}$)~/-])/(?:work/\w|root/\w|home/\w|tmp/nv\b)", text):
        yield line, "a path of somebody's machine"
    for host in HOSTS:
        for line in lines_with(re.escape(host), text):
            yield line, "a package registry's host name"


# Well known ones; those that this machine is set up with are added.
HOSTS = {
    "deb.debian" + ".org",
    "security.debian" + ".org",
    "static.crates" + ".io",
    "index.crates" + ".io",
    "pypi" + ".org",
    "registry.npmjs" + ".org",
}
RULES = (unsafe, raw_interface, panics, casts, licence, explained, unfinished, length, machine)


def hosts_of_this_machine():
    """Hosts in the configuration of apt, cargo and pip, without what is no name."""
    said = ""
    try:
        asked = ["apt-get", "indextargets", "--format", "$(SITE)"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    except OSError:
        pass
    cargo, pip = (".cargo/config.toml", ".cargo/config"), (".config/pip/pip.conf", ".pip/pip.conf")
    for place in (*cargo, *pip, ".npmrc"):
        try:
            said += (Path.home() / place).read_text()
        except OSError:
            pass
    hosts = set(re.findall(r"://(?:[^@/\s\"']*@)?([\w.-]+)", said))
    return {h for h in hosts if "." in h and h not in ("127.0.0.1", "github.com")}


def paths_of(tree):
    """Files that git knows or would add."""
    listed = subprocess.run(
        ["git", "-C", tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    ).stdout.decode()
    return sorted(set(filter(None, listed.split("\0"))))


def files_of(tree):
    """Those of them that are text, as (path, text)."""
    for path in paths_of(tree):
        try:
            yield path, (Path(tree) / path).read_text()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue


def violations(tree):
    """All of a tree, as (rule, path, line, words)."""
    sources = Sources(dict(files_of(tree)))
    for path, text in sources.files.items():
        code = sources.code(path) if path.endswith(".rs") else text
        for rule in RULES:
            for line, words in rule(path, text, code):
                yield rule.__name__, path, line, words
    for path in UNSAFE_ROOTS:
        if not sources.has(path):
            yield "unsafe", path, 0, "is not there"
    for rule in (*structure.RULES, *clones.RULES):
        for path, line, words in rule(sources):
            yield rule.__name__, path, line, words
    paths = paths_of(tree)
    for rule in (*prose.RULES, *drift.RULES, *evidence.RULES):
        for path, line, words in rule(sources.files, paths):
            yield rule.__name__, path, line, words


def plant(files):
    """A tree of these files."""
    tree = tempfile.TemporaryDirectory()
    for path, text in files.items():
        place = Path(tree.name) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    subprocess.run(["git", "init", "-q", tree.name], check=True)
    return tree


def self_test():
    """Every rule finds what was planted for it, and nothing else is found."""
    failed = 0
    with plant(planted.CLEAN) as tree:
        for found in violations(tree):
            print("self-test: found in a clean tree:", *found)
            failed += 1
    for rule, path, files in planted.FAULTS:
        with plant({**planted.CLEAN, **files}) as tree:
            if not any(v[0] == rule and v[1] == path for v in violations(tree)):
                print(f"self-test: {rule} does not see what was planted in {path}")
                failed += 1
    of_documents = (*prose.RULES, *drift.RULES, *evidence.RULES)
    for rule in (*RULES, *structure.RULES, *clones.RULES, *of_documents):
        if rule.__name__ not in {fault[0] for fault in planted.FAULTS}:
            print(f"self-test: nothing is planted for {rule.__name__}")
            failed += 1
    print(f"lint self-test: {len(planted.FAULTS) + 1 - failed} passed, {failed} failed")
    return failed


def main():
    if "--self-test" in sys.argv:
        return 1 if self_test() else 0
    HOSTS.update(hosts_of_this_machine())
    trees = [word for word in sys.argv[1:] if not word.startswith("--")]
    tree = trees[0] if trees else "."
    found = list(violations(tree))
    for rule, path, line, words in found:
        print(f"{path}:{line}: {rule}: {words}")
    print(f"lint: {len(found)} violations", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
