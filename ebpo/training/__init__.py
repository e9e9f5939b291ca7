"""Training: the loop, the prompt stream, batches and log-probs, metrics, checkpoints."""
