# SPDX-License-Identifier: GPL-2.0
"""Rules about the structure of the tree: which file imports which, how long a function or a line
may be, and names of types and of tests.

Each rule takes the sources and yields (path, line, words).

A file imports another one if it names an item that the other one defines, in a `use` or in a path.
A re-export is followed to the definition. Two things are therefore no import: `mod child;`, and a
`pub use` of a child's item in a file that does not use the item itself.

`cycles` finds files that import each other, directly or by way of others. `parent_cycles` finds
those between a file and the files of its own folder: the file uses its child, and the child uses
what the file defines. To end a cycle, move what both need into a file of its own.

Calls of methods are not seen, so the `impl` blocks of a type may stand in several files. Tests may
import what they test; nothing but tests imports tests."""

import ast
import collections
import re

import rust

ARCHITECTURE = "ARCHITECTURE.md"
MODULE = "cgpu_km"
EDGE = "cgpu_km/os_interface"
LONGEST_FUNCTION = 80
LONGEST_TEST_FUNCTION = 150
# Words in the name of a test.
LONGEST_TEST_NAME = 8
TEST = re.compile(
    r"#\[(?:\w+::)?test\b[^\]]*\]\s*(?:#\[[^\n]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?fn\s+(\w+)"
)
# How the programs of the test machine name their cases, by the folder that declares them.
CASES = {
    "tests/replay/src/guest/suite/": re.compile(
        r'^\s*"([^"\n]+)"\s*=>|(?:^\s*|\[)\(\s*"([^"\n ]+ [^"\n]+)",\s*\w+,?\s*\)', re.M
    ),
    "tests/replay/src/guest/attacks/": re.compile(
        r'(?:\bname: |\b(?:attack|subdevice!)\(\s*|^\s*(?="[^"\n]+": "))"([^"\n]+)"', re.M
    ),
}
# A case's area, which a test in Rust has as its module, and the driver's name of what is attacked.
NOT_COUNTED = re.compile(r"^[^:]*: |\s*\([^)]*\)$")
COLUMNS = 100
# Tabs in C and in makefiles are as wide as the kernel's style says; in scripts half as much.
TAB = 8
SCRIPT_TAB = 4


def is_test(path):
    """Code that only tests run."""
    return path.startswith("tests/") or "/tests" in path


def is_part(whole, path):
    """Whether a file is a part of another: it stands in the folder of that module."""
    folder = whole.removesuffix(".rs")
    for root in ("/mod", "/lib", "/main"):
        folder = folder.removesuffix(root)
    return path.startswith(folder + "/")


# An arm of a match on a control's care, and one for all that have none.
CARE_ARM = re.compile(r"(?<=[{},|])\s*Care::\w+(?:\([^)]*\))?\s*(?:\||=>|if\b)")
REST_ARM = re.compile(r"(?<=[{},|])\s*(_)\s*(?:=>|if\b)")


def edges(sources):
    """Imports between files, by package: {(from, to): (line, name)}."""
    if sources.edges is not None:
        return sources.edges
    sources.edges = []
    for folder, trees in rust.packages(sources):
        found = {}
        for tree in trees:
            for user, place, owner, name, facade in tree.imports():
                # A module of tests in braces: a test may import what it tests.
                if user.test and tree.files[user.file] is not user:
                    continue
                # A facade that only passes its part's item on does not need it.
                if facade and name not in user.words and is_part(user.file, owner.file):
                    continue
                line = sources.line(user.file, place)
                found.setdefault((user.file, owner.file), (line, name))
        sources.edges.append((folder, found))
    return sources.edges


def components(graph):
    """Strongly connected components of more than one file (Tarjan)."""
    index, low, stack, out, on_stack = {}, {}, [], [], set()

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = set()
            while not component or node not in component:
                on_stack.discard(stack[-1])
                component.add(stack.pop())
            out.append(component)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return [component for component in out if len(component) > 1]


def shortest_cycle(graph, start, component):
    """The files of the shortest cycle through a file, which stands at both ends."""
    queue, before = collections.deque([start]), {}
    while queue:
        at = queue.popleft()
        for other in sorted(graph.get(at, ())):
            if other == start:
                way = [at, other]
                while way[0] != start:
                    way.insert(0, before[way[0]])
                return way
            if other in component and other not in before:
                before[other] = at
                queue.append(other)
    return [start]


def cycles_of(found, graph):
    """A violation for each file of a package that is part of a cycle, with the shortest one."""
    for component in components(graph):
        for file in sorted(component):
            way = shortest_cycle(graph, file, component)
            line = found[way[0], way[1]][0]
            steps = [f"{b} ({found[a, b][1]})" for a, b in zip(way, way[1:])]
            yield file, line, f"cycle of {len(component)} files: {' -> '.join(steps)}"


