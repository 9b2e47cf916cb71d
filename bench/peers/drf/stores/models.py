"""The store as a Django model; nothing deletes one, so the ids that SQLite gives are 1..n."""

from django.db import models


class Store(models.Model):
    name = models.CharField(max_length=30, db_index=True)
    address = models.TextField(null=True)

    def __str__(self) -> str:
        return self.name
