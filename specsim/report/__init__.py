"""Renders a report: for a terminal, and as JSON, JUnit XML or one HTML page."""