def cycles(sources):
    """No two files of a crate import each other, directly or by way of others."""
    for _, found in edges(sources):
        graph = collections.defaultdict(set)
        for user, owner in found:
            if not is_part(user, owner):
                graph[user].add(owner)
        yield from cycles_of(found, graph)


def parent_cycles(sources):
    """A file does not import its own parts if they import what it defines itself."""
    for _, found in edges(sources):
        graph = collections.defaultdict(set)
        for user, owner in found:
            graph[user].add(owner)
        yield from cycles_of(found, graph)


def floors_of(sources):
    """[(name, prefixes)] from the bottom up, as ARCHITECTURE.md has them; None: it has none."""
    text = sources.files.get(ARCHITECTURE, "")
    block = re.search(r"^```floors\n(.*?)^```", text, re.S | re.M)
    if not block:
        return None
    lines = [line.partition(":") for line in block.group(1).split("\n") if line.strip()]
    return [(name.strip(), prefixes.split()) for name, _, prefixes in lines]


def floor_of(path, listed):
    """(number, name) of the floor on which a file stands: the longest prefix decides."""
    inside = path.removeprefix(MODULE + "/")
    best = (0, None, None)
    for number, (name, prefixes) in enumerate(listed):
        for prefix in prefixes:
            bare = prefix.removesuffix("/")
            if inside in (bare, bare + ".rs") or inside.startswith(bare + "/"):
                best = max(best, (len(bare), number, name), key=lambda b: b[0])
    return best[1:]


def floors(sources):
    """A file imports only from its own floor and lower ones."""
    listed = floors_of(sources)
    if listed is None:
        yield ARCHITECTURE, 1, "has no block `floors`"
        return
    floor_at = {}
    for path in sorted(sources.files):
        if path.startswith(MODULE + "/") and path.endswith(".rs") and not is_test(path):
            floor_at[path] = floor_of(path, listed)
    for name, prefixes in listed:
        for prefix in prefixes:
            if not any(floor_of(p, [(name, [prefix])])[1] for p in floor_at):
                yield ARCHITECTURE, 1, f"floor {name}: nothing stands at {prefix}"
    for folder, found in edges(sources):
        if folder != MODULE:
            continue
        for path in sorted({p for edge in found for p in edge} & set(floor_at)):
            if floor_at[path][1] is None:
                yield path, 1, "stands on no floor"
        for (user, owner), (line, name) in sorted(found.items()):
            if user not in floor_at or owner not in floor_at:
                continue
            (low, mine), (high, theirs) = floor_at[user], floor_at[owner]
            if mine and theirs and high > low:
                yield user, line, f"{mine} imports {name} from {theirs} above ({owner})"


def lengths(path, text, sources):
    """(name, line, lines) of the functions of a file."""
    if path.endswith(".rs"):
        code = sources.code(path)
        for name, start, end in rust.functions(code, sources.braces(path)):
            first = sources.line(path, start)
            yield name, first, sources.line(path, end) - first + 1
    elif path.endswith((".c", ".h")):
        head = r"^[A-Za-z][^\n;{}]*?(\w+)\([^;{}]*\)\n\{\n.*?^\}"
        for found in re.finditer(head, text, re.S | re.M):
            yield found.group(1), sources.line(path, found.start()), found.group(0).count("\n") + 1
    elif path.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.name, node.lineno, node.end_lineno - node.lineno + 1
    elif path.endswith(".sh"):
        for found in re.finditer(r"^(\w+)\(\) [{(]\n.*?^[})]", text, re.S | re.M):
            yield found.group(1), sources.line(path, found.start()), found.group(0).count("\n") + 1


def imports(sources):
    """A module has one `use` for each root, and nests in it what it takes. A `use` with an
    attribute or a doc comment stands for itself."""
    for path, text in sources.files.items():
        if not path.endswith(".rs") or "/generated" in path:
            continue
        code, braces, first = sources.code(path), sources.braces(path), {}
        for found in rust.USE.finditer(code):
            opened = braces.opening(found.start())
            if opened >= 0 and not re.search(r"\bmod\s+\w+\s*$", code[:opened][-80:]):
                continue
            line = sources.line(path, found.end())
            above = text[: found.end() - len(found.group(0).lstrip())].rstrip().rpartition("\n")[2]
            if above.lstrip().startswith(("///", "#[")):
                continue
            root, nested, _ = found.group(2).partition("::")
            key = (opened, (found.group(1) or "").strip(), root.strip())
            if nested and key in first:
                yield path, line, f"`use {root}::` stands in line {first[key]}, too: nest them"
            first.setdefault(key, line)


