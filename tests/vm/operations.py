#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""operations.py: the commands in README's `sh` blocks that engine-session.sh runs, a line each. A
command that another test runs must be in that test; one that none runs is an error."""

import re
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
# How a command begins, the test that runs it, and how it is written there.
ELSEWHERE = (
    ("make demo", "tests/floors.py", '"tests/vm/demo.sh"'),
    ("make object", "tests/vm/package-test.sh", "dist/object/build.sh"),
    ("./install.sh --dry-run", "tests/vm/install-test.sh", "/files/install.sh --dry-run"),
    ("./install.sh", "tests/vm/package-test.sh", "/tree/install.sh"),
    ("./uninstall.sh", "tests/vm/install-test.sh", "\n/files/uninstall.sh >"),
    ("make package", "tests/vm/package-test.sh", "dist/package.sh"),
    ("dpkg --install", "tests/vm/package-test.sh", "dpkg --install"),
    ("dpkg --remove", "tests/vm/package-test.sh", "dpkg --remove cgpu"),
    ("cgpuctl unload", "tests/vm/load-order.sh", "cgpuctl unload"),
    ("docker run", "tests/vm/engine-docker.sh", "--device cgpu.io/gpu=train"),
)
HERE = ("cgpuctl ", "podman ", "cat /proc/cgpu_km/")


def main():
    text = (TREE / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M)
    commands = [line for block in blocks for line in block.splitlines()]
    if len(commands) < 20:
        sys.exit(f"operations.py: only {len(commands)} commands found in README.md")
    for command in commands:
        place = next((e for e in ELSEWHERE if command.startswith(e[0])), None)
        if place:
            if place[2] not in (TREE / place[1]).read_text():
                sys.exit(f"operations.py: {place[1]} does not run {command!r}")
        elif command.startswith(HERE):
            print(command)
        else:
            sys.exit(f"operations.py: no test runs {command!r}")


if __name__ == "__main__":
    main()
