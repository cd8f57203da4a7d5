"""How the bases that ship in the package are made."""

import hud_tui.service.engines.tiny  # noqa: F401  before NumPy is loaded: it sets one thread
