# SPDX-License-Identifier: GPL-2.0
"""Rust as text, as far as the rules need it: modules, what they define, and what they import.

There is no compiler behind this. A path is followed through the tree of modules and through
re-exports to the file that defines the item. Not seen: method calls, traits' functions, and what
a macro expands to."""

import bisect
import re
import tomllib
from pathlib import PurePosixPath


def blank(match):
    """Spaces for what was matched; lines stay lines."""
    return re.sub(r"[^\n]", " ", match.group(0))


# Comments (nested ones do not occur), raw strings, strings, characters; lifetimes are left alone.
TOKENS = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r"|\bb?c?r(#*)\".*?\"\1"
    r"|\"(?:\\.|[^\"\\])*\""
    r"|b?'(?:\\[^\n]{1,10}?|[^\\'\n])'",
    re.S,
)
ITEM = re.compile(
    r"\b(?:fn|struct|enum|union|trait|type|const|static(?:\s+mut)?|macro_rules!)\s+(\w+)"
)
TYPE = re.compile(r"\b(struct|enum|union|trait|type)\s+(\w+)")
MOD = re.compile(r"((?:#\[[^\n]*\]\s*)*)(?:pub(?:\([^)]*\))?\s+)?\bmod\s+(\w+)\s*([;{])")
USE = re.compile(r"(\bpub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);")
PATH = re.compile(r"(?<![\w:.])(?:\$)?([A-Za-z_]\w*(?:::[A-Za-z_]\w*)+)")
TEST = re.compile(r"#\[cfg\([^\]]*\btest\b")


def code_of(text):
    """Rust without comments and strings."""
    return TOKENS.sub(blank, text)


class Braces:
    """How deep each place of a text is nested in braces."""

    def __init__(self, code):
        self.places, self.depths = [-1], [0]
        for found in re.finditer(r"[{}]", code):
            self.places.append(found.start())
            self.depths.append(self.depths[-1] + (1 if found.group(0) == "{" else -1))

    def depth(self, at):
        """The depth before the character at this place."""
        return self.depths[bisect.bisect_left(self.places, at) - 1]

    def opening(self, at):
        """The place where the innermost brace around this place opens; -1: there is none."""
        index = bisect.bisect_left(self.places, at) - 1
        inside = self.depths[index]
        while index and not self.depths[index - 1] < inside == self.depths[index]:
            index -= 1
        return self.places[index]

    def end(self, opened):
        """The place where the brace that opens here is closed."""
        index = bisect.bisect_left(self.places, opened)
        inside = self.depths[index]
        for later in range(index + 1, len(self.places)):
            if self.depths[later] < inside:
                return self.places[later]
        return self.places[-1]


def split_list(text):
    """The parts of `a, b::{c, d}`, which commas outside braces divide."""
    depth, part, parts = 0, "", []
    for char in text:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and not depth:
            parts.append(part)
            part = ""
        else:
            part += char
    return [p.strip() for p in [*parts, part] if p.strip()]


def use_tree(text, before=()):
    """All (segments, local name) of a use declaration; the name of a glob is `*`."""
    text = text.strip()
    if text.startswith("::"):
        return
    if "{" in text:
        head, _, rest = text.partition("{")
        head = tuple(s.strip() for s in head.split("::") if s.strip())
        for part in split_list(rest[: rest.rindex("}")]):
            yield from use_tree(part, (*before, *head))
        return
    path, _, name = text.partition(" as ")
    segments = (*before, *(s.strip() for s in path.split("::") if s.strip()))
    if segments[-1] == "self" and len(segments) > 1:
        segments = segments[:-1]
    yield segments, name.strip() or segments[-1]


class Module:
    """One module: a file's, or one in braces within a file."""

    def __init__(self, file, path, parent, test):
        self.file, self.path, self.parent, self.test = file, path, parent, test
        self.children, self.items, self.names, self.globs = {}, set(), {}, []
        # (place, segments, local name, re-exported) of imports, (place, segments) of other paths.
        self.uses, self.inline = [], []
        self.words = set()

    def root(self):
        """The crate's root."""
        return self if self.parent is None else self.parent.root()


