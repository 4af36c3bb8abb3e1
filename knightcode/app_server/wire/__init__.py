"""Domain values as protocol structs: the only place where both are known."""
