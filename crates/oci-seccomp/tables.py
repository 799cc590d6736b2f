#!/usr/bin/env python3
"""Writes tables.rs from the kernel's user-space headers.

usage: tables.py UAPI... >tables.rs

Each UAPI is a directory with one folder per kernel architecture, as Debian's linux-libc-dev
(6.12 and later) installs at /usr/lib/linux/uapi. The first directory wins; later, older ones add
what newer kernels dropped (s390's 31-bit calls). Last made from 7.2.13-1 and 6.12.107-1.
"""

import os
import re
import subprocess
import sys

# Rust name, folder, headers, base that the numbers are counted from.
ARCHES = [
    ("X86_64", "x86", ["unistd_64.h"]),
    ("X86", "x86", ["unistd_32.h"]),
    ("X32", "x86", ["unistd_x32.h"]),
    ("AARCH64", "arm64", ["unistd_64.h"]),
    ("ARM", "arm", ["unistd-eabi.h", "unistd.h"]),
    ("RISCV64", "riscv", ["unistd_64.h"]),
    ("LOONGARCH64", "loongarch", ["unistd_64.h"]),
    ("PPC64", "powerpc", ["unistd_64.h"]),
    ("PPC", "powerpc", ["unistd_32.h"]),
    ("S390X", "s390", ["unistd_64.h"]),
    ("S390", "s390", ["unistd_32.h"]),
    ("MIPS", "mips", ["unistd_o32.h"]),
    ("MIPS64", "mips", ["unistd_n64.h"]),
    ("MIPS64N32", "mips", ["unistd_n32.h"]),
    ("PARISC", "parisc", ["unistd_32.h"]),
    ("PARISC64", "parisc", ["unistd_64.h"]),
    ("M68K", "m68k", ["unistd_32.h"]),
    ("SH", "sh", ["unistd_32.h"]),
]
NOT_CALLS = re.compile(
    r"^(syscalls|arch_specific_syscall|SYSCALL_BASE|SYSCALL_MASK|OABI_SYSCALL_BASE"
    r"|Linux.*|O32_.*|64_.*|N32_.*|reserved\d+|unused\d+)$"
)
# Calls that old 32-bit kernels pass through socketcall(2) and ipc(2), with their selector
# (linux/net.h, linux/ipc.h).
SOCKETCALLS = """socket bind connect listen accept getsockname getpeername socketpair send recv
    sendto recvfrom shutdown setsockopt getsockopt sendmsg recvmsg accept4 recvmmsg sendmmsg""".split()
IPC = dict(semop=1, semget=2, semctl=3, semtimedop=4, msgsnd=11, msgrcv=12, msgget=13, msgctl=14,
           shmat=21, shmdt=22, shmget=23, shmctl=24)
ARM_PRIVATE = 0xF000
NONE = 0xFFFF


def calls(folder, headers):
    """The calls that one version of the headers defines: name to number."""
    found, aliases = {}, {}
    for header in headers:
        path = os.path.join(folder, "asm", header)
        if not os.path.exists(path):
            continue
        for line in open(path):
            m = re.match(r"#define\s+__(ARM_)?NR_(\w+)\s+(.+)", line)
            if not m or NOT_CALLS.match(m[2]) or (m[1] and m[2] == "BASE"):
                continue
            if alias := re.match(r"__NR_(\w+)", m[3]):
                aliases[m[2]] = alias[1]
                continue
            number = re.match(r"\(?(?:\w+\s*\+\s*)?(\d+)\)?\s*$", m[3])
            if not number:
                sys.exit(f"{path}: {line}")
            found[m[2]] = int(number[1]) + (ARM_PRIVATE if m[1] else 0)
    return found | {name: found[other] for name, other in aliases.items() if other in found}


def main(roots):
    tables = {}
    for arch, folder, headers in ARCHES:
        tables[arch] = {}
        for root in reversed(roots):
            tables[arch].update(calls(os.path.join(root, folder), headers))
        if not tables[arch]:
            sys.exit(f"no calls for {arch}")
    # All architectures give calls since Linux 5.1 one number, which the headers of a dropped one lack.
    since_5_1 = {name: number for name, number in tables["S390X"].items() if number >= 424}
    tables["S390"] = since_5_1 | tables["S390"]
    names = sorted(set().union(*tables.values(), SOCKETCALLS, IPC))

    out = ["//! Which number a call has on which architecture. Made by tables.py: do not edit.", ""]
    out.append("/// How many names there are.")
    out.append(f"pub(super) const COUNT: usize = {len(names)};")
    out.append("/// No such call on this architecture.")
    out.append(f"pub(super) const NONE: u16 = {NONE:#x};")
    out.append("/// Numbers from here on are ARM's private calls, 0xf0000 and up.")
    out.append(f"pub(super) const ARM_PRIVATE: u16 = {ARM_PRIVATE:#x};")
    out.append("")
    out.append("/// Every call's name, in order, each ended by a space.")
    out.append('pub(super) const NAMES: &str = "\\')
    line = ""
    for name in names:
        if len(line) + len(name) > 98:
            out.append(line + "\\")
            line = ""
        line += name + " "
    out.append(line + '";')
    out.append("")
    codes = [SOCKETCALLS.index(n) + 1 if n in SOCKETCALLS else IPC[n] + 100 if n in IPC else 0 for n in names]
    out.append("/// By name: 0, or its socketcall(2) selector, or 100 more than its ipc(2) selector.")
    out.append(f"pub(super) static MULTIPLEXED: [u8; COUNT] = {codes};")
    for arch, table in tables.items():
        numbers = [table.get(n, NONE) for n in names]
        out.append("")
        out.append(f"/// By name: its number on {arch}, counted from the architecture's base.")
        out.append(f"pub(super) static {arch}: [u16; COUNT] = {numbers};".replace(str(NONE), "NONE"))
    source = "\n".join(out) + "\n"
    sys.stdout.write(subprocess.run(["rustfmt", "--edition", "2024"], input=source, text=True, cwd=os.path.dirname(os.path.abspath(__file__)),
                                    capture_output=True, check=True).stdout)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
