"""Descriptors of files that may be renamed and removed while they are open.

Windows refuses that unless whoever opened the file has allowed it, which `os.open` can't. A file
that is removed then keeps its content for those who have it open, as everywhere else; its name is
gone at once since Windows 10 1809 (on NTFS), and before that when the last of them closes it.
"""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import _winapi  # as asyncio and multiprocessing do, for want of a public module
    import msvcrt

    SHARE_ALL = 1 | 2 | 4
    """FILE_SHARE_READ, FILE_SHARE_WRITE and FILE_SHARE_DELETE."""
    OPEN_ALWAYS = 4
    """Make the file if there is none."""
    FILE_ATTRIBUTE_NORMAL = 0x80

    def open_descriptor(path: str, flags: int, mode: int = 0o644) -> int:
        """`os.open` of a file whose bytes are not translated. Raises OSError."""
        write = _winapi.GENERIC_WRITE if flags & (os.O_RDWR | os.O_WRONLY) else 0
        handle = _winapi.CreateFile(
            path,
            _winapi.GENERIC_READ | write,
            SHARE_ALL,
            _winapi.NULL,
            OPEN_ALWAYS if flags & os.O_CREAT else _winapi.OPEN_EXISTING,
            FILE_ATTRIBUTE_NORMAL,
            _winapi.NULL,
        )
        try:
            return msvcrt.open_osfhandle(handle, flags | os.O_BINARY | os.O_NOINHERIT)
        except OSError:
            _winapi.CloseHandle(handle)
            raise

else:
    open_descriptor = os.open
