"""`python -m border_cli` is `border-train`."""

from border_cli.cli.train import command

if __name__ == "__main__":
    command()