# In a group of a `use`, two items on a line, or a last one without `//`, which keeps rustfmt from
# joining them.
CROWDED = re.compile(r"\{[^\n]|,[ \t]*[^\s/]|[^/\s]\n[ \t]*\}")


def vertical_imports(sources):
    """The module's imports stand as in the kernel (its coding guidelines for Rust)."""
    for path, text in sources.files.items():
        if not path.startswith(MODULE + "/") or not path.endswith(".rs") or "/generated" in path:
            continue
        for found in re.finditer(r"^[ \t]*(?:pub(?:\([^)]*\))? )?use ([^;]+);", text, re.M):
            if "{" in found.group(1) and CROWDED.search(found.group(1)):
                line = sources.line(path, found.start(1))
                yield path, line, "an import a line, and `//` behind the last of a group"


def functions(sources):
    """A function fits a screen."""
    for path, text in sources.files.items():
        longest = LONGEST_TEST_FUNCTION if is_test(path) else LONGEST_FUNCTION
        for name, line, lines in lengths(path, text, sources):
            if lines > longest:
                yield path, line, f"`{name}` has {lines} lines, at most {longest} may be"


def decided(sources):
    """A `match` on a control's care names each of them, so that a new one is decided everywhere."""
    for path in sources.files:
        if not path.endswith(".rs") or not path.startswith(MODULE + "/") or is_test(path):
            continue
        code, braces = sources.code(path), sources.braces(path)
        arms = {braces.opening(arm.start()) for arm in CARE_ARM.finditer(code)}
        for rest in REST_ARM.finditer(code):
            if braces.opening(rest.start(1)) in arms:
                yield path, sources.line(path, rest.start(1)), "`_` in a match on `Care`: name each"


def cases_in(path, text):
    """(name, place) of the cases of the test machine that a file declares."""
    for folder, pattern in CASES.items():
        for found in pattern.finditer(text) if path.startswith(folder) else ():
            yield next(filter(None, found.groups())), found.start()


def named_tests(path, text, code):
    """(name, place, words) of the tests that a file declares."""
    for found in TEST.finditer(code):
        yield found.group(1), found.start(1), found.group(1).split("_")
    for name, place in cases_in(path, text):
        yield name, place, NOT_COUNTED.sub("", name).split()


def test_names(sources):
    """The name of a test says subject and result in at most eight words."""
    for path, text in sources.files.items():
        if not path.endswith(".rs"):
            continue
        for name, place, words in named_tests(path, text, sources.code(path)):
            if len(words) > LONGEST_TEST_NAME:
                line, most = sources.line(path, place), LONGEST_TEST_NAME
                yield path, line, f"the test {name!r} has {len(words)} words, at most {most} may be"


def types_of(path, sources):
    """(name, line) of the types that a file defines: at any depth, and in the calls of macros. An
    associated type belongs to its trait, and has that one's name in every `impl`."""
    code, braces = sources.code(path), sources.braces(path)
    for found in rust.TYPE.finditer(code):
        if found.group(1) != "type" or not braces.depth(found.start()):
            yield found.group(2), sources.line(path, found.start())


def types(sources):
    """The name of a type stands for one thing in its crate."""
    said = set()
    for _, trees in rust.packages(sources):
        defined = collections.defaultdict(list)
        for file in sorted({file for tree in trees for file in tree.files}):
            for name, line in types_of(file, sources):
                defined[name].append((file, line))
        for name, places in sorted(defined.items()):
            for place in places if len(places) > 1 else ():
                if (place, name) in said:
                    continue
                said.add((place, name))
                others = ", ".join(f"{p[0]}:{p[1]}" for p in places if p != place)
                yield *place, f"`{name}` is also defined in {others}"


# Files whose lines stay, and why.
WIDE = {
    "tests/vm/kernel-env.sh": "its hash names the folder that all others are built on",
}
STRING = re.compile(r"(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')")
LINK = re.compile(r"\]\([^)]*\)|https?://\S+")
# Columns that a document's line may have beside a link that is too long for a line.
BESIDE_A_LINK = 40


def width(path, line):
    """Columns of a line."""
    return len(line.expandtabs(SCRIPT_TAB if path.endswith(".sh") else TAB))


