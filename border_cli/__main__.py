"""Runs `border-train` as `python -m border_cli`."""

from border_cli.cli.train import command

if __name__ == "__main__":
    command()
