#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""book.py: makes the book of the documents, with a search, in target/book/html, and follows every
link in it. docs/SUMMARY.md lists the chapters; documents that a chapter links to come after them.

book.py --self-test: follows links of a page in which two of four lead nowhere.

mdbook is taken from the PATH, or built by cargo into the cache."""

import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

TREE = Path(__file__).resolve().parent.parent
VERSION = "0.5.4"
# The search is all that the book needs of mdbook beside pages. Without the rest, and without
# optimization, it is built in a third of the time.
BUILD = ("--locked", "--debug", "--no-default-features", "--features", "search")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cgpu"
OWN = CACHE / f"mdbook-{VERSION}-search"
BOOK = TREE / "target" / "book"
LINK = re.compile(r"(\[[^\]]*\])\(([^)\s:]+)\)")


def mdbook():
    """The program, built if it is not there."""
    found = shutil.which("mdbook") or shutil.which(OWN / "bin" / "mdbook")
    if not found:
        command = ["cargo", "install", "mdbook", "--version", VERSION, *BUILD, "--root", OWN]
        # Cargo has a folder of its own for it then, which it removes.
        environment = {k: v for k, v in os.environ.items() if k != "CARGO_TARGET_DIR"}
        subprocess.run(command, env=environment, check=True)
        found = OWN / "bin" / "mdbook"
    return found


def targets(path, text):
    """Files of the tree that a document links to."""
    for found in LINK.finditer(text):
        target = found.group(2).partition("#")[0]
        if target:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def without_folders(path, text):
    """A document without its links to folders, which no page of the book shows."""

    def kept(found):
        target = found.group(2).partition("#")[0]
        place = TREE / posixpath.dirname(path) / target
        return found.group(1).strip("[]") if target and place.is_dir() else found.group(0)

    return LINK.sub(kept, text)


def stage(summary):
    """Copies the chapters, and all that is linked from them, and writes the list of chapters."""
    shutil.rmtree(BOOK, ignore_errors=True)
    source = BOOK / "src"
    chapters = list(targets("docs/SUMMARY.md", summary))
    waiting, others, done = list(chapters), [], set()
    while waiting:
        path = waiting.pop(0)
        if path in done or (TREE / path).is_dir():
            continue
        done.add(path)
        place = source / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not path.endswith(".md"):
            shutil.copy(TREE / path, place)
            continue
        text = (TREE / path).read_text()
        place.write_text(without_folders(path, text))
        waiting += targets(path, text)
        if path not in chapters:
            others.append((re.search(r"^# (.*)$", text, re.M).group(1), path))
    listed = LINK.sub(
        lambda found: f"{found.group(1)}({posixpath.normpath('docs/' + found.group(2))})", summary
    )
    listed += "\n# Measurements, and notes on tests\n\n"
    listed += "".join(f"- [{title}]({path})\n" for title, path in sorted(others))
    (source / "SUMMARY.md").write_text(listed)
    for name in ("book.toml", "book.css"):
        shutil.copy(TREE / "docs" / name, BOOK)


class Page(HTMLParser):
    """The links of a page, and the names in it that others can link to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key in ("href", "src") and value:
                self.links.append(value)
            elif key in ("id", "name"):
                self.names.add(value)


def dead(html):
    """(page, link) of each link in the book that leads nowhere."""
    pages = {p: Page(p.read_text()) for p in html.rglob("*.html") if p.name != "print.html"}
    for place, page in pages.items():
        for link in page.links:
            target, _, name = unquote(link).partition("#")
            if re.match(r"\w+:|//", target) or place.name in ("404.html", "toc.html"):
                continue
            to = (place.parent / target).resolve() if target else place
            if not to.exists():
                yield place.relative_to(html), link
            elif name and to in pages and name not in pages[to].names:
                yield place.relative_to(html), link


def self_test():
    """A file and a heading that are not there are found, and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder).resolve()
        links = "".join(f'<a href="{to}">' for to in ("b.html#c", "#c", "gone.html", "b.html#gone"))
        (html / "a.html").write_text(f'<p id="c">{links}')
        (html / "b.html").write_text('<p id="c"><a href="https://example.com/">')
        found = [link for _, link in dead(html)]
    failed = int(found != ["gone.html", "b.html#gone"])
    print(f"book self-test: {1 - failed} passed, {failed} failed")
    return failed


def main():
    if "--self-test" in sys.argv:
        return self_test()
    stage((TREE / "docs/SUMMARY.md").read_text())
    subprocess.run([mdbook(), "build", BOOK], check=True)
    html = BOOK / "html"
    found = list(dead(html))
    for page, link in found:
        print(f"{page}: {link} leads nowhere")
    if not list(html.glob("searchindex*.js")):
        found.append("no search")
        print("the book has no index for its search")
    pages = len(list(html.rglob("*.html")))
    print(f"book: {pages} pages in {html.relative_to(TREE)}, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
