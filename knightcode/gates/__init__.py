"""What may run, and who is asked first. Pure decisions; must never run a command."""
