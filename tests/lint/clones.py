# SPDX-License-Identifier: GPL-2.0
"""A rule about equal code: no ten lines of code stand in two places.

A line of code has a word in it: braces, comments, imports and empty lines are not counted, nor are
spaces. Lines are compared as they are, so that code of the same shape with other names is not
found: by shape alone, tables and tests look alike."""

import collections
import re

import rust

LONGEST_COPY = 9
LANGUAGES = {
    ".rs": "rust",
    ".c": "c",
    ".h": "c",
    ".go": "c",
    ".py": "script",
    ".sh": "script",
}
# A line that says what a file uses, and one that is a comment or the inside of one.
IMPORT = {
    "rust": re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:use|mod|extern crate)\b"),
    "c": re.compile(r"\s*(?:#\s*(?:include|define|if|ifdef|ifndef|endif)|import|package)\b"),
    "script": re.compile(r"\s*(?:import|from|set -|\. |source )\b"),
}
COMMENT = {
    "rust": re.compile(r"(?!)"),
    "c": re.compile(r"\s*(?://|/\*|\*)"),
    "script": re.compile(r"\s*#"),
}


def code_lines(path, sources):
    """(line, code) of each line that counts."""
    language = LANGUAGES[path[path.rindex(".") :]]
    text = known = sources.files[path]
    if language == "rust":
        known = sources.code(path)
        # The blocks of imports, which have an item a line.
        known = re.sub(
            r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\b[^;]*;", rust.blank, known, flags=re.M
        )
    for line, (code, whole) in enumerate(zip(known.split("\n"), text.split("\n")), 1):
        if not re.search(r"\w", code):
            continue
        if IMPORT[language].match(code) or COMMENT[language].match(code):
            continue
        # Texts are blank in the code of Rust, and count.
        said = re.sub(r"\s//\s.*", "", whole) if language == "rust" else whole
        yield line, re.sub(r"\s", "", said)


def clones(sources):
    """Ten lines of code stand in one place only."""
    lines = {}
    places = collections.defaultdict(list)
    size = LONGEST_COPY + 1
    for path in sorted(sources.files):
        if not path.endswith(tuple(LANGUAGES)) or "/generated" in path:
            continue
        lines[path] = list(code_lines(path, sources))
        code = [said for _, said in lines[path]]
        for start in range(len(code) - size + 1):
            places[hash(tuple(code[start : start + size]))].append((path, start))
    told = set()
    for first, *others in places.values():
        for path, start in others:
            if (path, start - 1) not in told:
                other = f"{first[0]}:{lines[first[0]][first[1]][0]}"
                yield path, lines[path][start][0], f"{size} lines or more are those of {other}"
            told.add((path, start))


RULES = (clones,)
