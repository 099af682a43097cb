"""The operating system's files: `DiskFile` and `DiskFilesystem` are what this system is best at."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from config.platforms import PORTABLE

if sys.platform == "linux" and (TYPE_CHECKING or not PORTABLE):
    from storage.linux_files import LinuxFile as DiskFile
    from storage.linux_files import LinuxFilesystem as DiskFilesystem
else:
    from storage.portable_files import PortableFile as DiskFile
    from storage.portable_files import PortableFilesystem as DiskFilesystem

__all__ = ["DiskFile", "DiskFilesystem"]
