# SPDX-License-Identifier: GPL-2.0
"""Rules about the documents: what a link points to exists, and no sentence is too long. And about
documents and code: no word is used that only its writers know."""

import posixpath
import re
from pathlib import PurePosixPath

from rust import blank

# Words in a sentence: of the pages in docs/ and beside it, and of what cgpuctl prints. These pages
# have more than a few longer ones, and may have them up to LONGEST_IN_OTHERS.
LONGEST_SENTENCE = 25
OTHERS = ("SECURITY.md", "CHANGELOG.md", "docs/kubernetes.md")
LONGEST_IN_OTHERS = 30
# Of notes on design and tests.
LONGEST_IN_NOTES = 35
# A page, not such a note.
PAGE = re.compile(r"(?:docs/)?[\w-]+\.md")
# The output of each command in a test, that of `--help` among it.
PRINTED = re.compile(r"cgpuctl/tests/snapshots/(?!.*\.json\.snap$).*\.snap")
HELP = "cgpuctl/tests/snapshots/command_line__help.snap"
# Characters of a table's cell, as it is read: without the targets of its links.
LONGEST_CELL = 120
# Our own words, and what a reader knows instead (docs/glossary.md). A name in code has the words of
# one with _ between them.
PRIVATE = {
    r"twins?": "proxy node",
    r"honest[\s_]+nodes?": "host node",
    r"(?:the|our|no)[\s_]+books": "accounting",
    r"(?:the|our)[\s_]+walls": "isolation",
    r"made[\s_]+true": "verified, or undone",
    r"parked": "blocked",
    r"mend(?:s|ed)?": "fix",
    r"stands?\s+in\s+(?=\[)": "see",
    r"in[\s_]+no[\s_]+table": "not on the allowlist",
    r"metered|metering": "nothing: it is gone",
}
# The words that a reader may have to look up.
GLOSSARY = "docs/glossary.md"
# Files beside documents that people read.
SOURCES = (".rs", ".c", ".h", ".py", ".sh", ".txt")
# Files with comments, and a line of a comment or of a docstring: its mark, and its words.
COMMENTED = (".rs", ".c", ".h", ".py", ".sh")
OPENS_COMMENT = (
    re.compile(r"\s*(?:/(?=\*))?(//[/!]?|\*)\*?(?!/)\s*(.*)"),
    re.compile(r"\s*(#|\"\"\")\s*(.*)"),
)
QUESTION = re.compile(r"(?:[A-Z]+: )?(What|Whatever|Where|Whose|Who|Whoever)\b")
# A comment behind code of a line, and words for people, which tasks and programs are not.
BEHIND_CODE = (re.compile(r"\s/[/*]\s(.*)"), re.compile(r"\s#\s(.*)"))
PERSON = re.compile(r"\b(?:[Hh]e|[Hh]is|[Hh]im|[Hh]imself)\b")
# The word in the place of a task, which is to be named.
FUSED = re.compile(
    r"\b(?:answers?|by|for|from|holds? up|lets?|needs?|tells?|to|wakes?|while) who\b"
)
# Records of a day, and lists that are made by a program.
NOT_PROSE = ("docs/measurements/", "LICENSES/")


def is_document(path):
    """Markdown that somebody reads."""
    return path.endswith(".md") and not path.startswith(NOT_PROSE)


def without_code(text):
    """Markdown without its blocks of code, of the same number of lines."""
    return re.sub(r"^ {0,3}```.*?^ {0,3}```", blank, text, flags=re.M | re.S)


def anchor(heading):
    """The name that a heading has in an address, as Git hosts make it."""
    words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(text):
    """All headings of a document, by their anchors."""
    return {anchor(found) for found in re.findall(r"^#{1,6} (.*)$", without_code(text), re.M)}


def links(files, paths):
    """A link to a file of this tree leads to a file, and to a heading if it names one."""
    there = {part for path in paths for part in (path, *map(str, PurePosixPath(path).parents))}
    for path, text in files.items():
        if not path.endswith(".md"):
            continue
        for found in re.finditer(r"\]\(([^)\s]+)\)", without_code(text)):
            target, _, name = found.group(1).partition("#")
            if ":" in target:
                continue
            line = text.count("\n", 0, found.start()) + 1
            place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            place = place if target else path
            if place not in there:
                yield path, line, f"links to {target}, which is not there"
            elif name and place.endswith(".md") and name not in anchors(files[place]):
                yield path, line, f"links to {found.group(1)}, which has no such heading"


def chapters(files, paths):
    """The book has every page of docs/ as a chapter (docs/book.py)."""
    summary = "docs/SUMMARY.md"
    if summary not in files:
        return
    listed = re.findall(r"\]\(([^)]*)\)", files[summary])
    for path in files:
        page = path.removeprefix("docs/")
        if page != path and is_document(path) and path != summary and page not in listed:
            yield summary, 0, f"lacks {page}"


def paragraphs(text):
    """(line, words) of each paragraph and item of a list; tables, headings and code left out."""
    lines, start = [], 0
    for number, line in enumerate([*without_code(text).split("\n"), ""], 1):
        bare = line.strip()
        item = re.match(r"(?:[*-]|\d+\.) ", bare)
        if not bare or item or bare.startswith(("|", "#", "<", ">")):
            if lines:
                yield start, " ".join(lines)
            lines = []
        if bare and not bare.startswith(("|", "#", "<")):
            start = start if lines else number
            lines.append(re.sub(r"^(?:[*-]|\d+\.|>) ", "", bare))


