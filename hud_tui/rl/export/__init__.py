"""What is written to files for other programs and people: tables, charts and a report."""
