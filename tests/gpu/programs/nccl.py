# SPDX-License-Identifier: GPL-2.0
"""Two processes with a GPU each add up their tensors through NCCL. Prints what each sees as JSON.

nccl.py
"""

import os
import subprocess
import sys

import cuda

RANKS = 2


def rank(number):
    """One of the processes."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(number)
    dist.init_process_group("nccl", rank=number, world_size=RANKS)
    data = torch.full((1 << 20,), float(number + 1), device="cuda")
    for _ in range(3):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    totals = [torch.cuda.get_device_properties(gpu).total_memory for gpu in range(RANKS)]
    cuda.say(rank=number, sum=data[0].item(), totals=totals)
    dist.destroy_process_group()


def main():
    """Starts them."""
    setting = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29507"}
    # NVLink's multicast can take a host's GPUs from all its users, where they share them.
    setting["NCCL_NVLS_ENABLE"] = "0"
    ranks = [
        subprocess.Popen([sys.executable, os.path.abspath(__file__), str(n)], env=setting)
        for n in range(RANKS)
    ]
    sys.exit(max(process.wait() for process in ranks))


if len(sys.argv) > 1:
    rank(int(sys.argv[1]))
else:
    main()
