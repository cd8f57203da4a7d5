"""The engines: each module here, but for `base`, the interface, is one, and each package is.

A module has a function ``make(data_dir, cores)``, a package has it in its module ``engine``. It
returns a `base.Engine` that is not started yet, whose own files lie in the data directory, and that
computes in at most so many processes of this machine. Nothing else lists the engines.
"""

from pkgutil import iter_modules

DEFAULT = "tiny"
INTERFACE = "base"


def modules() -> dict[str, str]:
    """The module that makes each engine, by the engine's name; none of them is loaded."""
    return {
        module.name: f"{__name__}.{module.name}" + (".engine" if module.ispkg else "")
        for module in iter_modules(__path__)
        if module.name != INTERFACE
    }
