"""The vocabulary that every part shares: values, interfaces, errors, time and chance."""
