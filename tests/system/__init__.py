"""What crosses the whole: linearizability, kills, power failures, memory."""
