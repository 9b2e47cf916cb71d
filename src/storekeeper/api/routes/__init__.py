"""The routes, one module for each group: what a head asks for, and its response."""
