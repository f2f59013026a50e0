"""Predicates over the ledger of a run; README.md says which module checks what."""