class Tree:
    """The modules of one root file."""

    def __init__(self, sources, root, library=None):
        self.sources, self.library, self.modules, self.files = sources, library, [], {}
        self.root = self.read(root, (), None, False, True)

    def read(self, file, path, parent, test, owns_folder):
        module = Module(file, path, parent, test)
        self.files.setdefault(file, module)
        code = self.sources.code(file)
        folder = PurePosixPath(file).parent
        if not owns_folder:
            folder = folder / PurePosixPath(file).stem
        self.span(module, code, 0, len(code), 0, folder)
        return module

    def span(self, module, code, start, end, base, folder):
        """Reads the part of a file that is this module's."""
        self.modules.append(module)
        braces, text = self.sources.braces(module.file), self.sources.text(module.file)
        own = list(code[start:end])

        def hide(first, last):
            for at in range(max(first, start), min(last, end)):
                if own[at - start] != "\n":
                    own[at - start] = " "

        for found in MOD.finditer(code, start, end):
            if braces.depth(found.start(2)) != base:
                continue
            name, test = found.group(2), module.test or bool(TEST.search(found.group(1)))
            path = (*module.path, name)
            if found.group(3) == "{":
                close = braces.end(found.end() - 1)
                child = Module(module.file, path, module, test)
                module.children[name] = child
                self.span(child, code, found.end(), close, base + 1, folder / name)
                hide(found.start(), close + 1)
                continue
            attributes = text[found.start(1) : found.end(1)]
            said = re.search(r'path\s*=\s*"([^"]+)"', attributes)
            if said:
                places = [PurePosixPath(module.file).parent / said.group(1)]
            else:
                places = [folder / f"{name}.rs", folder / name / "mod.rs"]
            file = next((str(p) for p in places if self.sources.has(str(p))), None)
            if file:
                owns = bool(said) or file.endswith("/mod.rs")
                module.children[name] = self.read(file, path, module, test, owns)
            hide(found.start(), found.end())
        own = "".join(own)
        for found in USE.finditer(own):
            place, facade = start + found.start(2), bool(found.group(1))
            deep = braces.depth(place) > base
            for segments, name in use_tree(" ".join(found.group(2).split())):
                module.uses.append((place, segments, name, facade))
                if name == "*" and not deep:
                    module.globs.append(segments)
                elif name != "_":
                    module.names.setdefault(name, segments)
        own = USE.sub(blank, own)
        own = re.sub(r"\bpub\([^)]*\)", blank, own)
        for found in ITEM.finditer(own):
            if braces.depth(start + found.start()) == base and found.group(1) != "_":
                module.items.add(found.group(1))
        for found in PATH.finditer(own):
            module.inline.append((start + found.start(), tuple(found.group(1).split("::"))))
        module.words = set(re.findall(r"\w+", own))

    def begin(self, segments, module, seen):
        """The module in which a path begins, and what is left of the path."""
        first, rest = segments[0], segments[1:]
        if first == "crate":
            return module.root(), rest
        if first == "self":
            return module, rest
        if first == "super":
            while rest and rest[0] == "super":
                module, rest = module.parent or module, rest[1:]
            return module.parent or module, rest
        if first in module.children:
            return module.children[first], rest
        if first in module.items:
            return None, ()
        if first in module.names and (module, first) not in seen:
            found = self.follow(module.names[first], module, {*seen, (module, first)})
            if found and found[1] is None:
                return found[0], rest
            return (found[0], found[1:2]) if found else (None, ())
        if self.library and first == self.library[0]:
            return self.library[1].root, rest
        for glob in module.globs:
            if (module, glob) in seen:
                continue
            place = self.follow(glob[:-1], module, {*seen, (module, glob)})
            if place and place[1] is None and first in place[0].children:
                return place[0].children[first], rest
        return None, ()

    def follow(self, segments, module, seen=frozenset()):
        """(module, name) of what a path names; the name of a module itself is None."""
        at, rest = self.begin(segments, module, seen)
        while at and rest:
            name, rest = rest[0], rest[1:]
            if name in at.children:
                at = at.children[name]
                continue
            if name in at.items or (at, name) in seen:
                return at, name
            seen = {*seen, (at, name)}
            if name in at.names:
                found = self.follow(at.names[name], at, seen)
                if found is None or found[1] is not None or not rest:
                    return found
                at = found[0]
                continue
            for glob in at.globs:
                if (at, glob) in seen:
                    continue
                place = self.follow(glob[:-1], at, {*seen, (at, glob)})
                if place and place[1] is None:
                    found = self.follow(("self", name), place[0], {*seen, (at, glob)})
                    if found and name in found[0].items:
                        return found
            return at, name
        return (at, None) if at else None

    def imports(self):
        """(module, place, imported module, name, re-exported): uses of what other files define."""
        for module in self.modules:
            for place, segments, name, facade in module.uses:
                if name == "*":
                    yield from self.taken_by_glob(module, place, segments[:-1])
                    continue
                yield from self.edge(module, place, segments, facade=facade)
            for place, segments in module.inline:
                yield from self.edge(module, place, segments)

    def taken_by_glob(self, module, place, segments):
        """The items that a glob brings in and the module uses."""
        found = self.follow(segments, module)
        if found is None or found[1] is not None:
            return
        for name in sorted(found[0].items | set(found[0].names)):
            if name in module.words:
                yield from self.edge(found[0], place, ("self", name), module)

    def edge(self, module, place, segments, user=None, facade=False):
        user = user or module
        found = self.follow(segments, module)
        # Naming a module imports nothing yet; what is then used of it is found by its path.
        if found is None or found[1] is None or found[0].file == user.file:
            return
        # The kernel's `module!` defines things in the root that no text shows.
        if found[0].parent is None and found[1] not in found[0].items:
            return
        yield user, place, found[0], found[1], facade


