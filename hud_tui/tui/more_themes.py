"""Two themes for eyes that the usual ones do not serve, and the reward ramps of all four.

High contrast: every text has at least 7:1 against its ground (WCAG 2.2, criterion 1.4.6), on
black. Colour-blind safe: accent, warm and hot lie on the axis from blue to yellow and apart in
brightness, which deuteranopes and protanopes see; rewards are greys, so that only what has a
meaning of its own is coloured.
"""

from textual.theme import Theme

from hud_tui.tui.theme import DARK, LIGHT
from hud_tui.tui.widgets.palette import RAMP

_BLACK = "#000000"
CONTRAST = Theme(
    name="hud-high-contrast",
    dark=True,
    primary="#b9cbe4",
    secondary="#b9cbe4",
    accent="#6fd3ff",
    warning="#ffb000",
    error="#ff8f8f",
    success="#8dffa0",
    foreground="#ffffff",
    background=_BLACK,
    surface="#0a0d12",
    panel="#14191f",
    variables={
        **DARK.variables,
        "text-muted": "#a6aebb",
        "text-disabled": "#9ea6b2",
        "border": "#8c98a8",
        "border-blurred": "#8c98a8",
        "block-cursor-background": "#00355e",
        "block-cursor-blurred-foreground": "#ffffff",
        "block-cursor-blurred-background": "#232b35",
        "input-cursor-background": "#ffffff",
        "input-selection-background": "#00528f",
        "scrollbar": "#8c98a8",
        "scrollbar-hover": "#c8d0da",
        "scrollbar-active": "#6fd3ff",
        "scrollbar-background": _BLACK,
        "scrollbar-corner-color": _BLACK,
        "scrollbar-background-hover": _BLACK,
        "scrollbar-background-active": _BLACK,
    },
)
COLOUR_BLIND = Theme(
    name="hud-colour-blind",
    dark=True,
    primary=DARK.primary,
    secondary=DARK.secondary,
    accent="#56c4ff",
    warning="#ffa200",
    error="#ff5a36",
    success="#b9c6d6",
    foreground=DARK.foreground,
    background=DARK.background,
    surface=DARK.surface,
    panel=DARK.panel,
    variables={**DARK.variables, "scrollbar-active": "#56c4ff"},
)
TITLES = {
    DARK.name: "dark",
    LIGHT.name: "light",
    CONTRAST.name: "high contrast",
    COLOUR_BLIND.name: "colour-blind safe",
}
"""What each theme is called, in the order in which one key goes through them."""
THEMES = (DARK, LIGHT, CONTRAST, COLOUR_BLIND)
RAMPS = {
    DARK.name: RAMP,
    LIGHT.name: (
        "#87d448",
        "#52c368",
        "#2caf7e",
        "#219989",
        "#26828d",
        "#306a8d",
        "#3b518a",
        "#44367f",
        "#461668",
    ),
    CONTRAST.name: (
        "#2e6e8e",
        "#26828d",
        "#21968a",
        "#22a884",
        "#3dba74",
        "#64ca5d",
        "#95d740",
        "#cae126",
        "#fde725",
    ),
    COLOUR_BLIND.name: (
        "#4f5560",
        "#5f6570",
        "#707680",
        "#818791",
        "#949aa3",
        "#a8adb5",
        "#bdc1c7",
        "#d3d6da",
        "#eceef0",
    ),
}
"""Of each theme the colours of rewards, lowest to highest: each further from the ground than the
last. Viridis, as in the palette: downwards on a light ground, its brighter part on black."""
