#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""replays.py [options of run.sh]: replays every recording of tests/traces through an
instance and directly on the stand-in, in one boot of the test machine, and checks the figures that
they must have. A line for each; ends in "N passed, N failed"."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRACES = HERE.parent / "traces"
GIB = 1 << 30
NO_MEMORY = "0x51"

# Charged at the most by cuda-driver-api, as the recording's successful allocations and frees add up.
DRIVER_API_PEAK = 1_616_904_192


# What torch-train asks for in its end: twice the H200's memory, rounded up to 2 MiB.
TWICE_THE_GPU = 300_219_891_712

# Refused although a program asks for it: partitions of a GPU, whose descriptors a container does not get.
PARTITIONS = {"AMPERE_SMC_CONFIG_SESSION", "AMPERE_SMC_MONITOR_SESSION"}
# cgpu_uapi::refusal: why a call was refused.
CAPABILITY, PASSED_UNSEEN = 1, 5


def equal(what, seen, wanted):
    """A complaint, if there is one."""
    return [] if seen == wanted else [f"{what} is {seen}, not {wanted}"]


def sound(report):
    """What holds for every replay."""
    wrong = equal("kernel_warnings", report["kernel_warnings"], 0)
    wrong += equal("final_bytes", report["final_bytes"], 0)
    for mismatch in report["mismatches"][:3]:
        wrong.append(f"mismatch: {json.dumps(mismatch)}")
    if len(report["mismatches"]) > 3:
        wrong.append(f"and {len(report['mismatches']) - 3} more mismatches")
    for call in report["refused_calls"]:
        if call["reason"] != PASSED_UNSEEN and call["call"] not in PARTITIONS:
            wrong.append(f"refused: {json.dumps(call)}")
    answered = report["modelled"] + report["from_recording"] + len(report["refused"]) + report["skipped"]
    if report["calls"] == 0 or answered == 0:
        wrong.append("no call was made")
    return wrong


def refusals(report, count, size):
    """So many allocations of that size were refused, for want of memory, and no other."""
    wrong = equal("refused allocations", len(report["refused"]), count)
    odd = [r for r in report["refused"] if r["bytes"] != size or r["status"] != NO_MEMORY]
    if odd:
        wrong.append(f"refused otherwise: {json.dumps(odd[0])}")
    return wrong


def within(report, limit):
    """The limit is the one asked for, and was kept: by the books, and on the GPU itself."""
    wrong = equal("limit_bytes", report["limit_bytes"], limit)
    if report["peak_bytes"] + report["overhead_bytes"] > limit:
        wrong.append(f"charged {report['peak_bytes']} + {report['overhead_bytes']}, more than the limit {limit}")
    if report["on_gpu_bytes"] > limit:
        wrong.append(f"{report['on_gpu_bytes']} on the GPU, more than the limit {limit}")
    return wrong


def managed(report, managed_bytes, spilled_bytes, refused):
    """So much of the recording's three ranges of 1 GiB, one after the other, was where."""
    wrong = within(report, report["limit_bytes"])
    wrong += equal("managed_bytes", report["managed_bytes"], managed_bytes)
    wrong += equal("spilled_bytes", report["spilled_bytes"], spilled_bytes)
    odd = [r for r in report["refused"] if (r["class"], r["bytes"], r["status"]) != ("managed", GIB, "ENOMEM")]
    if odd:
        wrong.append(f"refused otherwise: {json.dumps(odd[0])}")
    return wrong + equal("refused mappings", len(report["refused"]), refused)


def managed_16(report):
    return managed(report, GIB, 0, 0)


def spill_1(report):
    """What fits beside the context's objects is on the GPU, in whole blocks of 2 MiB."""
    room = (GIB - report["peak_bytes"] - report["overhead_bytes"]) // (2 << 20) * (2 << 20)
    return managed(report, room, GIB - room, 0)


def refused_3(report):
    return managed(report, 0, 0, 3)


def told_limit(report, limit):
    """nvidia-smi saw the limit as the GPU's memory."""
    return equal("told total_bytes", report.get("told", {}).get("total_bytes"), limit)


def api_16(report):
    return refusals(report, 0, 0) + equal("peak_bytes", report["peak_bytes"], DRIVER_API_PEAK) + within(report, 16 * GIB)


def api_1(report):
    return refusals(report, 1, GIB) + within(report, GIB)


def oom_8(report):
    return refusals(report, 134, GIB) + within(report, 8 * GIB)


def smi_8(report):
    return told_limit(report, 8 * GIB) + refusals(report, 0, 0)


def roomy(report):
    return refusals(report, 0, 0)


