"""hud-tui: a terminal cockpit for reinforcement-learning post-training on the HUD platform."""

__version__ = "0.1.0"
