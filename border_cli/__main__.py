"""`python -m border_cli` is `border-train`."""

from border_cli.cli.train import main

if __name__ == "__main__":
    main()
