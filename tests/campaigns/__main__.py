"""Play a campaign: ``python -m tests.campaigns NAME``, with its arguments."""

import sys
from importlib import import_module

if __name__ == "__main__":
    sys.exit(import_module(f"tests.campaigns.{sys.argv[1]}").CAMPAIGN.main(sys.argv[2:]))
