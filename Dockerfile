# `demo` holds the clients of compose.yaml, `pipeline` has Spark and a Java runtime, and the last
# stage is the broker's image; the others make the environments that these copy. Only what the chosen
# target needs is built.

FROM python:3.13-slim-trixie AS environment
# crcmod comes as source only, and without a compiler it would install its slow form.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/triglot
WORKDIR /source
COPY requirements.lock ./
RUN /opt/triglot/bin/pip install --no-cache-dir --requirement requirements.lock

FROM environment AS build
COPY requirements-console.lock ./
RUN /opt/triglot/bin/pip install --no-cache-dir --requirement requirements-console.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY broker/ broker/
COPY client/ client/
COPY config/ config/
COPY pipeline/ pipeline/
COPY protocol/ protocol/
COPY storage/ storage/
COPY testing/ testing/
COPY tools/ tools/
RUN /opt/triglot/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && /opt/triglot/bin/pip install --no-cache-dir --no-deps /wheels/*.whl

FROM environment AS build-pipeline
COPY requirements-pipeline.lock ./
# PySpark is a source archive of 456 MB, of which pip makes a wheel. Before what changes often.
RUN /opt/triglot/bin/pip install --no-cache-dir --requirement requirements-pipeline.lock
COPY --from=build /wheels /wheels
RUN /opt/triglot/bin/pip install --no-cache-dir --no-deps /wheels/*.whl

FROM python:3.13-slim-trixie AS pipeline
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN groupadd --gid 10001 triglot \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin triglot \
    && install --directory --owner triglot --group triglot /lake
COPY --from=build-pipeline /opt/triglot /opt/triglot
ENV PATH=/opt/triglot/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME ["/lake"]
STOPSIGNAL SIGTERM
CMD ["triglot", "pipeline", "doctor"]

FROM python:3.13-slim-trixie AS demo
WORKDIR /examples
COPY requirements-examples.lock ./
RUN pip install --no-cache-dir --requirement requirements-examples.lock
COPY examples/ ./
USER 10001:10001
CMD ["python", "producer.py"]

FROM python:3.13-slim-trixie
RUN groupadd --gid 10001 triglot \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin triglot \
    && install --directory --owner triglot --group triglot /data
COPY --from=build /opt/triglot /opt/triglot
ENV PATH=/opt/triglot/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME ["/data"]
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
    CMD ["triglot", "health", "--port", "9092"]
CMD ["triglot", "serve", "--data", "/data", "--listen", "0.0.0.0:9092"]
