#!/usr/bin/env bash
# Everything that can be checked without running the code. Stops at the first failure.
#
# A check whose tool is missing is skipped. With CI set that is a failure, except for the advisories with NO_ADVISORY_DATABASE set: their
# database is a git repository, which a machine without internet access can't fetch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

step() { printf '==> %s\n' "$*"; }
skip() {
    printf '==> skipped: %s\n' "$*"
    [ -z "${CI-}" ] || { printf '==> in CI nothing is skipped\n' && exit 1; }
}

step "formatting: cargo fmt"
cargo fmt --all --check

step "lints: cargo clippy"
cargo clippy --workspace --all-targets --locked -- -D warnings

# Includes private items: these crates are not published, so their documentation is for developers.
step "documentation: cargo doc"
RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --locked

if command -v cargo-deny >/dev/null; then
    step "dependencies: cargo deny: bans, licenses, sources"
    cargo deny --locked check bans licenses sources
    # Fetched in a separate step, to tell "no network" from "an advisory was found".
    if [ -n "${NO_ADVISORY_DATABASE-}" ]; then
        step "dependencies: advisories are not checked, since NO_ADVISORY_DATABASE is set"
    elif cargo deny --locked fetch db; then
        step "dependencies: cargo deny: advisories"
        cargo deny --locked check advisories
    else
        skip "advisories: their database can't be fetched"
    fi
else
    skip "bans, licenses, sources and advisories: cargo-deny is not installed"
fi

if command -v shellcheck >/dev/null; then
    step "shell scripts: shellcheck"
    # By name or by first line: neither finds them all.
    mapfile -t scripts < <(find . \( -name .git -o -name target \) -prune -o -type f -exec \
        awk 'FNR == 1 { if (FILENAME ~ /\.sh$/ || /^#!.*[\/ ](ba|da)?sh( |$)/) print FILENAME; nextfile }' {} +)
    printf '    %s\n' "${scripts[@]}"
    shellcheck "${scripts[@]}"
else
    skip "shell scripts: shellcheck is not installed"
fi

step "versions: all files have the one of Cargo.toml"
deploy/release.sh check

if command -v hadolint >/dev/null; then
    step "image: hadolint"
    hadolint Dockerfile
else
    skip "image: hadolint is not installed"
fi

if command -v actionlint >/dev/null; then
    step "workflows: actionlint"
    actionlint
else
    skip "workflows: actionlint is not installed"
fi

if command -v helm >/dev/null || command -v go >/dev/null; then
    HELM=$(cargo run --quiet --locked --package sandbox --bin sandbox -- tool helm)
    export HELM
    step "chart: helm lint ($("$HELM" version --template '{{.Version}}'))"
    "$HELM" lint --strict --quiet deploy/chart
    "$HELM" lint --strict --quiet deploy/chart --values tests/scenarios/deploy/all-values.yaml
    step "chart: deploy/label-storage.yaml is what it renders to"
    deploy/render.sh --check
else
    skip "chart: neither helm nor Go is installed"
fi

if command -v helm-docs >/dev/null; then
    step "chart: README.md is what helm-docs makes of the values"
    helm-docs --chart-search-root deploy/chart --sort-values-order file --log-level warning --dry-run |
        diff --unified deploy/chart/README.md -
else
    skip "chart: helm-docs is not installed"
fi

step "all passed"
