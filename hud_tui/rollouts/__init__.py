"""Training on an environment of one's own: rollouts by the `hud` SDK in a process of its own."""
