"""The simulated world: the same actors on a network, disks, clocks and memory that are played."""
