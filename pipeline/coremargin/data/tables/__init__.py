"""Tables: rows with named columns of any kind, and how they become numbers; Arrow's types are theirs."""
