#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""node-kubectl.py FOLDER: runs kubectl for programs in the test machine, in the folder with the
chart's objects. The body of a request has one argument a line, an empty line and what kubectl is to
read; the answer has what it said, and last a line with its exit code."""

import http.server
import subprocess
import sys
from pathlib import Path


class Kubectl(http.server.BaseHTTPRequestHandler):
    folder = Path(sys.argv[1])

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        words, text = self.rfile.read(length).split(b"\n\n", 1)
        ran = subprocess.run(
            [self.folder / "bin/kubectl", *words.decode().split("\n")],
            input=text,
            cwd=self.folder / "objects",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(ran.stdout + f"\n{ran.returncode}\n".encode())

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("10.96.0.1", 8001), Kubectl).serve_forever()
