"""Where rows come from: one file per kind of source; ``opening.open_rows`` finds the kind."""
