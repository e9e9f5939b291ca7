"""Rollouts: sampled completions of prompts, token ids in and token ids out."""
