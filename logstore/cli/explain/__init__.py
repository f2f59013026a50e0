"""`logstore explain`: where an append's time goes on a running cluster, what bounds it."""
