"""The conformance kit: a reference that keeps the contract, mutants that each break one
sentence, and its tests."""
