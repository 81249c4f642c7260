"""Become another program that dies with the process that started it (run as a script, not imported).

A launcher instead of ``subprocess``'s ``preexec_fn``: that runs Python code between fork and exec of a
process that may have threads. The launcher also drops privileges itself, because the user it changes to may
have no access to this very interpreter (a virtual environment below a 0700 folder).

Usage: child.py PARENT_PID DEATH_SIGNAL UID GID FOLDER -- PROGRAM [ARGUMENT ...]    (UID and GID: "-" = stay)
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
#: The folder under another user is this open file: its path may be closed to that user.
HERE = 20


def main(parent: str, death_signal: str, uid: str, gid: str, folder: str, _: str, *command: str) -> None:
    """Change folder and user, bind the life to the parent's, exec the program."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # Python (or a shell's &) set these to be ignored; exec would keep that
    os.umask(0o077)
    os.chdir(folder)  # before the user changes: the parents of the folder may be closed to the new one
    if uid != "-":
        os.dup2(os.open(".", os.O_RDONLY), HERE)
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    if sys.platform == "linux":
        # After the change of user, which clears it; kept across exec. Elsewhere there is no such thing.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(death_signal))
        if os.getppid() != int(parent):  # the parent died before we could ask
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
