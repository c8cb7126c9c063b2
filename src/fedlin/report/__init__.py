"""HTML and pictures from results."""