def train_16(report):
    """The program asks for twice the GPU's memory in the end, in four ways."""
    return refusals(report, 4, TWICE_THE_GPU)


def narrow(report):
    """What nvidia-smi was refused for want of a capability, and that this is told."""
    told = [call for call in report["refused_calls"] if call["reason"] == CAPABILITY]
    wrong = [] if told else ["nothing was refused"]
    for call in told:
        wrong += equal(f"{call['call']} is allowed by", "utility" in call["allowed_by"], True)
    names = [call["call"] for call in told]
    return wrong + equal("GPU_GET_PIDS is refused", "NV2080_CTRL_CMD_GPU_GET_PIDS" in names, True)


# Name, recordings, limit ("" for none) and other options, directly on the stand-in, what must hold beside `sound`.
CASES = (
    ("driver-api-16GiB", ["cuda-driver-api"], "16GiB", False, api_16),
    ("driver-api-1GiB", ["cuda-driver-api"], "1GiB", False, api_1),
    ("out-of-memory-8GiB", ["cuda-out-of-memory"], "8GiB", False, oom_8),
    ("smi-idle-8GiB", ["nvidia-smi-idle"], "8GiB", False, smi_8),
    ("smi-busy-8GiB", ["nvidia-smi-busy"], "8GiB", False, smi_8),
    ("managed-memory-16GiB", ["managed-memory"], "16GiB", False, managed_16),
    ("managed-memory-1GiB", ["managed-memory"], "1GiB", False, spill_1),
    ("managed-memory-1GiB-charge", ["managed-memory"], "1GiB --managed charge", False, refused_3),
    ("managed-memory-16GiB-deny", ["managed-memory"], "16GiB --managed deny", False, refused_3),
    ("ipc-16GiB", ["ipc-a", "ipc-b"], "16GiB", False, roomy),
    ("torch-train-16GiB", ["h200-torch-train"], "16GiB", False, train_16),
    ("vmm-16GiB", ["h200-vmm-a", "h200-vmm-b"], "16GiB", False, roomy),
    ("smi-for-compute-alone", ["nvidia-smi-busy"], "8GiB", False, narrow),
    ("smi-for-utility-alone", ["nvidia-smi-busy"], "8GiB", False, smi_8),
    ("driver-api-for-compute-alone", ["cuda-driver-api"], "16GiB", False, api_16),
    ("driver-api-direct", ["cuda-driver-api"], "", True, roomy),
    ("out-of-memory-direct", ["cuda-out-of-memory"], "", True, None),
    ("smi-idle-direct", ["nvidia-smi-idle"], "", True, roomy),
    ("smi-busy-direct", ["nvidia-smi-busy"], "", True, roomy),
    ("managed-memory-direct", ["managed-memory"], "", True, roomy),
    ("ipc-direct", ["ipc-a", "ipc-b"], "", True, roomy),
    ("torch-train-direct", ["h200-torch-train"], "", True, train_16),
    ("vmm-direct", ["h200-vmm-a", "h200-vmm-b"], "", True, roomy),
)


def main():
    options = sys.argv[1:]
    script = []
    for name, traces, mem, direct, _ in CASES:
        caps = ["--caps", name.split("-for-")[1].removesuffix("-alone")] if "-for-" in name else []
        words = ["replay", "run", *caps] + (["--direct"] if direct else []) + (["--mem", mem] if mem else [])
        words += [f"/files/{t}.jsonl.xz" for t in traces]
        script.append(f"echo {name} >&2; echo '@begin {name}'; {' '.join(words)}; echo \"@end $?\"")
    command = [str(HERE / "run.sh"), "--name", "replays", "--limit", "420", *options]
    for trace in sorted(TRACES.glob("*.jsonl.xz")):
        command += ["--file", str(trace)]
    command += ["--", "sh", "-c", "; ".join(script)]
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
    for name, _, _, _, check in CASES:
        if name not in codes:
            wrong = ["did not end"]
        elif codes[name] != "0":
            wrong = [f"exit code {codes[name]}"]
        else:
            try:
                report = json.loads(texts[name])
                # What a program does that was refused a call is not in its recording.
                wrong = ([] if check is narrow else sound(report)) + (check(report) if check else [])
            except (ValueError, KeyError, TypeError) as problem:
                wrong = [f"the report is not as it should be: {problem!r}"]
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok'} {name}{': ' + '; '.join(wrong) if wrong else ''}")
    # The machine itself: that it came down without a fault in the kernel.
    if run.returncode != 0:
        failed += 1
        print(f"FAILED machine: exit code {run.returncode}")
    else:
        print("ok machine")
    print(f"{len(CASES) + 1 - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
