"""Faults that are put into a copy of the package one at a time, and their tests."""
