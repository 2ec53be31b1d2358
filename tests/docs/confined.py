"""Run a program as systemd runs a service of a unit: with its system calls alone, writing in its folders alone.

    python confined.py FOLDER[:FOLDER…] FILTER[,FILTER…] PROGRAM…

The filters are lines of `SystemCallFilter`, whose sets systemd itself spells out. It needs Linux with Landlock, and
libseccomp, which comes with systemd. Of the rest of a unit nothing is done here.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from errno import EPERM

from chainfolio.storage.readonly import (
    LANDLOCK_CREATE_RULESET,
    LANDLOCK_RESTRICT_SELF,
    LANDLOCK_WRITES,
    PR_SET_NO_NEW_PRIVS,
)

LANDLOCK_ADD_RULE, LANDLOCK_RULE_PATH_BENEATH, LANDLOCK_VERSION = 445, 1, 3
SECCOMP_ERRNO, SECCOMP_ALLOW = 0x0005_0000 | EPERM, 0x7FFF_0000


def main(folders: str, filters: str, *program: str) -> None:
    """Confine this process, and become the program."""
    allowed = set(system_calls(["@default"]))
    for line in filters.split(","):
        names = set(system_calls(line.removeprefix("~").split()))
        allowed = allowed - names if line.startswith("~") else allowed | names
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    _write_only_in(libc, folders.split(":"))
    _call_only(allowed)
    os.execvp(program[0], program)


def system_calls(names: Iterable[str]) -> Iterator[str]:
    """Return the system calls of some sets, which contain sets; a name that is no set stands for itself."""
    for name in names:
        if not name.startswith("@"):
            yield name
            continue
        process = subprocess.run(
            ["systemd-analyze", "--no-pager", "syscall-filter", name], capture_output=True, text=True, check=True
        )
        lines = (line.strip() for line in process.stdout.splitlines()[1:])
        yield from system_calls([line for line in lines if line and not line.startswith("#")])


def _write_only_in(libc: ctypes.CDLL, folders: Iterable[str]) -> None:
    rights = LANDLOCK_WRITES[LANDLOCK_VERSION]
    handled = ctypes.create_string_buffer(struct.pack("=Q", rights), 8)
    ruleset = libc.syscall(LANDLOCK_CREATE_RULESET, handled, ctypes.c_size_t(8), 0)
    assert ruleset >= 0, "the kernel has no Landlock"
    for folder in (*folders, "/dev"):
        rule = struct.pack("=Qi", rights, os.open(folder, os.O_PATH))
        assert libc.syscall(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0) == 0
    assert libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0


def _call_only(allowed: Iterable[str]) -> None:
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(SECCOMP_ERRNO))
    for name in allowed:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # the others are of other machines
            assert seccomp.seccomp_rule_add(rules, SECCOMP_ALLOW, number, 0) == 0, name
    assert seccomp.seccomp_load(rules) == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
