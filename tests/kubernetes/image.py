#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""image.py NAME FILE ENTRY[=PATH]...: writes a container image as an OCI archive, for
`ctr images import`. It has one layer: each PATH as /ENTRY. An ENTRY that ends in / is an empty
folder that everybody may write to. Its containers sleep, unless they are told otherwise.

image.py NAME FILE --recipe RECIPE FOLDER: writes the image that `docker build -f RECIPE FOLDER`
makes. The recipe may begin with nothing, copy files and name the program that is run."""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def entry(name, size=0, **more):
    info = tarfile.TarInfo(name)
    info.size = size
    for key, value in more.items():
        setattr(info, key, value)
    return info


def layer(words):
    """The layer's bytes. They depend on nothing but the files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for word in words:
            if word.endswith("/"):
                tar.addfile(entry(word, type=tarfile.DIRTYPE, mode=0o1777))
                continue
            name, path = word.split("=", 1)
            data = Path(path).read_bytes()
            tar.addfile(entry(name, len(data), mode=0o755), io.BytesIO(data))
    return made.getvalue()


def follow(recipe, folder):
    """The entries of the layer that a recipe makes, and the program that it names."""
    words, program = [], None
    for line in Path(recipe).read_text().splitlines():
        match line.split():
            case [] | ["#", *_] | ["FROM", "scratch"]:
                pass
            case ["COPY", path, entry]:
                words.append(f"{entry.removeprefix('/')}={Path(folder) / path}")
            case ["ENTRYPOINT", *_]:
                program = json.loads(line.split(None, 1)[1])
            case _:
                sys.exit(f"{recipe}: image.py cannot do this: {line}")
    return words, {"Entrypoint": program}


def main():
    name, target, *words = sys.argv[1:]
    run = {"Cmd": ["/busybox", "sleep", "infinity"]}
    if words[0] == "--recipe":
        words, run = follow(*words[1:])
    with tarfile.open(target, "w") as tar:

        def put(path, data):
            tar.addfile(entry(path, len(data), mode=0o644), io.BytesIO(data))

        def blob(kind, data):
            digest = hashlib.sha256(data).hexdigest()
            put(f"blobs/sha256/{digest}", data)
            return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

        def document(kind, content):
            kind = f"application/vnd.oci.image.{kind}+json"
            return blob(kind, json.dumps(content).encode())

        files = blob("application/vnd.oci.image.layer.v1.tar", layer(words))
        config = document(
            "config.v1",
            {
                "architecture": "amd64",
                "os": "linux",
                "config": run,
                "rootfs": {"type": "layers", "diff_ids": [files["digest"]]},
            },
        )
        manifest = document(
            "manifest.v1", {"schemaVersion": 2, "config": config, "layers": [files]}
        )
        manifest["annotations"] = {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1],
        }
        put("index.json", json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode())
        put("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())


if __name__ == "__main__":
    main()
