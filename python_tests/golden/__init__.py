"""What each released encoding wrote, kept for good: `v<n>/` holds an RDB, two AOFs, a DUMP, and what was in them."""
