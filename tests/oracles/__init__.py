"""Models that judge whether a history is linearizable, what a database holds, and what each
response promised."""
