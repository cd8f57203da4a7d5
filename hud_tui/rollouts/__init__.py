"""Training on an environment of the user's own: the `hud` SDK makes the rollouts in a separate
process."""
