"""What carries a connection's bytes. Too thin to decide anything."""
