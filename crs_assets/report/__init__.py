"""What people see of the results: the leaderboard page, pictures, terminal tables. Knows the science, no framework."""
