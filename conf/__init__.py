"""The configuration groups that ship with border_cli, as package `border_cli.conf`."""
