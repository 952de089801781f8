# SPDX-License-Identifier: Apache-2.0
"""The wheel and the sdist of quern. pip calls the hooks of PEP 517, in the checkout's folder.

    python3 .ci/backend.py FOLDER [ROOT]   a wheel of what make built in ROOT (build)

Nothing in the package depends on Python's ABI: ctypes opens the libraries. Its tag has the
machine and the newest glibc that any file in it asks for. Same files, same bytes.
"""

import base64
import glob
import hashlib
import io
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

# Part of the libraries, or bundled: the Debian packages that have their licences.
LINKED = {"lua": "liblua5.4-dev", "libmd": "libmd-dev", "cjson": "libcjson-dev"}
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|libgcc_s|ld-linux-[a-z0-9-]+)\.so\.\d+")
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine
METADATA = """\
Metadata-Version: 2.4
Name: quern
Version: {version}
Summary: Grouped GEMM kernels for mixture-of-experts training
License-Expression: Apache-2.0 AND MIT AND BSD-3-Clause AND BSD-2-Clause AND ISC AND Beerware
{licenses}Requires-Python: >=3.10
Requires-Dist: nvidia-cuda-nvrtc>=13,<14
Provides-Extra: cu12
Requires-Dist: nvidia-cuda-nvrtc-cu12>=12.9,<13; extra == "cu12"
Provides-Extra: cu13
Requires-Dist: nvidia-cuda-nvrtc>=13,<14; extra == "cu13"
Provides-Extra: torch
Requires-Dist: torch>=2.10; extra == "torch"
"""


def version():
    with open("runtime/quern.h") as header:
        return re.search(r'QUERN_VERSION "(.*)"', header.read())[1]


def readelf(path, *options):
    return subprocess.run(["readelf", "-W", *options, path], check=True, capture_output=True,
                          text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def needed(root, names):
    """The libraries of `names` in root/lib and all that they need, except the system's."""
    done = set()
    while names:
        name = names.pop()
        done.add(name)
        path = f"{root}/{name}" if "/" in name else f"{root}/lib/{name}"
        if not os.path.exists(path):
            sys.exit(f"quern: the package needs {name}, and it is not in {root}/lib")
        found = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf(path, "-d"))
        names |= {n for n in found if not SYSTEM.fullmatch(n)} - done
    return done


def programs(root):
    """Where each library and program is in the package: {name: file}."""
    abi = version().split(".")[0]  # COUPLED: soname
    names = {f"libquern.so.{abi}", f"libquern_gen.so.{abi}", "libquern_torch.so", "bin/quern"}
    return {f"quern/{n}" if "/" in n else f"quern/lib/{n}":
            f"{root}/{n}" if "/" in n else f"{root}/lib/{n}" for n in needed(root, names)}


def texts():
    """All other files: {name: file}."""
    files = {path.removeprefix("runtime/python/"): path
             for path in glob.glob("runtime/python/quern/**/*.py", recursive=True)}
    files |= {f"quern/share/quern/tune/{os.path.basename(path)}": path
              for path in glob.glob("bench/tune/*.tune")}  # COUPLED: shipped winners
    return files | {"quern/include/quern.h": "runtime/quern.h",
                    "quern/include/quern/registry.h": "runtime/registry.h"}


def licenses():
    files = {"LICENSE": "LICENSE"}
    files |= {f"{name}.txt": f"/usr/share/doc/{package}/copyright"
              for name, package in LINKED.items()}
    for path in files.values():
        if not os.path.exists(path):
            sys.exit(f"quern: {path} is missing; a wheel must have the licence")
    return files


def machine_of(path):
    with open(path, "rb") as file:
        header = file.read(20)
    return MACHINES[int.from_bytes(header[18:20], "little")]


def stripped(path):
    machine = machine_of(path)
    strip = "strip" if machine == platform.machine() else f"{machine}-linux-gnu-strip"
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([strip, "-o", out.name, path], check=True)
        with open(out.name, "rb") as file:
            return file.read()


def platform_tag(paths):
    """manylinux_2_X_MACHINE for the newest symbol version of glibc that any file needs."""
    found = {tuple(map(int, v)) for path in paths
             for v in re.findall(r"GLIBC_(\d+)\.(\d+)", readelf(path, "-V"))}
    return "manylinux_{}_{}_{}".format(*max(found), machine_of(paths[0]))


def write_wheel(folder, root="build"):
    """Returns the file's name."""
    elf = programs(root)
    tag = "py3-none-" + platform_tag(sorted(elf.values()))
    info = f"quern-{version()}.dist-info"
    contents = {name: stripped(path) for name, path in elf.items()}
    named = texts() | {f"{info}/licenses/{name}": path for name, path in licenses().items()}
    for name, path in named.items():
        with open(path, "rb") as file:
            contents[name] = file.read()
    listed = "".join(f"License-File: {name}\n" for name in licenses())
    contents[f"{info}/METADATA"] = METADATA.format(version=version(), licenses=listed).encode()
    contents[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: quern {version()}\n"
                                 f"Root-Is-Purelib: false\nTag: {tag}\n").encode()
    contents[f"{info}/entry_points.txt"] = b"[console_scripts]\nquern = quern.__main__:main\n"
    record = ""
    for name, data in sorted(contents.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    os.makedirs(folder, exist_ok=True)
    wheel = f"quern-{version()}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(folder, wheel), "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in sorted(contents.items(), key=lambda row: (info in row[0], row[0])):
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.external_attr = (0o100755 if name in elf else 0o100644) << 16
            out.writestr(member, data, zipfile.ZIP_DEFLATED, 9)
    return wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: everything is built by make."""
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    subprocess.run(["make", "all"], check=True,
                   env={k: v for k, v in os.environ.items() if k not in outer})
    return write_wheel(wheel_directory)


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517: what git knows, in a checkout only."""
    tracked = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True)
    base = f"quern-{version()}"
    metadata = METADATA.format(version=version(), licenses="License-File: LICENSE\n").encode()
    with tarfile.open(os.path.join(sdist_directory, f"{base}.tar.gz"), "w:gz") as out:
        for path in filter(os.path.exists, tracked.stdout.split("\0")[:-1]):
            out.add(path, f"{base}/{path}")
        member = tarfile.TarInfo(f"{base}/PKG-INFO")
        member.size = len(metadata)
        out.addfile(member, io.BytesIO(metadata))
    return f"{base}.tar.gz"


if __name__ == "__main__":
    print(os.path.join(sys.argv[1], write_wheel(*sys.argv[1:3])))
