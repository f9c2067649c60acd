"""The best margin once k rows are excluded: definitions, certificates, heuristic, search, published algorithms."""
