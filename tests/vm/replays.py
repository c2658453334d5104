#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""replays.py [--only WORDS] [options of run.sh]: replays every recording of tests/traces through an
instance and directly on the stand-in, in one boot of the test machine, and checks the figures that
they must have. A line for each; ends in "N passed, N failed". The stand-in is loaded anew for each
kind of machine on which recordings were made. What a program held at the most is not noted here but
computed from its recording (recorded.py)."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

# Nothing is left in the source tree.
sys.dont_write_bytecode = True
import recorded  # noqa: E402

HERE = Path(__file__).resolve().parent
TRACES = HERE.parent / "traces"
GIB = 1 << 30
NO_MEMORY = "0x51"

# The PyTorch programs ask for this in their end: twice the GPU's memory, rounded up to 2 MiB.
TWICE_THE_H200 = 300_219_891_712
TWICE_THE_H100 = 170_034_987_008

# Refused although a program asks for it: partitions of a GPU, whose descriptors a container does
# not get.
PARTITIONS = {"AMPERE_SMC_CONFIG_SESSION", "AMPERE_SMC_MONITOR_SESSION"}
# Calls that nvidia-smi -q is refused, because they report on all tenants, and how often its
# recording makes them.
WITHHELD = {
    "NV2080_CTRL_CMD_BUS_GET_PEX_UTIL_COUNTERS": (0x20801819, 4),
    "NV2080_CTRL_GPU_GET_NVENC_SW_SESSION_STATS": (0x2080016D, 1),
    "NV2080_CTRL_GPU_GET_NVFBC_SW_SESSION_STATS": (0x2080017B, 1),
}
NOT_SUPPORTED = "0x56"
# cgpu_uapi::refusal: why a call was refused.
CAPABILITY, FORBIDDEN, PARAMETERS, PASSED_UNSEEN = 1, 3, 4, 5
# The driver refused these as well: a Vulkan program, and one that asks for a subdevice that it has
# freed.
AS_RECORDED = {("NV_ESC_RM_IDLE_CHANNELS", FORBIDDEN), ("NV2080_CTRL_CMD_8165", PARAMETERS)}

# Kinds of machines: GPUs, and parameters of the stand-in.
H200, H100, TWO_H200 = (1, ""), (1, "model=h100"), (2, "neighbours=1")


@dataclass
class Case:
    """One replay."""

    name: str
    traces: list
    # Limit, "" for the GPU's memory.
    mem: str
    # A check beside `sound`. It gets the report and the case.
    check: Callable
    direct: bool = False
    machine: tuple = H200
    # Options of the replay.
    managed: str = ""
    caps: str = ""
    # Whether every call must come out as recorded: not of a program that was refused a call.
    alike: bool = True

    def paths(self):
        return [TRACES / f"{trace}.jsonl.xz" for trace in self.traces]


def equal(what, seen, wanted):
    """A complaint, if there is one."""
    return [] if seen == wanted else [f"{what} is {seen}, not {wanted}"]


def is_withheld(mismatch):
    calls = {f"RM_CONTROL {number:#x}" for number, _ in WITHHELD.values()}
    return (
        mismatch["call"] in calls
        and mismatch["what"] == "status"
        and mismatch["seen"] == NOT_SUPPORTED
    )


def sound(report, case):
    """The checks of every replay."""
    wrong = equal("kernel_warnings", report["kernel_warnings"], 0)
    wrong += equal("final_bytes", report["final_bytes"], 0)
    answered = (
        report["modelled"] + report["from_recording"] + len(report["refused"]) + report["skipped"]
    )
    if report["calls"] == 0 or answered == 0:
        wrong.append("no call was made")
    if not case.alike:
        return wrong
    expected = {*PARTITIONS, *WITHHELD} if case.check is smi_q else PARTITIONS
    mismatches = [m for m in report["mismatches"] if not (case.check is smi_q and is_withheld(m))]
    for mismatch in mismatches[:3]:
        wrong.append(f"mismatch: {json.dumps(mismatch)}")
    if len(mismatches) > 3:
        wrong.append(f"and {len(mismatches) - 3} more mismatches")
    for call in report["refused_calls"]:
        as_recorded = (call["call"], call["reason"]) in AS_RECORDED
        if call["reason"] != PASSED_UNSEEN and call["call"] not in expected and not as_recorded:
            wrong.append(f"refused: {json.dumps(call)}")
    return wrong


