# SPDX-License-Identifier: Apache-2.0
"""Runs a command as on a kernel that lacks Landlock or filters of system calls, for tests of what a sandbox does then.

    old_kernel.py LAYER,... COMMAND [ARGUMENT ...]      LAYER: landlock, seccomp

A filter of system calls answers for the kernel, for the command and all that it starts. It takes CAP_SYS_ADMIN.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
ALLOW, ERRNO = 0x7fff0000, 0x00050000
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
SECCOMP, PRCTL = {'x86_64': (317, 157), 'aarch64': (277, 167)}[platform.machine()]
NUMBER, FIRST_ARGUMENT = 0, 16      # offsets in struct seccomp_data
LOAD, JUMP_IF, RETURN = 0x20, 0x15, 0x06


def instruction(code, value, if_true=0, if_false=0):
    return struct.pack('=HBBI', code, if_true, if_false, value)


def answer(number, code):
    """Let that system call fail with code."""
    return instruction(JUMP_IF, number, 0, 1) + instruction(RETURN, ERRNO | code)


def filter_of(layers):
    out = instruction(LOAD, NUMBER)
    if 'landlock' in layers:
        for number in (CREATE_RULESET, ADD_RULE, RESTRICT_SELF):
            out += answer(number, errno.ENOSYS)
    if 'seccomp' in layers:
        out += answer(SECCOMP, errno.EINVAL)
        # prctl() does much else: the last, since the accumulator is lost.
        out += instruction(JUMP_IF, PRCTL, 0, 3) + instruction(LOAD, FIRST_ARGUMENT)
        out += instruction(JUMP_IF, PR_SET_SECCOMP, 0, 1) + instruction(RETURN, ERRNO | errno.EINVAL)
    return out + instruction(RETURN, ALLOW)


def main(layers, command):
    code = filter_of(layers.split(','))
    kept = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [('n', ctypes.c_ushort), ('instructions', ctypes.c_void_p)]

    program = Program(len(code) // 8, ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) < 0:
        sys.exit(f'no filter: {os.strerror(ctypes.get_errno())}')
    os.execvp(command[0], command)


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2:])
