"""Simulated seconds: a clock for the machines of a federation, and stages that begin with the fastest."""
