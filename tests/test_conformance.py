import pytest

import conformance_wrong_answers  # noqa: F401  # importing them adds their mutants
import conformance_wrong_errors  # noqa: F401
import conformance_wrong_payloads  # noqa: F401
import conformance_wrong_reads  # noqa: F401
import conformance_wrong_updates  # noqa: F401
import conformance_wrong_writes  # noqa: F401
from conformance_mutants import MUTANTS, Mutant
from conformance_reference import served
from storekeeper.conformance import examine


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_service_that_breaks_a_sentence_fails_its_check(mutant: Mutant) -> None:
    with served(mutant.service()) as url:
        report = examine(url)
    assert mutant.checks <= {result.rule.name for result in report.failed}
