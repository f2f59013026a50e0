"""Every schedule of three consensus cores within a small bound: breadth first, with state
hashing. See the README of this package."""
