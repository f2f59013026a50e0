"""`logstore pipeline …`: the log's data in bulk, on Spark. Needs the extra `logstore[spark]`."""
