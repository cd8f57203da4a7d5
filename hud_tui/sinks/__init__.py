"""Where runs are logged beside the service: each sink is a process that reads as any client."""
