"""The app's two themes: two text tones, one accent, one warm, one hot.

The accent is what is served now. The reward ramp (widgets/palette.py) runs from blue to
yellow, so the accent is a sky blue brighter than any of it, and warm is an orange.
"""

from textual.theme import Theme

DARK = Theme(
    name="hud-dark",
    dark=True,
    primary="#7f93ad",
    secondary="#7f93ad",
    accent="#63c8ff",
    warning="#ffb454",
    error="#ff6e6e",
    success="#8fce9b",
    foreground="#d5dce6",
    background="#0d1117",
    surface="#141a22",
    panel="#1c2430",
    variables={
        "text-muted": "#8592a3",
        "text-disabled": "#5b6675",
        "border": "#2c3745",
        "border-blurred": "#2c3745",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-background": "#2b3b52",
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-foreground": "#d5dce6",
        "block-cursor-blurred-background": "#1c2430",
        "block-cursor-blurred-text-style": "none",
        "input-cursor-background": "#d5dce6",
        "input-selection-background": "#3a5270",
        "scrollbar": "#2c3745",
        "scrollbar-hover": "#43536a",
        "scrollbar-active": "#63c8ff",
        "scrollbar-background": "#0d1117",
        "scrollbar-corner-color": "#0d1117",
        "scrollbar-background-hover": "#0d1117",
        "scrollbar-background-active": "#0d1117",
    },
)
LIGHT = Theme(
    name="hud-light",
    dark=False,
    primary="#52657d",
    secondary="#52657d",
    accent="#0a6fb4",
    warning="#a35b00",
    error="#b3261e",
    success="#2f7d43",
    foreground="#1d2530",
    background="#fbfcfd",
    surface="#f1f4f7",
    panel="#e4e9ef",
    variables={
        "text-muted": "#5c6977",
        "text-disabled": "#94a0ad",
        "border": "#c8d1db",
        "border-blurred": "#c8d1db",
        "block-cursor-foreground": "#0d1117",
        "block-cursor-background": "#c9dcf0",
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-foreground": "#1d2530",
        "block-cursor-blurred-background": "#e4e9ef",
        "block-cursor-blurred-text-style": "none",
        "input-cursor-background": "#1d2530",
        "input-selection-background": "#b9d4ee",
        "scrollbar": "#c8d1db",
        "scrollbar-hover": "#a8b5c3",
        "scrollbar-active": "#0a6fb4",
        "scrollbar-background": "#fbfcfd",
        "scrollbar-corner-color": "#fbfcfd",
        "scrollbar-background-hover": "#fbfcfd",
        "scrollbar-background-active": "#fbfcfd",
    },
)
THEMES = (DARK, LIGHT)
