# SPDX-License-Identifier: GPL-2.0
"""The files that lint.py's self-test plants: a clean tree, and for each rule the faults it must find."""

import clones
import structure

SNAPSHOTS = "cgpuctl/tests/snapshots/"
HEAD = "// SPDX-License-Identifier: GPL-2.0\n//! A file.\n"
DUAL_HEAD = "// SPDX-License-Identifier: GPL-2.0 OR MIT\n//! A file.\n"
SCRIPT = "#!/bin/bash\n# SPDX-License-Identifier: GPL-2.0\n"
ARCHITECTURE = """
## Code map

| file | what |
| --- | --- |
| `user.rs` | addresses |

```floors
edge: os_interface
rules: policy
main: host cgpu_km_main
```
"""
CARGO = '[package]\nname = "cgpu_km"\n[lib]\npath = "host.rs"\n'
# An associated type is named in its trait and in each `impl`.
ASSOCIATED = "trait Counts {\n    type By;\n}\nimpl Counts for u8 {\n    type By = u8;\n}\n"
# These stand for themselves: one is public, one has an attribute, one is of another module.
IMPORTS = (
    "use std::{\n    fmt,\n    io::{\n        Read,\n        Write, //\n    }, //\n};\npub use std::fs;\n#[cfg(test)]\nuse std::mem;\n"
    "mod own {\n    use std::io;\n}\nfn f() {\n    use std::fs;\n}\n"
)
# A facade passes its part's item on, and the part uses the facade's: nobody needs both at once.
FACADE = (
    "mod facade_part;\npub use facade_part::Part;\npub fn own() {}\n"
    "#[cfg(test)]\nmod tests {\nuse super::facade_part::Part;\n}\n"
)
UNDECIDED = (
    "fn f(care: Care) {\n    match care {\n        Care::Memory(Report::Info) => g(),\n"
    "        _ => {}\n    }\n}\n"
)
# Neither the area nor the driver's name counts.
SHORT_CASE = " ".join(["word"] * structure.LONGEST_TEST_NAME)
PROC_FILES = (
    HEAD + "//!\n//! ```text\n//! version  it\n//! <minor>/policy  it  written by root\n//! ```\n"
    'const MODULE_FILES: [TextFile<()>; 1] = [read(c"version", show)];\n'
    'const GPU_FILES: [TextFile<Gpu>; 1] = [\n    written(\n        c"policy",\n    ),\n];\n'
)
# Lines of code, as many as may not stand in two places, with others between that do not count.
COPY_LINES = [f"say {number}" for number in range(clones.LONGEST_COPY + 1)]
COPY = "\n\n".join(COPY_LINES)
SHORT_COPY = SCRIPT + "\n".join(COPY_LINES[1:]) + "\n"
SECURITY = """## What is checked, and what it stops

* **It.** It is so.
  * Shown by: `cgpuctl/tests/a.rs` (`fact`), `cgpu-guest race`; suite `a: word`, `word
    word`; attacks `word`, `(DRIVERS_NAME)`.
* **That.**
  * Shown by: the code alone.
"""
DRA_ROWS = "| `cgpu_dra_claims` | it |\n"
PROC_ROWS = "| `version` | it | no |\n| `<minor>/policy` | it | yes |\n"
CLEAN = {
    "ARCHITECTURE.md": ARCHITECTURE,
    "cgpu_km/Cargo.toml": CARGO,
    "cgpu_km/cgpu_km_main.rs": HEAD
    + "#![deny(unsafe_code)]\n#[allow(unsafe_code)]\nmod os_interface;\nmod policy;\n",
    "cgpu_km/host.rs": HEAD + "#![forbid(unsafe_code)]\nmod policy;\n",
    "cgpuctl/client/src/lib.rs": DUAL_HEAD + "#![deny(unsafe_code)]\n",
    "cgpuctl/src/lib.rs": DUAL_HEAD + "#![deny(unsafe_code)]\n",
    "cgpu_km/policy.rs": HEAD
    + '// unsafe in a comment; panic!("no")\n'
    + 'const WORD: &str = "unsafe { x.unwrap() }";\n'
    + "// CAST: u32 fits.\nlet x = y as u64;\n"
    + ASSOCIATED
    + IMPORTS
    + FACADE,
    "cgpu_km/policy/facade_part.rs": HEAD + "pub struct Part;\nfn f() { super::own(); }\n",
    "cgpu_km/os_interface.rs": HEAD + "mod user;\n",
    "cgpu_km/os_interface/user.rs": HEAD
    + "pub(crate) fn raw(p: *mut u8) {}\nfn own(p: *const u8) { unsafe { f(p) } }\n"
    + "pub struct UserAddr(u64);\n"
    + "fn g() {\n// SAFETY: It is valid.\nf();\n// SAFETY: As above.\nf();\n}\n",
    "cgpu_km/uapi/lib.rs": DUAL_HEAD
    + "pub const ABI_VERSION: u32 = 4;\n"
    + 'pub const RESERVED_NAMES: [&str; 2] = ["policy", "version"];\n',
    "cgpu_km/procfs.rs": PROC_FILES,
    "docs/procfs.md": PROC_ROWS,
    "docs/uapi.md": "The ABI is 4.\n",
    "cgpuctl/tests/snapshots/commands__metrics.text.snap": "# HELP cgpu_info It.\n",
    "cgpuctl/tests/snapshots/command_line__help.snap": "==== cgpuctl --help\n"
    + "Commands:\n  inst  It [alias: i]\n\n==== cgpuctl inst --help\nCommands:\n  list  It\n\n"
    + "==== cgpuctl inst list --help\n  --json\n",
    "docs/commands.md": "`cgpuctl i list --json`\n\n    cgpuctl inst NAME\n",
    "docs/metrics.md": "| `cgpu_info` | it |\n",
    "cgpu-dra/src/metrics.rs": HEAD + 'const CLAIMS: &str = "cgpu_dra_claims";\n',
    "docs/kubernetes.md": DRA_ROWS,
    "Makefile": "# SPDX-License-Identifier: GPL-2.0\nall:\n",
    "README.md": f"| {'x' * 110} | [x](https://{'x' * 110}) |\n[a link](https://{'x' * 110})\n```\n{'x y ' * 30}\n```\n",
    "cgpuctl/src/docs.rs": DUAL_HEAD + "/// It says\n/// what it is. Where is it?\nstruct Docs;\n",
    "cgpuctl/src/page.rs": DUAL_HEAD + '// As docs/a.md.\nf("/usr/share/doc/cgpu/README.md");\n',
    "tests/replay/src/guest/suite/files.rs": HEAD + f'tests! {{\n    "a: {SHORT_CASE}" => f;\n}}\n',
    "tests/replay/src/guest/attacks/files.rs": HEAD + f'attack("{SHORT_CASE} (DRIVERS_NAME)")\n',
    "SECURITY.md": SECURITY,
    "cgpuctl/tests/a.rs": DUAL_HEAD + "#[test]\nfn a_fact_holds() {}\n",
    "tests/replay/src/bin/cgpu-guest.rs": HEAD + "enum GuestCommand {\n    Race {\n    },\n}\n",
    "docs/testing.md": "| the suite | 1 | 1 |\n| the attacks | 1 | 1 |\n",
    "tests/vm/copy.sh": SHORT_COPY,
    "tests/vm/copied.sh": SHORT_COPY,
    "tests/vm/long.sh": SCRIPT + f'# https://{"x" * 110}\nsay "{"x y " * 30}"\n',
}


