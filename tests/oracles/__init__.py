"""What judges: whether a history is linearizable, what a database holds, what each response
promised."""