def refusals(report, count, size):
    """So many allocations of that size were refused, for want of memory, and no other."""
    wrong = equal("refused allocations", len(report["refused"]), count)
    odd = [r for r in report["refused"] if r["bytes"] != size or r["status"] != NO_MEMORY]
    if odd:
        wrong.append(f"refused otherwise: {json.dumps(odd[0])}")
    return wrong


def peak(report, case):
    """As much was charged at the most as the recorded calls add up to."""
    return equal("peak_bytes", report["peak_bytes"], sum(recorded.peaks(case.paths()).values()))


def within(report, limit):
    """The limit is the one asked for, and was kept: by the accounting, and on the GPU itself."""
    wrong = equal("limit_bytes", report["limit_bytes"], limit)
    if report["peak_bytes"] + report["overhead_bytes"] > limit:
        wrong.append(
            f"charged {report['peak_bytes']} + {report['overhead_bytes']}, more than the limit {limit}"
        )
    if report["on_gpu_bytes"] > limit:
        wrong.append(f"{report['on_gpu_bytes']} on the GPU, more than the limit {limit}")
    return wrong


def managed(report, managed_bytes, spilled_bytes, refused):
    """So much of the recording's three ranges of 1 GiB, one after the other, was where."""
    wrong = within(report, report["limit_bytes"])
    wrong += equal("managed_bytes", report["managed_bytes"], managed_bytes)
    wrong += equal("spilled_bytes", report["spilled_bytes"], spilled_bytes)
    odd = [
        r
        for r in report["refused"]
        if (r["class"], r["bytes"], r["status"]) != ("managed", GIB, "ENOMEM")
    ]
    if odd:
        wrong.append(f"refused otherwise: {json.dumps(odd[0])}")
    return wrong + equal("refused mappings", len(report["refused"]), refused)


def managed_16(report, _):
    return managed(report, GIB, 0, 0)


def spill_1(report, _):
    """The memory that fits beside the context's objects is on the GPU, in whole blocks of 2 MiB."""
    room = (GIB - report["peak_bytes"] - report["overhead_bytes"]) // (2 << 20) * (2 << 20)
    return managed(report, room, GIB - room, 0)


def refused_3(report, _):
    return managed(report, 0, 0, 3)


def api_16(report, case):
    return refusals(report, 0, 0) + peak(report, case) + within(report, 16 * GIB)


def api_1(report, _):
    return refusals(report, 1, GIB) + within(report, GIB)


def oom_8(report, _):
    return refusals(report, 134, GIB) + within(report, 8 * GIB)


def oom_whole(report, case):
    """It fills the GPU, and was refused the last of its pieces in the recording too."""
    return refusals(report, 2, GIB) + peak(report, case)


