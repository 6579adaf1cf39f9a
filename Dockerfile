# An official server image with the module:
#   docker build -t redis-lease .
#   docker build -t valkey-lease --build-arg SERVER=valkey/valkey:8.1-bookworm .
#   docker run -p 127.0.0.1:6379:6379 -v lease-data:/data redis-lease --appendonly yes --lease.ttl-ms 20000
ARG RUST=rust:1.95-slim-bookworm
ARG SERVER=redis:8.2-bookworm

FROM ${RUST} AS build
# bindgen reads the server's header with libclang. The newest of this Debian release is the one that is wanted.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends libclang-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /redis-lease
COPY Cargo.toml Cargo.lock ./
COPY src src
# The names of the functions stay, for crash reports; source lines do not.
RUN cargo rustc --locked --release --lib --crate-type cdylib \
 && strip --strip-debug target/release/libredis_lease.so

# Port, volume and folder (6379, /data) are the base image's.
FROM ${SERVER}
COPY --from=build /redis-lease/target/release/libredis_lease.so /usr/local/lib/redis-lease/
COPY examples/redis-lease.conf /usr/local/lib/redis-lease/
# By number, as Kubernetes' runAsNonRoot wants it: `redis` in the images of Redis, `valkey` in those of Valkey.
USER 999:999
# Passwords, ports and TLS are yours: REDISCLI_AUTH lets redis-cli in (as a user who may LEASE.CLOCK), or give a --health-cmd of
# your own. A server is not healthy while it loads: where that takes longer, give --health-start-period.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["redis-cli", "-e", "LEASE.CLOCK", "GET"]
# The images' entrypoint starts its server when it is given a configuration file. Whatever stands behind `docker run IMAGE` are
# options of the server, which go before the file's; another program needs --entrypoint.
ENTRYPOINT ["docker-entrypoint.sh", "/usr/local/lib/redis-lease/redis-lease.conf"]
