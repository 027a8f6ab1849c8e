"""The commands. `command_frame` turns errors into messages and exit statuses."""

import sys

from border_cli import NO_WINDOWS

if sys.platform == "win32":  # before modules that need fcntl or signals of POSIX
    sys.exit(NO_WINDOWS)
