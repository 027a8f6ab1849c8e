"""The commands; errors become messages and exit statuses here."""