PAGES = "/usr/share/doc/cgpu/docs"


def one(rule, path, body, head=HEAD):
    """A fault in a single file."""
    return rule, path, {path: head + body}


def policy(**parts):
    """Files of the module `policy`, which the root declares, and the parts below it."""
    files = {f"cgpu_km/policy/{name}.rs": HEAD + body for name, body in parts.items()}
    files["cgpu_km/policy.rs"] = HEAD + "".join(f"mod {name};\n" for name in parts)
    return files


LONG = "fn f() {\n" + "    g();\n" * structure.LONGEST_FUNCTION + "}\n"
LONG_IN_TESTS = "f() {\n" + "\tg\n" * structure.LONGEST_TEST_FUNCTION + "}\n"
LONG_IN_C = "int f(int a)\n{\n" + "\tg();\n" * structure.LONGEST_TEST_FUNCTION + "}\n"
LONG_IN_PYTHON = "def f():\n" + "    g()\n" * structure.LONGEST_TEST_FUNCTION
LONG_NAME = "_".join(["word"] * (structure.LONGEST_TEST_NAME + 1))
LONG_CASE = LONG_NAME.replace("_", " ")
LONG_CASES = (
    ("tests/replay/src/guest/suite/a.rs", f'tests! {{\n    "a: {LONG_CASE}" => f;\n}}\n'),
    ("tests/replay/src/guest/attacks/a.rs", f'Own {{\n    name: "{LONG_CASE}",\n}}\n'),
    ("tests/replay/src/guest/attacks/b.rs", f'attack(\n    "{LONG_CASE} (NAME)",\n)\n'),
    ("tests/replay/src/guest/attacks/c.rs", f'subdevice!("{LONG_CASE}", PLACE, 0)\n'),
    ("tests/replay/src/guest/attacks/d.rs", f'attacks! {{\n    "{LONG_CASE}": "a.c:f", x;\n}}\n'),
)
# A name in an entry of SECURITY.md, or a word, and one that does not hold.
NOT_SHOWN = (
    ("cgpuctl/tests/a.rs", "cgpuctl/tests/gone.rs"),
    ("cgpuctl/tests/a.rs", "cgpuctl/src/keys.rs"),
    ("`fact`", "`gone`"),
    ("guest race", "guest gone"),
    ("`a: word`", "`a: gone`"),
    ("`word\n    word`", "`word\n    gone`"),
    ("attacks `word`", "attacks `gone`"),
    ("attacks `word`", "`word`"),
    ("the code alone", "that"),
    ("Shown by: the", "Seen by: the"),
)
WIDE = "word " * 21
ABOVE = "// SAFETY: It is valid.\nf();\n" + "g();\n" * 5 + "// SAFETY: As above.\nf();\n"
ABOVE_ABOVE = "// SAFETY: It is valid.\n" + "// SAFETY: As above.\nf();\n" * 2
# The note above is of another kind.
ABOVE_OTHER = "// SAFETY: It is valid.\n// INVARIANT: As above.\nf();\n"
EVASIVE = (
    "SAFETY: As in `g`.",
    "SAFETY: As this function's contract says.",
    "SAFETY: As the pool says.",
    "SAFETY: The contract of this function\n// is the same.",
    "SAFETY: The same.",
    "SAFETY: The caller speaks for the addresses.",
    "SAFETY: It lives long enough; for the rest the\n// caller vouches.",
    "SAFETY: It is what the call demands, says the caller.",
    "SAFETY: The fault is valid; see this function's contract.",
    "INVARIANT: This function's contract.",
    "INVARIANT: As the pool says.",
)
FAULTS = (
    one("unsafe", "cgpu_km/policy/a.rs", "fn f() { unsafe { g() } }\n"),
    one("unsafe", "cgpu_km/policy/b.rs", "#![allow(unsafe_code)]\n"),
    one("unsafe", "cgpu_km/proxy/c.rs", "#[no_mangle]\nfn f() {}\n"),
    one(
        "unsafe",
        "cgpu_km/proxy/d.rs",
        "const L: &'static str = \"a\"; fn f<'a>(x: &'a u8) { unsafe {} }\n",
    ),
    one("unsafe", "cgpuctl/src/e.rs", "unsafe fn f() {}\n"),
    one("unsafe", "cgpu_km/host.rs", "mod policy;\n"),
    one(
        "raw_interface",
        "cgpu_km/os_interface/a.rs",
        "impl A {\n    pub fn f(\n        &self,\n        p: *mut u8,\n    ) {}\n}\n",
    ),
    one("raw_interface", "cgpu_km/os_interface/b.rs", "pub fn f() -> *const u8 {}\n"),
    one("raw_interface", "cgpu_km/os_interface/c.rs", "pub fn f(addr: usize) {}\n"),
    one("raw_interface", "cgpu_km/os_interface/d.rs", "pub struct A {\n    pub p: *mut u8,\n}\n"),
    one("raw_interface", "cgpu_km/os_interface/e.rs", "pub trait T {\n    fn f(p: *mut u8);\n}\n"),
    one("raw_interface", "cgpu_km/os_interface/f.rs", "pub struct A(pub *mut u8);\n"),
    one("panics", "cgpu_km/policy/a.rs", "fn f() { x.unwrap(); }\n"),
    one("panics", "cgpu_km/registry.rs", "fn f() { panic!(); }\n"),
    one("casts", "cgpu_km/policy/a.rs", "fn f() { x as usize; }\n"),
    one("licence", "cgpu_km/policy/a.rs", "int x;\n", head=""),
    one("licence", "cgpuctl/src/a.rs", "fn f() {}\n"),
    one("licence", "tests/vm/a.sh", "int x;\n", head=""),
    one("explained", "cgpu_km/policy/a.rs", "int x;\n", head=""),
    one("explained", "cgpu_km/policy/tests.rs", "int x;\n", head=""),
    one("unfinished", "cgpu_km/policy/a.rs", "// TODO: this\n"),
    one("unfinished", "tests/fake_nvidia/a.c", "/* FIXME */\n"),
    one("length", "cgpu_km/policy/a.rs", "// x\n" * 601),
    one("machine", "docs/a.md", "see /" "root/x\n"),
    one("machine", "docs/a.md", "deb http://deb.debian" ".org/debian\n"),
    # Two files, a third between them, a path without `use`, a module's other name, a re-export.
    (
        "cycles",
        "cgpu_km/policy/a.rs",
        policy(a="use super::b::B;\npub struct A;\n", b="use super::a::A;\npub struct B;\n"),
    ),
    (
        "cycles",
        "cgpu_km/policy/c.rs",
        policy(
            a="use crate::policy::{b::{self, B}, c};\npub struct A;\nfn f() { c::C; }\n",
            b="pub struct B;\n",
            c="pub struct C;\nfn f() { crate::policy::a::A; }\n",
        ),
    ),
    (
        "cycles",
        "cgpu_km/policy/c.rs",
        policy(
            a="pub struct A;\nfn f() { super::b::C; }\n",
            b="pub use super::c::C;\n",
            c="pub struct C;\nuse super::a::*;\nfn f(a: A) {}\n",
        ),
    ),
    (
        "parent_cycles",
        "cgpu_km/policy.rs",
        {
            "cgpu_km/policy.rs": HEAD + "mod a;\npub struct P(a::A);\n",
            "cgpu_km/policy/a.rs": HEAD + "use super::P;\npub struct A;\n",
        },
    ),
    (
        "floors",
        "cgpu_km/os_interface/user.rs",
        {
            **policy(a="pub struct A;\n"),
            "cgpu_km/os_interface/user.rs": HEAD + "use crate::policy::a::A;\n",
        },
    ),
    (
        "floors",
        "cgpu_km/policy/a.rs",
        {
            **policy(a="pub struct A;\n", b="use super::a::A;\n"),
            "ARCHITECTURE.md": ARCHITECTURE.replace("rules: policy", "rules: policy/b"),
        },
    ),
    ("floors", "ARCHITECTURE.md", {"ARCHITECTURE.md": ARCHITECTURE.replace("edge:", "edge: gone")}),
    ("floors", "ARCHITECTURE.md", {"ARCHITECTURE.md": ARCHITECTURE.replace("```floors", "```")}),
    one("imports", "cgpu_km/policy/a.rs", "use crate::b::B;\nuse std::io;\nuse crate::c::C;\n"),
    one(
        "imports",
        "cgpu_km/policy/a.rs",
        "use std::io;\nmod tests {\n    use std::fs;\n    use std::{fmt, io};\n}\n",
    ),
    one("vertical_imports", "cgpu_km/policy/a.rs", "use std::{fmt, io};\n"),
    one("vertical_imports", "cgpu_km/policy/a.rs", "use std::{\n    fmt,\n    io,\n};\n"),
    one("functions", "cgpu_km/policy/a.rs", LONG),
    one("functions", "tests/vm/a.sh", LONG_IN_TESTS, head=SCRIPT),
    one("functions", "tests/fake_nvidia/a.c", LONG_IN_C),
    one("functions", "tests/abi/a.py", LONG_IN_PYTHON, head=""),
    one("decided", "cgpu_km/policy/a.rs", UNDECIDED),
    one("test_names", "cgpu_km/policy/tests.rs", f"#[test]\nfn {LONG_NAME}() {{}}\n"),
    one(
        "test_names",
        "cgpu_km/policy/tests.rs",
        f"#[tokio::test(flavor = \"multi_thread\")]\n// Why.\n#[ignore]\nasync fn {LONG_NAME}() {{}}\n",
    ),
    *(one("test_names", path, body) for path, body in LONG_CASES),
    (
        "types",
        "cgpu_km/policy/b.rs",
        policy(a="pub struct Twice;\n", b="enum Twice {}\n"),
    ),
    (
        "types",
        "cgpu_km/policy/b.rs",
        policy(a="pub struct Twice;\n", b="words! {\n    pub enum Twice {}\n}\n"),
    ),
    (
        "types",
        "cgpu_km/policy/b.rs",
        policy(a="pub struct Twice;\n", b="fn f() {\n    struct Twice;\n}\n"),
    ),
    one("types", "cgpu_km/policy/facade_part.rs", "struct Part;\nmod tests {\nstruct Part;\n}\n"),
    one("lines", "cgpu_km/policy/a.rs", f"// {WIDE}\n"),
    one("lines", "cgpu_km/policy/a.rs", f"fn f({WIDE}) {{}}\n"),
    one("lines", "docs/a.md", f"{WIDE}\n"),
    one("lines", "docs/a.md", f"{'word ' * 16}[a link](a.md#that-is-long)\n# That is long\n"),
    one("lines", "tests/vm/a.sh", f"# {WIDE}\n", head=SCRIPT),
    one("links", "docs/a.md", "see [b](b.md)\n", head=""),
    one("links", "docs/a.md", "see [b](#there)\n\n# Here\n", head=""),
    one("sentences", "docs/a.md", "* " + "word\n" * 26 + ".\n", head=""),
    one("sentences", "docs/a.md", f"{'word ' * 13}word: {'word ' * 13}\n", head=""),
    one("sentences", "SECURITY.md", "word " * 31 + "\n", head=""),
    one("sentences", SNAPSHOTS + "commands__a.text.snap", "cgpuctl: " + "word " * 26, head=""),
    one("sentences", SNAPSHOTS + "command_line__help.snap", "word\n" * 26, head=""),
    one("sentences", SNAPSHOTS + "command_line__help.snap", f"  --a  It {'word ' * 26}\n", head=""),
    one("sentences", "docs/design/a.md", "* " + "word\n" * 36 + ".\n", head=""),
    one("cells", "docs/a.md", f"| a | {'word ' * 25} |\n", head=""),
    one("private_words", "docs/a.md", "the\nbooks `books`\n", head=""),
    one("private_words", "docs/a.md", "it stands in\n[this page](a.md)\n", head=""),
    one("private_words", "cgpu_km/policy/a.rs", "// A task is parked.\n"),
    one("private_words", "cgpu_km/policy/a.rs", "fn opens_the_twins_once() {}\n"),
    one("private_words", "cgpu_km/policy/a.rs", "fn a_refusal_is_made_true() {}\n"),
    one("private_words", "cgpuctl/src/a.rs", 'const OLD: &str = "parked_ns";\n', head=DUAL_HEAD),
    one("private_words", "tests/vm/a.sh", "echo in no table\n", head=SCRIPT),
    (
        "terms",
        "docs/a.md",
        {
            "docs/a.md": "an *instance* and a *gadget*\n",
            "docs/glossary.md": "| instance | a |\n",
        },
    ),
    one("terms", "docs/glossary.md", "| share | b |\n| instance | a |\n", head=""),
    one("subjects", "cgpu_km/policy/a.rs", "/// What it is.\nstruct A;\n"),
    one("subjects", "cgpu_km/policy/a.rs", "/// A.\n///\n/// Where it\n/// is.\nstruct A;\n"),
    one("subjects", "cgpu_km/policy/a.rs", "struct A; // It is.\n// SAFETY: What is here.\n"),
    one("subjects", "cgpu_km/os_interface/a.c", "/*\n * Whoever has it.\n */\n"),
    one("subjects", "tests/vm/a.sh", "f() {\n\t# What it does.\n\tg\n}\n", head=SCRIPT),
    one("subjects", "tests/abi/a.py", 'def f():\n    """Who has it."""\n', head=""),
    one("subjects", "cgpu_km/policy/a.rs", "// A caller waits for its job\n// until he is killed.\n"),
    one("subjects", "cgpu_km/os_interface/a.c", "int a; /* of his */\n"),
    one("subjects", "tests/vm/a.sh", "f #\tasks him\n", head=SCRIPT),
    one("subjects", "cgpu_km/policy/a.rs", "/// It wakes who waits.\nfn f() {}\n"),
    one("subjects", "cgpu_km/policy/a.rs", "// It would hold up\n// who moves the gate.\n"),
    one("subjects", "tests/vm/a.sh", "f #" " said to who asks\n", head=SCRIPT),
    one("abi", "docs/a.md", "the ABI is 3\n", head=""),
    one("abi", "docs/uapi.md", "The ABI\nis 3.\n", head=""),
    one("abi", "docs/uapi.md", "the `abi` field. It is 4.\n", head=""),
    one("metrics", "docs/a.md", "`cgpu_gpu_gone_bytes`\n", head=""),
    one("metrics", "dist/grafana/a.json", '{"expr": "sum(cgpu_instance_gone)"}\n', head=""),
    one("metrics", "dist/prometheus/a.yml", "expr: cgpu_instance_gone > 0\n", head=""),
    one("metrics", "docs/metrics.md", "none\n", head=""),
    one("metrics", "docs/kubernetes.md", "`cgpu_dra_claims` is one\n", head=""),
    one("commands", "docs/a.md", "`cgpuctl inst gone`\n", head=""),
    one("commands", "docs/a.md", "`cgpuctl i list --gone`\n", head=""),
    one("proc_files", "docs/procfs.md", PROC_ROWS.replace("policy", "gone"), head=""),
    one("proc_files", "docs/procfs.md", PROC_ROWS.replace("yes", "no"), head=""),
    one("proc_files", "docs/procfs.md", PROC_ROWS.partition("\n")[0], head=""),
    one("proc_files", "cgpu_km/procfs.rs", PROC_FILES.replace("  written by root", ""), head=""),
    one("proc_files", "cgpu_km/procfs.rs", PROC_FILES.replace("! version", "! release"), head=""),
    one(
        "proc_files",
        "cgpu_km/uapi/lib.rs",
        DUAL_HEAD + 'pub const RESERVED_NAMES: [&str; 1] = ["policy"];\n',
        head="",
    ),
    one("cluster_commands", "docs/kubernetes.md", f"{DRA_ROWS}kubectl get pods\n", head=""),
    *(
        (
            "cluster_commands",
            "docs/kubernetes.md",
            {
                "docs/kubernetes.md": f"{DRA_ROWS}   kubectl --y {command} b\n",
                "tests/kubernetes/a.sh": SCRIPT + f"kubectl --x {command} $node\n",
            },
        )
        # One is run though it is listed; where another is run, those that are listed are gone.
        for command in ("drain", "get pods")
    ),
    one("pages_on_a_host", "cgpuctl/src/a.rs", 'f("see docs/json.md");\n', head=DUAL_HEAD),
    one("pages_on_a_host", SNAPSHOTS + "command_line__help.snap", "See docs/a.md.\n", head=""),
    one("pages_on_a_host", "dist/a.sh", f"echo {PAGES}/gone.md\n", head=SCRIPT),
    one("places", "docs/a.md", "in `tests/vm/gone.sh`\n", head=""),
    *(one("shown", "SECURITY.md", SECURITY.replace(*words), head="") for words in NOT_SHOWN),
    one("counted", "docs/testing.md", "| the suite | 2 | 1 |\n", head=""),
    one("counted", "docs/testing.md", "| the attacks | 2 | 1 |\n", head=""),
    one("chapters", "docs/SUMMARY.md", "[a](../README.md)\n", head=""),
    (
        "clones",
        "cgpu_km/policy/b.rs",
        {f"cgpu_km/policy/{a}.rs": f"{HEAD}fn {a}() {{\n{COPY};\n}}\n" for a in "ab"},
    ),
    (
        "clones",
        "tests/vm/b.sh",
        {f"tests/vm/{a}.sh": f"{SCRIPT}# {a}\n{COPY}\n" for a in "ab"},
    ),
    (
        "clones",
        "tests/fake_nvidia/b.c",
        {f"tests/fake_nvidia/{a}.c": f"{HEAD}int {a};\n{COPY};\n" for a in "ab"},
    ),
    one("safety", "cgpu_km/os_interface/a.rs", ABOVE),
    one("safety", "cgpu_km/os_interface/a.rs", ABOVE_ABOVE),
    one("safety", "cgpu_km/os_interface/a.rs", ABOVE_OTHER),
    *(one("safety", "cgpu_km/os_interface/a.rs", f"// {said}\nf();\n") for said in EVASIVE),
    one("code_map", "ARCHITECTURE.md", ARCHITECTURE.replace("user.rs", "gone.rs"), head=""),
    (
        "code_map",
        "ARCHITECTURE.md",
        {"cgpu_km/os_interface/unnamed.rs": HEAD, "cgpu_km/os_interface/user.rs": HEAD},
    ),
)