def cannot_break(path, line):
    """A line that is one long word, link or string but for what little stands around it."""
    bare = LINK.sub("", line)
    if path.endswith(".md"):
        return len(bare) <= BESIDE_A_LINK
    words = [w for w in bare.split() if w not in ("//", "///", "//!", "#", "*", "/*", "*/")]
    if len(words) <= 1:
        return True
    longest = max((len(s) for s in STRING.findall(line)), default=0)
    if longest >= COLUMNS // 2 and not line.lstrip().startswith(("//", "#", "*", "/*")):
        return width(path, STRING.sub('""', line)) <= COLUMNS
    return False


def lines(sources):
    """A line has at most 100 columns."""
    ends = (".rs", ".c", ".h", ".py", ".sh", ".md")
    for path, text in sources.files.items():
        if not (path.endswith(ends) or path in ("Makefile", "Kbuild")) or "/measurements/" in path:
            continue
        if path in WIDE:
            continue
        fenced = False
        code = sources.code(path).split("\n") if path.endswith(".rs") else None
        for number, line in enumerate(text.split("\n"), 1):
            if path.endswith(".md"):
                fenced ^= line.lstrip().startswith("```")
                if fenced or line.lstrip().startswith("|"):
                    continue
            if width(path, line) <= COLUMNS or cannot_break(path, line):
                continue
            # A string, or the part of one that stands on this line, is blank in the code.
            if code and not line.lstrip().startswith("//"):
                if len(re.sub(r"  +", " ", code[number - 1].strip())) <= COLUMNS // 2:
                    continue
            yield path, number, f"{width(path, line)} columns"


# A reason that an unsafe step is sound, or that a value keeps its type's invariants.
NOTE = re.compile(r"[ \t]*// (SAFETY|INVARIANT): (.*)")
# Notes that leave it to the reader to find the reason: they name where it stands, or who knows it.
EVASIVE = re.compile(
    r"^(?:locked above\b|the same\b|as (?!above\b|long\b|many\b|much\b)"
    r"|(?:this function's|the) contract\b)"
    r"|\bcallers? (?:answer|promise|see|speak|vouch)\w*\b|\b(?:says the|see this function's) \w+",
    re.I,
)


def notes(text):
    """(kind, first line, last line, words) of the notes of a Rust file."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        found = NOTE.match(line)
        if not found:
            continue
        last, words = number, [found.group(2)]
        while re.match(r"\s*// (?!SAFETY:|INVARIANT:)", "".join(lines[last + 1 : last + 2])):
            last += 1
            words.append(lines[last].strip()[3:])
        yield found.group(1), number + 1, last + 1, " ".join(words)


def safety(sources):
    """`As above` stands directly below the note that it means. No note refers to another one."""
    for path, text in sources.files.items():
        if not path.endswith(".rs"):
            continue
        # The last line of the last note of each kind, and whether that one says `As above`.
        before = {}
        for kind, first, last, words in notes(text):
            above = words.lower().startswith("as above")
            end, refers = before.get(kind, (0, True))
            if above and (refers or first - end > 5):
                yield path, first, "`As above` without its note in the five lines above"
            if EVASIVE.search(words):
                yield path, first, f"says no reason: {words!r}"
            before[kind] = (last, above)


def code_map(sources):
    """ARCHITECTURE.md names the files of os_interface, and nothing that is not there."""
    text = sources.files.get(ARCHITECTURE)
    if text is None:
        return
    start = text.find("\n## Code map")
    end = text.find("\n## ", start + 1)
    named = {}
    for row in re.finditer(r"^\|([^|]*)\|", text[start:end], re.M):
        for word in re.findall(r"`([^`\s]+)`", row.group(1)):
            line = text.count("\n", 0, start + row.start()) + 1
            named.setdefault(word, line)
    folders = {p[: at + 1] for p in sources.files for at in range(len(p)) if p[at] == "/"}
    there = set(sources.files) | folders
    said = set()
    for word, line in named.items():
        places = [f"{base}{word}" for base in ("", f"{MODULE}/", f"{EDGE}/")]
        found = [p for p in places if p in there or p + "/" in there]
        said.update(found)
        if not found:
            yield ARCHITECTURE, line, f"names {word}, which is not there"
    top = {p[len(EDGE) + 1 :].partition("/") for p in sources.files if p.startswith(EDGE + "/")}
    for name, slash, _ in sorted(top):
        near = {f"{EDGE}/{name}", f"{EDGE}/{name}/", f"{EDGE}/{name.removesuffix('.rs')}/"}
        if slash:
            near.add(f"{EDGE}/{name}.rs")
        if not near & said:
            yield ARCHITECTURE, 1, f"does not name {EDGE}/{name}"


RULES = (
    cycles,
    parent_cycles,
    floors,
    imports,
    vertical_imports,
    functions,
    decided,
    test_names,
    types,
    lines,
    safety,
    code_map,
)
