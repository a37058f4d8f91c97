# syntax=docker/dockerfile:1.7@sha256:a57df69d0ea827fb7266491f2813635de6f17269be881f696fbfdf2d83dda33e
# Both daemons in one image. For this machine:
#
#     docker build -t label-storage -t label-storage:0.1.0 .
#
# The manifests in deploy/ use the second name. For both architectures, reproducible to the byte, with an SBOM:
#
#     docker buildx build --platform linux/amd64,linux/arm64 --sbom=true \
#         --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" \
#         --output type=oci,dest=label-storage.tar,rewrite-timestamp=true .
#
# A reproducible build needs the same compilers. Rust is pinned with the base image. clang compiles the little C code of ring, and comes from
# the Debian release of the base image. build.sh prints the versions.
ARG RUST_IMAGE=rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082

# Runs on the builder's own architecture: Rust cross-compiles, so nothing is emulated.
FROM --platform=$BUILDPLATFORM ${RUST_IMAGE} AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# Debian packages are not pinned: Debian removes old versions, so a pinned build would fail later.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends clang-19 \
    && rm -rf /var/lib/apt/lists/*
RUN rustup target add x86_64-unknown-linux-musl aarch64-unknown-linux-musl \
    && cargo install --locked --version 0.7.7 cargo-auditable \
    && rm -rf "$CARGO_HOME/registry"

WORKDIR /src
# Copies every member of the workspace: Cargo.lock covers them all, and --locked refuses a lock file that does not match.
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY tests tests
COPY deploy/image/build.sh deploy/image/build.sh

# The two caches keep downloaded and compiled dependencies between builds, separately for each architecture.
# They are not part of the layer: build.sh copies the programs out of them.
ARG TARGETARCH
ARG SOURCE_DATE_EPOCH=0
RUN --mount=type=cache,id=label-storage-registry,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,id=label-storage-target-${TARGETARCH},target=/src/target,sharing=locked \
    CLANG=clang-19 deploy/image/build.sh "$TARGETARCH" /out

FROM scratch

LABEL org.opencontainers.image.title="label-storage" \
      org.opencontainers.image.description="Keeps the labels of Kubernetes Nodes alive when a Node is deleted and re-created" \
      org.opencontainers.image.licenses="Apache-2.0"

# In a pod the API server is verified with the CA file of the service account. The bundle is for a kubeconfig without a CA: the TLS
# verifier then uses the system's certificates, and fails at start if there are none.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/storer /out/restorer /

# A number, because runAsNonRoot can't check a name, and the image has no /etc/passwd.
USER 65532:65532

# No ENTRYPOINT and no CMD: the `command` in the manifest chooses the daemon.
