"""Makes the Django peer's database at DATABASE with SEED stores."""

import os

import django
from django.core.management import call_command

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()

from stores.models import Store  # noqa: E402  # a model can only be imported after set-up

call_command("migrate", run_syncdb=True, verbosity=0)
numbers = range(1, int(os.environ["SEED"]) + 1)
Store.objects.bulk_create(
    (Store(name=f"Store {number:06}", address=f"Street {number:06}") for number in numbers), batch_size=10_000
)
