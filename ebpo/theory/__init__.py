"""The paper's guarantees as closed forms and simulations (docs/theory.md)."""
