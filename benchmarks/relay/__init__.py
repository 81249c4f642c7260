"""How fast the relay is: from a commit to the broker, and to the work; with many rows waiting; with keys."""
