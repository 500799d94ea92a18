"""What happens without a person: registering new encoders, re-benchmarking what is stale. All stopped by default."""
