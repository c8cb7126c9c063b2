"""NVIDIA FLARE as the carrier of a federation: certificates, jobs, processes and what they run."""
