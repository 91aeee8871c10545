"""fairlead: people share machines by Dominant Resource Fairness.

The public names are imported on first use, so that `import fairlead` costs nothing.
"""

__version__ = "0.1.0"
