#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""rust-project.py BUILD | --self-test: writes rust-project.json for rust-analyzer, with the kernel
half of the module in it. BUILD is the folder in which a kernel with Rust was configured, and `make
prepare` was run (CONTRIBUTING.md has the commands).

The kernel's own `make rust-analyzer` with M= finds no crate here: it looks for a Makefile or Kbuild
beside each root, and that of this module is at the top."""

import json
import os
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
ROOT = "cgpu_km/cgpu_km_main.rs"
# Bindings that Kbuild makes of the module's own headers.
EXTRA = TREE / "cgpu_km/os_interface/extra_generated.rs"
# The crates that the module uses, as the kernel's list calls them.
USED = ("core", "kernel", "pin_init", "zerocopy", "zerocopy_derive")


def module(crates):
    """The module's crate, for a list of the kernel's."""
    at = {crate["display_name"]: number for number, crate in enumerate(crates)}
    missing = [name for name in USED if name not in at]
    if missing:
        sys.exit(f"rust-project.py: the kernel's list has no crate {', '.join(missing)}")
    kernel = crates[at["kernel"]]
    return {
        "display_name": "cgpu_km",
        "root_module": str(TREE / ROOT),
        "is_workspace_member": True,
        "deps": [{"crate": at[name], "name": name} for name in USED],
        "cfg": kernel["cfg"],
        "edition": kernel["edition"],
        "env": {**kernel["env"], "CGPU_EXTRA": str(EXTRA), "CGPU_ABI": "0"},
        "source": {"include_dirs": [str(TREE / "cgpu_km")], "exclude_dirs": []},
    }


def self_test():
    """The module's crate uses the kernel's by their places, and none that is missing."""
    names = ("std", *reversed(USED))
    kernel = [
        {"display_name": name, "cfg": [name], "edition": "2021", "env": {"OBJTREE": "/build"}}
        for name in names
    ]
    made = module(kernel)
    right = all(names[use["crate"]] == use["name"] for use in made["deps"])
    right = right and Path(made["root_module"]).is_file() and made["cfg"] == ["kernel"]
    try:
        module(kernel[:-1])
        right = False
    except SystemExit:
        pass
    print(f"rust-project self-test: {int(right)} passed, {int(not right)} failed")
    return int(not right)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    build = Path(sys.argv[1])
    subprocess.run(["make", "--silent", "-C", build, "rust-analyzer"], check=True)
    project = json.loads((build / "rust-project.json").read_text())
    for crate in project["crates"]:
        # They are there to be looked up.
        crate["is_workspace_member"] = False
    project["crates"].append(module(project["crates"]))
    (TREE / "rust-project.json").write_text(json.dumps(project, indent=1))
    print(f"rust-project.json: {len(project['crates'])} crates")
    if not EXTRA.exists():
        print(f"{EXTRA.name} is not there yet: `make KDIR={os.path.relpath(build, TREE)}` makes it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
