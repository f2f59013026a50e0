"""Broken rules, one at a time: what the simulator must find (FAULTS section 4)."""
