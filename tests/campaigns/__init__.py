"""Campaigns: long attacks on the whole program, e.g. ``python -m tests.campaigns keys``.

Each is a module of this folder with a `CAMPAIGN` (see `tests.campaigns.campaign`).
``pytest tests/campaigns`` runs every one small; docs/campaigns.md has what the large ones found.
"""
