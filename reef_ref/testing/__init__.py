"""Material for tests and scenarios: small models that need no download."""
