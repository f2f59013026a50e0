"""Producer sessions: epochs, sequences, deduplication. Pure; see README.md, SAFETY section 10."""