def paragraphs_of_help(text):
    """(line, words) of each paragraph of `--help`, and of each entry of its lists."""
    lines, start = [], 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        bare = line.strip()
        entry = re.match(r" +(?:-|\S+ {2,})", line)
        if not bare or entry or bare.endswith(":"):
            if lines:
                yield start, " ".join(lines)
            lines = []
        if bare and not re.match(r"====|Usage: |cgpuctl ", bare):
            start = start if lines else number
            lines.append(re.sub(r"^- ", "", bare) if not entry else re.sub(r"^\S+ +", "", bare))


def messages(text):
    """(line, words) of each message that the tool printed to stderr, and of what doctor found."""
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(r" *(?:cgpuctl|error|wanted|fix): (.*)", line)
        if found:
            yield number, found.group(1)


def prose_of(path, text):
    """The paragraphs of a file, and how many words a sentence may have there."""
    if path == HELP:
        return paragraphs_of_help(text), LONGEST_SENTENCE
    if PRINTED.fullmatch(path):
        return messages(text), LONGEST_SENTENCE
    if not is_document(path):
        return (), 0
    if path in OTHERS:
        return paragraphs(text), LONGEST_IN_OTHERS
    return paragraphs(text), LONGEST_SENTENCE if PAGE.fullmatch(path) else LONGEST_IN_NOTES


def sentences(files, paths):
    """A sentence of a document, or of what cgpuctl prints, has only so many words."""
    for path, text in files.items():
        said, longest = prose_of(path, text)
        for line, paragraph in said:
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
            plain = re.sub(r"`[^`]*`", "code", plain)
            # Of a message the part before the colon says what was attempted, and is no sentence.
            ends = "[.!?;:]" if PRINTED.fullmatch(path) and path != HELP else "[.!?;]"
            for sentence in re.split(rf"(?<={ends})\s+", plain):
                count = len(sentence.split())
                if count > longest:
                    yield path, line, f"a sentence of {count} words: {sentence[:60]}..."


def cells(files, paths):
    """A cell of a table in a page is short: what needs more stands below the table."""
    for path, text in files.items():
        if not is_document(path) or not PAGE.fullmatch(path):
            continue
        for line, row in enumerate(without_code(text).split("\n"), 1):
            if not row.lstrip().startswith("|"):
                continue
            read = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", row)
            longest = max(len(cell.strip()) for cell in re.split(r"(?<!\\)\|", read))
            if longest > LONGEST_CELL:
                yield path, line, f"a cell of {longest} characters"


def private_words(files, paths):
    """No word of our own where the field has one: in documents, comments, names and messages."""
    letter = "[A-Za-z]"
    words = "|".join(f"({word})" for word in PRIVATE)
    pattern = re.compile(rf"(?<!{letter})(?:{words})(?!{letter})", re.I)
    for path, text in files.items():
        if is_document(path):
            said = re.sub(r"`[^`\n]*`", blank, without_code(text))
        elif path.endswith(SOURCES) and not path.startswith("tests/lint/"):
            said = text
        else:
            continue
        for found in pattern.finditer(said):
            line = said.count("\n", 0, found.start()) + 1
            usual = list(PRIVATE.values())[found.lastindex - 1]
            yield path, line, f"{found.group(0)!r}: say {usual!r}"


def terms(files, paths):
    """A term that a document introduces (an *instance*) is in the glossary, whose rows are in
    order and there once."""
    text = files.get(GLOSSARY, "")
    rows = [
        (text.count("\n", 0, row.start()) + 1, row.group(1))
        for row in re.finditer(r"^\| (?!term |-)([^|]+) \|", text, re.M)
    ]
    for (_, before), (line, row) in zip(rows, rows[1:]):
        if row.lower() <= before.lower():
            yield GLOSSARY, line, f"{row!r} comes after {before!r}"
    known = {
        re.sub(r" \(.*\)", "", term).lower() for _, row in rows for term in row.split(", ")
    }
    for path, document in files.items():
        if not is_document(path) or not rows:
            continue
        said = without_code(document)
        for found in re.finditer(r"\b(?:[Aa]n?|called)\s+\*(\w[^*]*)\*(?!\*)", said):
            term = " ".join(found.group(1).lower().split())
            if not {term, term.removesuffix("s")} & known:
                line = said.count("\n", 0, found.start()) + 1
                yield path, line, f"introduces {term!r}, which {GLOSSARY} has not"


def subjects(files, paths):
    """A comment, and each paragraph of one, begins with its subject, not with a question word. No
    task or program in it is a person."""
    for path, text in files.items():
        if not path.endswith(COMMENTED) or "/generated/" in path:
            continue
        is_script = path.endswith((".py", ".sh"))
        opens, behind = OPENS_COMMENT[is_script], BEHIND_CODE[is_script]
        above, end = None, ""
        for line, words in enumerate(text.split("\n"), 1):
            comment = opens.match(words)
            mark, said = comment.groups() if comment else (None, "")
            begins = mark != above and QUESTION.match(said)
            if begins:
                yield path, line, f"begins with {begins.group(1)!r}: name the subject first"
            above = mark if said and not said.startswith("SPDX") else None
            comment = comment or behind.search(words)
            said = comment.group(comment.lastindex) or "" if comment else ""
            person = PERSON.search(said)
            if person:
                yield path, line, f"{person.group(0)!r}: a task is it"
            # The words before may stand at the end of the line above.
            for fused in FUSED.finditer(f"{end} {said}"):
                if fused.end() > len(end):
                    yield path, line, f"{fused.group(0)!r}: say which task or reader that is"
            end = " ".join(said.split()[-2:])


RULES = (links, chapters, sentences, cells, private_words, terms, subjects)
