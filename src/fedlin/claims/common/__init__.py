"""What several claims share: instances, curves, and the checks of a bound."""
