"""Alarms: pure detectors over the metrics of a lineage, each with evidence and advice."""
