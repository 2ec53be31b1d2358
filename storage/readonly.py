"""Make this process unable to write files, for its whole life: the kernel refuses it.

Linux: Landlock (5.13 and newer) and a seccomp filter; each is sufficient alone. macOS: its sandbox. They need no
privileges, also bind root, and cannot be revoked. Threads that already run are not bound.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EROFS
from pathlib import Path

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF, LANDLOCK_CREATE_RULESET_VERSION = 444, 446, 1
# Rights of Landlock's first version to write a file, to remove and to make anything (bits 1 and 4 to 12); the second
# version adds linking and renaming elsewhere (13), the third truncating (14).
LANDLOCK_WRITES = {1: 0x1FF2, 2: 0x3FF2, 3: 0x7FF2}

# Numbers of the system calls that change a file system, reach the network or start programs: x86-64, 64-bit ARM.
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
REFUSED = {
    "creat": (85, None),
    "truncate": (76, 45),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rmdir": (84, None),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "openat2": (437, 437),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "socket": (41, 198),
    "execve": (59, 221),
    "execveat": (322, 281),
}
# Opening is refused by its flags: number of the system call, and the index of the argument with the flags.
OPENED = {"open": ((2, None), 1), "openat": ((257, 56), 2)}
O_TMPFILE = 0o20000000
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | O_TMPFILE

Probe = Callable[[Path], object]
PROBES: dict[str, Probe] = {
    "write": lambda path: path.open("r+b").close(),
    "append": lambda path: path.open("ab").close(),
    "create": lambda path: path.with_name("new").open("xb").close(),
    "truncate on opening": lambda path: os.close(os.open(path, os.O_RDONLY | os.O_TRUNC)),
    "truncate": lambda path: os.truncate(path, 0),
    "link": lambda path: path.with_name("link").hardlink_to(path),
    "make a folder": lambda path: path.with_name("folder").mkdir(),
    "rename": lambda path: path.rename(path.with_name("other")),
    "remove": lambda path: path.unlink(),
}


def give_up_writing() -> None:
    """Ask the operating system to refuse file changes by this process for good. Failures raise nothing.

    `still_possible` checks the result.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        profile = b"(version 1)(allow default)(deny file-write*)(deny network*)(deny process-exec*)"
        libc.sandbox_init(profile, ctypes.c_uint64(0), ctypes.byref(ctypes.c_char_p()))
    elif libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        _landlock(libc)
        _seccomp(libc)


def still_possible(probe: Path) -> list[str]:
    """Return the ways in which this process can still change files, tried on the existing file `probe`."""
    possible = []
    for name, attempt in PROBES.items():
        with suppress(OSError):
            attempt(probe)
            possible.append(name)
    return possible


def _landlock(libc: ctypes.CDLL) -> None:
    """Deny all write rights of Landlock in all folders. Does nothing if the kernel lacks Landlock."""
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_CREATE_RULESET_VERSION)
    if version < 1:
        return
    handled = ctypes.create_string_buffer(struct.pack("=Q", LANDLOCK_WRITES[min(version, 3)]), 8)
    ruleset = libc.syscall(LANDLOCK_CREATE_RULESET, handled, ctypes.c_size_t(8), 0)
    if ruleset >= 0:
        libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0)
        os.close(ruleset)


def _seccomp(libc: ctypes.CDLL) -> None:
    """Make system calls that change files fail as on a read-only file system.

    Does nothing, without an error, where the kernel or the processor has no such filter.
    """
    if platform.machine() not in MACHINES or sys.maxsize < 2**32:
        return
    program = b"".join(_seccomp_program(*MACHINES[platform.machine()]))
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(head, len(head)), 0, 0)


def _seccomp_program(architecture: int, column: int) -> Iterator[bytes]:
    """Yield the parts of a seccomp program that refuses calls which change files, with EROFS.

    Each step has a code, two jumps and a value.

    Args:
        architecture: The kernel's number of it; programs of others are refused.
        column: Its place in the tables of call numbers.
    """
    load, is_equal, is_least, has_any, give = 0x20, 0x15, 0x35, 0x45, 0x06

    def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    refuse, allow = step(give, 0x0005_0000 | EROFS), step(give, 0x7FFF_0000)
    yield step(load, 4) + step(is_equal, architecture, 1) + refuse
    yield step(load, 0) + step(is_least, 0x4000_0000, 0, 1) + refuse  # x86-64's second numbering
    for numbers in REFUSED.values():
        if (number := numbers[column]) is not None:
            yield step(is_equal, number, 0, 1) + refuse
    for numbers, argument in OPENED.values():
        if (number := numbers[column]) is not None:
            yield step(is_equal, number, 0, 4) + step(load, 16 + 8 * argument)
            yield step(has_any, WRITING, 0, 1) + refuse + allow
    yield allow
