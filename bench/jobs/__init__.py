"""The five jobs of README, done by Storekeeper and by what a team might take instead."""
