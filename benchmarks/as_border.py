"""Imported before torch: its threads wait for each other as they do in `border-train`."""

from border_cli.cli.thread_settings import set_up_threads

set_up_threads()
