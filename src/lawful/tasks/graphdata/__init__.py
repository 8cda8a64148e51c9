"""Readers of graph data: node tables and graph files, and sets of labelled graphs."""
