"""The best margin once k rows may be left out: definitions, certificates, the search, the published algorithms."""
