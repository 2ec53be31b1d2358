"""Say what would stop the installation, before anything is downloaded:  python .ci/ready.py

It runs on every Python from 3.6 on, so it uses nothing that those lack, and no package.
"""

import os
import platform
import shutil
import subprocess
import sys

OLDEST, NEWEST = (3, 11), (3, 13)
# Of what the lock names, these have wheels for glibc and macOS only.
WITHOUT_MUSL_WHEELS = ("duckdb",)
# Processors for which every locked package has a wheel: elsewhere a compiler is needed.
WITH_WHEELS = ("x86_64", "amd64", "aarch64", "arm64")
COMPILERS = ("cc", "gcc", "clang")
# Of what the lock names, these have wheels for Linux only.
WITHOUT_MACOS_WHEELS = ("safe-pysha3",)


def problems(root, version, system, libc, machine, has_compiler):
    """Return a sentence for each thing that stops an installation in the checkout `root`; none if nothing does.

    `version` is (major, minor) of the interpreter, `system` the operating system's name, `libc` the name of its C
    library, `machine` its processor.
    """
    sentences = []
    shown = ".".join(map(str, version[:2]))
    if not OLDEST <= tuple(version[:2]) <= NEWEST:
        sentences.append(
            "Python 3.11, 3.12 or 3.13 is needed, and this one is " + shown + "."
            " Choose another: make PYTHON=python3.12 …"
        )
    if libc == "musl":
        sentences.append(
            "This system has the C library musl, for which there are no wheels of "
            + " and ".join(WITHOUT_MUSL_WHEELS)
            + ". Use a system with glibc, for example an image of Debian or Ubuntu."
        )
    elif system == "Darwin" and not has_compiler:
        sentences.append(
            "A compiler is needed, because there are no wheels for macOS of "
            + " and ".join(WITHOUT_MACOS_WHEELS)
            + ". Install the command line tools: xcode-select --install"
        )
    elif machine.lower() not in WITH_WHEELS and not has_compiler:
        sentences.append(
            "There are no wheels for the processor " + machine + ", and no compiler to build them is installed."
            " On Debian and Ubuntu: apt-get install build-essential python3-dev"
        )
    if not os.path.exists(os.path.join(root, "chainfolio", "storage", "__init__.py")):
        sentences.append(
            "chainfolio/ must hold links to the folders beside it, and this file system or copy has none."
            " Clone with: git clone -c core.symlinks=true …"
        )
    return sentences


def c_library():
    """Return `musl` if the interpreter is linked to it, else the name that it gives (empty if it has none)."""
    try:
        import sysconfig

        if "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or ""):
            return "musl"
    except ImportError:
        pass
    return platform.libc_ver()[0]


def find_compiler(system):
    """Return True if there is a compiler; on macOS a program of that name stands there without one, too."""
    if system == "Darwin":
        return subprocess.call(["xcode-select", "-p"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    return any(shutil.which(name) for name in COMPILERS)


def main():
    """Print the problems of this machine; return 1 if there are any."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    system = platform.system()
    sentences = problems(root, sys.version_info, system, c_library(), platform.machine(), find_compiler(system))
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
