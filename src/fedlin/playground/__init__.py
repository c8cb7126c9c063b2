"""A page with sliders, kept by marimo, on which curves and bounds move."""
