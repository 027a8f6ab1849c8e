"""Values, interfaces, timing and seeding that all packages share."""
