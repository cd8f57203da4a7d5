"""Other machines: hosts that answer to ssh, and pods that are rented from Prime Intellect."""
