# SPDX-License-Identifier: Apache-2.0
"""Files of `quern pack`: docs/checkpoints.md. quern.torch and quern.jax have the modules.

The program does all of the work, so that files that others wrote are parsed by one reader, in a
process of its own.
"""

import json
import math
import mmap
import os
import struct
import subprocess

import quern
from quern import _checks

BYTES = {"U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F16": 2,
         "BF16": 2, "F32": 4, "F64": 8, "BOOL": 1}  # of an element, by the names in safetensors
_VERSION = 1  # COUPLED: packed version
_LONGEST = 100000000  # bytes of a header
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # files may be larger than memory


class File:
    """A packed file's tensors, which stay in the file until they are read.

        layers  {name: what the header says of it}
        memory  the mapped file; who writes to it gets pages of his own
    """

    def __init__(self, path):
        self.path = _checks.path("path", path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else _LONGEST + 1
            if length > min(_LONGEST, size - 8):
                raise ValueError(f"{self.path} is no safetensors file, or truncated")
            try:
                self.tensors = json.loads(file.read(length))
                about = json.loads(self.tensors.pop("__metadata__")["quern"])
                self.layers = {layer["name"]: layer for layer in about["layers"]}
                end = max(t["data_offsets"][1] for t in self.tensors.values())
            except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
                raise ValueError(f"{self.path} was not written by quern pack") from None
            if about.get("version") != _VERSION:
                raise ValueError(f"{self.path} was not written by this version of quern pack")
            if 8 + length + end != size:
                raise ValueError(f"{self.path} is truncated")
            self.first, self.bytes = 8 + length, size
            self.memory = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE | _NORESERVE,
                                    mmap.PROT_READ | mmap.PROT_WRITE)

    def find(self, name):
        """Type, shape and the first byte in `memory`; None if the file has no such tensor."""
        if name not in self.tensors:
            return None
        try:
            t = self.tensors[name]
            kind, shape, (begin, end) = t["dtype"], t["shape"], t["data_offsets"]
            if min((begin, *shape)) < 0 or end - begin != math.prod(shape) * BYTES[kind] or \
                    self.first + end > self.bytes:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self.path}: tensor {name!r} is not inside the file") from None
        return kind, shape, self.first + begin

    def options(self, layer):
        """Further arguments of a layer that its entry in the header has."""
        # COUPLED: packed layers
        return {key: layer[key] for key in ("interleave", "limit", "slope", "shift")
                if key in layer}


def _run(*arguments):
    """The program; its error as ours."""
    specs = [word for folder in quern.specs for word in ("--specs", folder)]
    done = subprocess.run([quern.find("../bin/quern"), "pack", "--json", *arguments, *specs],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        try:
            message = json.loads(done.stderr.splitlines()[-1])["error"]
        except (ValueError, KeyError, IndexError):
            message = done.stderr.strip() or f"quern pack ended with {done.returncode}"
        raise ValueError(message)
    return json.loads(done.stdout)


def pack_files(source, to, **options):
    """quern pack of a folder, or of one or more files; options as the program has them."""
    is_one = isinstance(source, (str, os.PathLike)) or not hasattr(source, "__iter__")
    files = [source] if is_one else list(source)
    words = [word for key, value in options.items() if value is not None
             for word in (f"--{key.replace('_', '-')}", _checks.path(key, value, "text"))]
    return _run(*[_checks.path("source", file) for file in files], "--to", _checks.path("to", to),
                *words)


def unpack(path, folder):
    """Write the files again from which quern pack made one, byte for byte, into a folder."""
    _run("--undo", _checks.path("path", path), "--to", _checks.path("folder", folder))
