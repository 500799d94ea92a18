"""Pictures of the report: each function takes tidy tables and returns one drawing; the colours are the same in all."""
