"""Measurements. Run by `make bench`, never by a test."""
