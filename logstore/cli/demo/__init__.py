"""`logstore demo`: real text through a log of replicas whose leader is killed half way."""
