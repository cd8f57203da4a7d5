"""The engines: each module here is one, and each package, but for the interface, `base`, and what
engines share.

A module has a function ``make(data_dir, cores)``, a package has it in its module ``engine``. It
returns a `base.Engine` that is not started yet, whose own files lie in the data directory, and that
computes in at most so many processes of this machine. Nothing else lists the engines.
"""

from pkgutil import iter_modules

DEFAULT = "tiny"
SHARED = ("base", "handles")


def modules() -> dict[str, str]:
    """The module that makes each engine, by the engine's name; none of them is loaded."""
    return {
        module.name: f"{__name__}.{module.name}" + (".engine" if module.ispkg else "")
        for module in iter_modules(__path__)
        if module.name not in SHARED
    }
