"""What generators make of the OpenAPI document type-checks, and makes real calls."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storekeeper.api.routes import docs
from tests import ROOT
from tests.harness.machine import need
from tests.harness.nginx import nginx
from tests.harness.process import Running, free_port

PROGRAMS = Path(__file__).with_name("clients")
GENERATORS = ROOT / ".venv" / "generators"
ANNOTATIONS = Path("/usr/share/java/geronimo-annotation-1.3-spec.jar")
"""Java's old annotations, which the JDK has no longer and generated clients still name."""

CONFIGURATION = "content_type_overrides: {text/csv: application/octet-stream}\npost_hooks: []\n"
JAVA_OPTIONS = ["--library=native", "--additional-properties=openApiNullable=false"]
JAVA_PARTS = (
    "models,apis,supportingFiles,modelTests=false,apiTests=false,modelDocs=false,apiDocs=false"
)


def done(folder: Path, *command: object) -> None:
    """Run a program of another language to its end, in a folder."""
    finished = subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.fixture
def document(tmp_path: Path) -> Path:
    file = tmp_path / "openapi.json"
    file.write_bytes(docs.encoded_document())
    return file


@pytest.fixture
def urls(fresh: Running, tmp_path: Path) -> Iterator[list[str]]:
    """The service, and a proxy that does not reach it."""
    with nginx(tmp_path, free_port()) as gateway:
        yield [f"http://127.0.0.1:{fresh.port}", f"http://127.0.0.1:{gateway}"]


def make_python_client(document: Path, folder: Path) -> None:
    if not GENERATORS.exists():
        need("generators", "openapi-python-client is not installed: make .venv/.generators")
    (folder / "opc.yaml").write_text(CONFIGURATION)
    shutil.copy(PROGRAMS / "calls.py", folder)
    command = [GENERATORS / "bin" / "openapi-python-client", "generate", "--meta=none"]
    options = ["--path", document, "--config=opc.yaml", "--output-path=stores_client"]
    done(folder, *command, *options)


def test_a_generated_python_client_makes_calls_without_a_token(
    document: Path, urls: list[str], tmp_path: Path
) -> None:
    make_python_client(document, tmp_path)
    done(tmp_path, GENERATORS / "bin" / "python", "calls.py", *urls)


@pytest.mark.thorough
def test_a_generated_python_client_has_the_types_of_its_calls(
    document: Path, tmp_path: Path
) -> None:
    make_python_client(document, tmp_path)
    done(tmp_path, sys.executable, "-m", "mypy", "--strict", "calls.py")


@pytest.mark.thorough
def test_generated_typescript_has_the_types_of_its_calls_and_makes_them(
    document: Path, urls: list[str], tmp_path: Path
) -> None:
    if not shutil.which("npm"):
        need("npm", "npm is not installed")
    for file in PROGRAMS.glob("*.[jt]s*"):
        shutil.copy(file, tmp_path)
    done(tmp_path, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    programs = tmp_path / "node_modules" / ".bin"
    done(tmp_path, programs / "openapi-typescript", document, "--output=stores.d.ts")
    options = ["--strict", "--target", "es2022", "--module", "nodenext"]
    done(tmp_path, programs / "tsc", *options, "calls.ts")
    done(tmp_path, "node", "calls.js", *urls)


@pytest.mark.thorough
def test_a_generated_java_client_compiles_and_makes_calls(
    document: Path, urls: list[str], tmp_path: Path
) -> None:
    if not GENERATORS.exists():
        need("generators", "openapi-generator is not installed: make .venv/.generators")
    if not shutil.which("javac") or not ANNOTATIONS.exists():
        need("java", "the JDK and libgeronimo-annotation-1.3-spec-java are not installed")
    shutil.copy(PROGRAMS / "Calls.java", tmp_path)
    command = [GENERATORS / "bin" / "openapi-generator-cli", "generate", "-g", "java"]
    options = [*JAVA_OPTIONS, f"--global-property={JAVA_PARTS}"]
    done(tmp_path, *command, "-i", document, "-o", "client", *options)
    # The generator's own archive has the JSON library that the client uses.
    [archive] = GENERATORS.glob("lib/python*/site-packages/openapi_generator_cli/*.jar")
    libraries = f"{archive}:{ANNOTATIONS}"
    sources = [*tmp_path.glob("client/src/main/java/**/*.java"), "Calls.java"]
    done(tmp_path, "javac", "-d", "classes", "-cp", libraries, *sources)
    done(tmp_path, "java", "-cp", f"classes:{libraries}", "Calls", *urls)
