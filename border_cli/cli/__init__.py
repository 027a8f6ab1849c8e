"""The commands. Errors become messages and exit statuses here."""