def ipc_1(report, _):
    """The first process has no room for what it would share, so that the second opens nothing and
    has no room for its context beside the first one's."""
    sizes = [refused["bytes"] for refused in report["refused"]]
    wrong = equal("first refused", sizes[:1], [GIB // 2])
    odd = [refused for refused in report["refused"] if refused["status"] != NO_MEMORY]
    if odd:
        wrong.append(f"refused otherwise: {json.dumps(odd[0])}")
    return wrong + within(report, GIB)


def smi_8(report, case):
    """nvidia-smi saw the limit as the GPU's memory."""
    return equal("told total_bytes", report.get("told", {}).get("total_bytes"), 8 * GIB) + roomy(
        report, case
    )


def smi_q(report, case):
    """And was refused what is told of all tenants, nothing else."""
    counts = {
        call["call"]: call["count"]
        for call in report["refused_calls"]
        if call["reason"] != PASSED_UNSEEN
    }
    wanted = {name: count for name, (_, count) in WITHHELD.items()}
    counts = {name: count for name, count in counts.items() if name not in PARTITIONS}
    return equal("what is withheld", counts, wanted) + smi_8(report, case)


def roomy(report, case):
    return refusals(report, 0, 0) + peak(report, case)


def whole(report, case):
    """An instance of the whole GPU."""
    return roomy(report, case) + within(report, report["limit_bytes"])


def two_16(report, case):
    """16 GiB on each of two GPUs."""
    return roomy(report, case) + within(report, 2 * 16 * GIB)


def train(report, case):
    """The program asks for twice the GPU's memory in the end, in four ways."""
    twice = TWICE_THE_H100 if case.machine is H100 else TWICE_THE_H200
    return refusals(report, 4, twice) + peak(report, case)


def narrow(capability, call):
    """Calls were refused for want of a capability, this one among them, and each time this
    capability is told."""

    def check(report, _):
        told = [entry for entry in report["refused_calls"] if entry["reason"] == CAPABILITY]
        wrong = [] if told else ["nothing was refused"]
        for entry in told:
            wrong += equal(
                f"{entry['call']} is allowed by {capability}",
                capability in entry["allowed_by"],
                True,
            )
        names = {entry["call"] for entry in told}
        return wrong + (
            [] if call in names else [f"{call} is not among {', '.join(sorted(names))}"]
        )

    return check


smi_narrow = narrow("utility", "NV2080_CTRL_CMD_GPU_GET_PIDS")
vulkan_narrow = narrow("graphics", "NV01_MEMORY_VIRTUAL")
video_narrow = narrow("video", "NV01_CONTEXT_DMA")
NCCL = ["h200-nccl-a", "h200-nccl-b"]

CASES = (
    Case("driver-api-16GiB", ["cuda-driver-api"], "16GiB", api_16),
    Case("driver-api-1GiB", ["cuda-driver-api"], "1GiB", api_1),
    Case("out-of-memory-8GiB", ["cuda-out-of-memory"], "8GiB", oom_8),
    Case("out-of-memory-whole", ["cuda-out-of-memory"], "", oom_whole),
    Case("smi-idle-8GiB", ["nvidia-smi-idle"], "8GiB", smi_8),
    Case("smi-busy-8GiB", ["nvidia-smi-busy"], "8GiB", smi_8),
    Case("managed-memory-16GiB", ["managed-memory"], "16GiB", managed_16),
    Case("managed-memory-16GiB-charge", ["managed-memory"], "16GiB", managed_16, managed="charge"),
    Case("managed-memory-1GiB", ["managed-memory"], "1GiB", spill_1),
    Case("managed-memory-1GiB-charge", ["managed-memory"], "1GiB", refused_3, managed="charge"),
    Case("managed-memory-16GiB-deny", ["managed-memory"], "16GiB", refused_3, managed="deny"),
    Case("ipc-16GiB", ["ipc-a", "ipc-b"], "16GiB", roomy),
    Case("ipc-1GiB", ["ipc-a", "ipc-b"], "1GiB", ipc_1),
    Case("torch-train-16GiB", ["h200-torch-train"], "16GiB", train),
    Case("vmm-16GiB", ["h200-vmm-a", "h200-vmm-b"], "16GiB", roomy),
    Case(
        "smi-for-compute-alone",
        ["nvidia-smi-busy"],
        "8GiB",
        smi_narrow,
        caps="compute",
        alike=False,
    ),
    Case("smi-for-utility-alone", ["nvidia-smi-busy"], "8GiB", smi_8, caps="utility"),
    Case("driver-api-for-compute-alone", ["cuda-driver-api"], "16GiB", api_16, caps="compute"),
    Case("driver-api-direct", ["cuda-driver-api"], "", roomy, direct=True),
    Case("out-of-memory-direct", ["cuda-out-of-memory"], "", oom_whole, direct=True),
    Case("smi-idle-direct", ["nvidia-smi-idle"], "", roomy, direct=True),
    Case("smi-busy-direct", ["nvidia-smi-busy"], "", roomy, direct=True),
    Case("managed-memory-direct", ["managed-memory"], "", roomy, direct=True),
    Case("ipc-direct", ["ipc-a", "ipc-b"], "", roomy, direct=True),
    Case("torch-train-direct", ["h200-torch-train"], "", train, direct=True),
    Case("vmm-direct", ["h200-vmm-a", "h200-vmm-b"], "", roomy, direct=True),
    Case("h100-jax", ["h100-jax"], "", whole, machine=H100),
    Case("h100-torch-train-16GiB", ["h100-torch-train"], "16GiB", train, machine=H100),
    # By a recorder that did not follow descriptors through sockets, with a clock for each process.
    Case("h100-vmm-a-16GiB", ["h100-vmm-a"], "16GiB", roomy, machine=H100),
    Case("h100-vmm-b-16GiB", ["h100-vmm-b"], "16GiB", roomy, machine=H100),
    Case("h100-smi-q-8GiB", ["h100-nvidia-smi-q"], "8GiB", smi_q, machine=H100),
    Case("h100-jax-direct", ["h100-jax"], "", roomy, direct=True, machine=H100),
    Case("h100-torch-train-direct", ["h100-torch-train"], "", train, direct=True, machine=H100),
    Case("h100-smi-q-direct", ["h100-nvidia-smi-q"], "", roomy, direct=True, machine=H100),
    Case("nccl-16GiB", NCCL, "16GiB", two_16, machine=TWO_H200),
    Case("nccl-direct", NCCL, "", roomy, direct=True, machine=TWO_H200),
    Case(
        "vulkan-16GiB", ["h200-vulkan"], "16GiB", two_16, machine=TWO_H200, caps="compute,graphics"
    ),
    Case("video-16GiB", ["h200-video"], "16GiB", two_16, machine=TWO_H200, caps="compute,video"),
    Case(
        "video-for-the-default",
        ["h200-video"],
        "16GiB",
        video_narrow,
        machine=TWO_H200,
        alike=False,
    ),
    Case(
        "vulkan-for-the-default",
        ["h200-vulkan"],
        "16GiB",
        vulkan_narrow,
        machine=TWO_H200,
        alike=False,
    ),
)


def script(cases):
    """The script that runs in the machine: the cases, one after the other, grouped by kind of
    machine. The guest's own functions check that it is up and down again between them."""
    lines = [". /vm.conf", ". /guest-lib.sh"]
    loaded = H200
    for case in cases:
        if case.machine != loaded:
            gpus, parameters = loaded = case.machine
            lines += ["unload_module", "unload_driver", f"GPUS={gpus}"]
            lines += [f"FAKE_PARAMETERS='{parameters}'", "load_driver", "load_module"]
        words = ["replay", "run"]
        for option, value in (
            ("--mem", case.mem),
            ("--managed", case.managed),
            ("--caps", case.caps),
        ):
            words += [option, value] if value else []
        words += ["--direct"] if case.direct else []
        words += [f"/files/{trace}.jsonl.xz" for trace in case.traces]
        lines.append(
            f"echo {case.name} >&2; echo '@begin {case.name}'; {' '.join(words)}; echo \"@end $?\""
        )
    return "\n".join(lines)


def main():
    options = sys.argv[1:]
    cases = CASES
    if "--only" in options:
        at = options.index("--only")
        cases = [
            case for case in CASES if any(word in case.name for word in options[at + 1].split(","))
        ]
        del options[at : at + 2]
    command = [str(HERE / "run.sh"), "--name", "replays", "--limit", "2400", *options]
    for trace in sorted({path for case in cases for path in case.paths()}):
        command += ["--file", str(trace)]
    command += ["--", "sh", "-c", script(cases)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)

    texts, codes, name = {}, {}, None
    for line in run.stdout.splitlines():
        if line.startswith("@begin "):
            name = line.split(" ", 1)[1]
            texts[name] = ""
        elif line.startswith("@end "):
            codes[name] = line.split(" ", 1)[1]
            name = None
        elif name:
            texts[name] += line + "\n"

    failed = 0
    for case in cases:
        if case.name not in codes:
            wrong = ["did not end"]
        elif codes[case.name] != "0":
            wrong = [f"exit code {codes[case.name]}"]
        else:
            try:
                report = json.loads(texts[case.name])
                wrong = sound(report, case) + case.check(report, case)
            except (ValueError, KeyError, TypeError) as problem:
                wrong = [f"the report is not as it should be: {problem!r}"]
        failed += bool(wrong)
        print(
            f"{'FAILED' if wrong else 'ok'} {case.name}{': ' + '; '.join(wrong) if wrong else ''}"
        )
    # Every recording is in a case.
    unused = {path for path in TRACES.glob("*.jsonl.xz")} - {
        path for case in CASES for path in case.paths()
    }
    wrong = sorted(path.name for path in unused)
    failed += bool(wrong)
    print(
        f"{'FAILED' if wrong else 'ok'} every recording is replayed{': not ' + ', '.join(wrong) if wrong else ''}"
    )
    # The machine itself: that it came down without a fault in the kernel.
    if run.returncode != 0:
        failed += 1
        print(f"FAILED machine: exit code {run.returncode}")
    else:
        print("ok machine")
    print(f"{len(cases) + 2 - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
