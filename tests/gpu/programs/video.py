# SPDX-License-Identifier: GPL-2.0
"""Decodes a video on the GPU's decoder, by PyNvVideoCodec. Prints as JSON how many frames there
were, and a sum of their bytes.

    video.py FILE
"""

import json
import sys
import zlib

import numpy
import PyNvVideoCodec


def main():
    """Runs."""
    decoder = PyNvVideoCodec.SimpleDecoder(sys.argv[1], use_device_memory=False)
    frames, total = 0, 0
    for number in range(len(decoder)):
        total = zlib.crc32(numpy.from_dlpack(decoder[number]).tobytes(), total)
        frames += 1
    print(json.dumps({"frames": frames, "sum": f"{total:#010x}"}))


main()
