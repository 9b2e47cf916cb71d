#!/bin/sh
# Pins every dependency with its hashes. Names no index: pip's own configuration says where to look.
set -eu
uv=$(command -v uv || echo .venv/bin/uv)
compile() {
  "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-header --no-annotate --no-strip-extras "$@"
}
compile pyproject.toml --extra postgres --extra excel --extra client -o requirements/run.txt
compile pyproject.toml --extra mcp -c requirements/run.txt -o requirements/mcp.txt
compile requirements/build.in -c requirements/run.txt -o requirements/build.txt
compile pyproject.toml --all-extras requirements/build.in requirements/dev.in \
  -c requirements/run.txt -c requirements/build.txt -o requirements/dev.txt
compile requirements/audit.in -o requirements/audit.txt
compile requirements/generators.in -o requirements/generators.txt
