"""The search for orphans: what tables refer to, whose metadata lies around, what is left over."""
