"""Values and columns to records, and where the records go."""