class Sources:
    """The files of a tree, each read and scanned once."""

    def __init__(self, files):
        self.files, self.codes, self.nests = files, {}, {}
        # Results that the rules keep: imports between files, and the packages.
        self.edges = self.packages = None

    def has(self, path):
        return path in self.files

    def text(self, path):
        return self.files[path]

    def code(self, path):
        if path not in self.codes:
            self.codes[path] = code_of(self.files[path])
        return self.codes[path]

    def braces(self, path):
        if path not in self.nests:
            self.nests[path] = Braces(self.code(path))
        return self.nests[path]

    def line(self, path, at):
        return self.files[path].count("\n", 0, at) + 1


def packages(sources):
    """[(folder, trees)] of the packages, read once."""
    if sources.packages is None:
        sources.packages = list(read_packages(sources))
    return sources.packages


def read_packages(sources, kernel_root="cgpu_km/cgpu_km_main.rs"):
    """(folder, trees) of each package; the kernel module is a root of its own beside Cargo's."""
    for path in sorted(p for p in sources.files if PurePosixPath(p).name == "Cargo.toml"):
        manifest = tomllib.loads(sources.text(path))
        if "package" not in manifest:
            continue
        folder = PurePosixPath(path).parent
        library = str(folder / manifest.get("lib", {}).get("path", "src/lib.rs"))
        name = manifest.get("lib", {}).get("name", manifest["package"]["name"])
        roots = [str(folder / b["path"]) for b in manifest.get("bin", []) if "path" in b]
        roots += [str(folder / "src/main.rs"), str(folder / "build.rs")]
        for listed in sorted(sources.files):
            if re.fullmatch(re.escape(str(folder)) + r"/(?:src/bin|tests|benches)/\w+\.rs", listed):
                roots.append(listed)
        trees = [Tree(sources, library)] if sources.has(library) else []
        own = (name.replace("-", "_"), trees[0]) if trees else None
        if str(folder) == str(PurePosixPath(kernel_root).parent) and sources.has(kernel_root):
            trees.append(Tree(sources, kernel_root))
        for root in sorted(set(roots) - {library}):
            if sources.has(root) and not any(root in t.files for t in trees):
                trees.append(Tree(sources, root, own))
        yield str(folder), trees


def functions(code, braces):
    """(name, start, end) of the functions that have a body."""
    for found in re.finditer(r"\bfn\s+(\w+)", code):
        depth = 0
        for at in range(found.end(), len(code)):
            char = code[at]
            if char in "([":
                depth += 1
            elif char in ")]":
                depth -= 1
            elif char == ";" and not depth:
                break
            elif char == "{" and not depth:
                yield found.group(1), found.start(), braces.end(at)
                break
