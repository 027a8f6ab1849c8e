"""Import before torch: makes its threads wait for each other as in `border-train`."""

from border_cli.process.startup import set_up_threads

set_up_threads()
