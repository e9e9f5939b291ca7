"""Evaluation: sampled completions on the benchmarks, graded separately, then scored."""
