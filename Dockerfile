# The service in a container; docs/installing.md has how to run it. Renew the tag and its digest together.
FROM python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
WORKDIR /source
COPY requirements/build.txt requirements/run.txt ./
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r build.txt \
 && python -m venv /opt/storekeeper \
 && /opt/storekeeper/bin/pip install --no-cache-dir --require-hashes -r run.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY tools/build_hook.py tools/
# What --version shows: docker build --build-arg COMMIT=$(git rev-parse --short=12 HEAD) .
ARG COMMIT=""
RUN SOURCE_COMMIT="$COMMIT" /opt/build/bin/hatchling build -t wheel -d /opt/wheel \
 && /opt/storekeeper/bin/pip install --no-cache-dir --no-deps /opt/wheel/*.whl \
 && /opt/storekeeper/bin/pip uninstall --yes pip

FROM python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
# The number is fixed, so that a folder of the host can be given to it: chown 10001:10001.
RUN groupadd --gid 10001 storekeeper \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin storekeeper \
 && install -d -m 750 -o storekeeper -g storekeeper /data
COPY --from=build /opt/storekeeper /opt/storekeeper
# No start makes the list: run the image with `create` once.
# Who can reach the container may read; who writes needs a token: storekeeper token add.
ENV PATH=/opt/storekeeper/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    STOREKEEPER_HOST=0.0.0.0 \
    STOREKEEPER_DATABASE=sqlite:////data/stores.db \
    STOREKEEPER_EXAMPLES=false \
    STOREKEEPER_AUTH=writes
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=7s --start-period=30s CMD ["storekeeper", "ready"]
ENTRYPOINT ["storekeeper"]
CMD ["serve"]
