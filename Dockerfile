# Both daemons in one image. Build it with
#
#     docker build -t label-storage -t label-storage:0.1.0 .
#
# The second name is the one that the manifests in deploy/ use.

FROM rust:1.95-alpine AS build
WORKDIR /src

# Every member of the workspace: Cargo.lock covers them all, and --locked refuses a lock file that does not fit.
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY tests tests

# The two caches keep downloaded and compiled dependencies from one build to the next, for each architecture apart.
# They are not part of the layer, so the binaries are copied out of them in the same step.
# The target is named although it is the host's own: so RUSTFLAGS holds for the binaries, not for build scripts and macros.
# The final image has no dynamic loader: a binary that asks for a library must fail here, not in the cluster.
ARG TARGETARCH
ENV RUSTFLAGS="-C target-feature=+crt-static"
RUN --mount=type=cache,id=label-storage-registry-${TARGETARCH},target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,id=label-storage-target-${TARGETARCH},target=/src/target,sharing=locked \
    target="$(uname -m)-unknown-linux-musl" \
    && cargo build --release --locked --package storer --package restorer --bin storer --bin restorer --target "$target" \
    && mkdir /out \
    && cp "target/$target/release/storer" "target/$target/release/restorer" /out/ \
    && for binary in /out/storer /out/restorer; do \
         needed="$(readelf --dynamic "$binary")" || exit 1; \
         case "$needed" in *NEEDED*) echo "$binary is not static" >&2; exit 1 ;; esac; \
       done

FROM scratch

LABEL org.opencontainers.image.title="label-storage" \
      org.opencontainers.image.description="Keeps the labels of Kubernetes Nodes alive when a Node is deleted and re-created" \
      org.opencontainers.image.licenses="Apache-2.0"

# In a pod the API server is verified with the service account's own CA file. The bundle is for a kubeconfig that names
# no CA: the TLS verifier then turns to the system's certificates, and fails at start where there are none.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/storer /out/restorer /

# By number: runAsNonRoot can't judge a name, and there is no /etc/passwd to look one up in.
USER 65532:65532

# No ENTRYPOINT and no CMD: which of the two runs is for the manifest's `command` to say.
