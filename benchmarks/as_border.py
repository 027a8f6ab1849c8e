"""Import this before torch: idle torch threads then wait as in `border-train`."""

from border_cli.process.startup import set_up_threads

set_up_threads()
