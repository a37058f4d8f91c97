#!/usr/bin/env bash
# Makes a release. .github/workflows/release.yml calls this for a tag; a rehearsal does the same on one machine, and pushes nothing.
#
#     deploy/release.sh check [TAG]            fails if anything has another version than Cargo.toml; lint.sh runs it
#     deploy/release.sh version                prints the version
#     deploy/release.sh notes                  prints the release notes: the version's section of CHANGELOG.md
#     deploy/release.sh plugin PLATFORM OUT    builds the plugin's archive, for one of the platforms below
#     deploy/release.sh image OUT              builds the image for both architectures without Docker; prints its digest
#     deploy/release.sh chart OUT DIGEST       packages the chart for the image with this digest
#     deploy/release.sh manifest OUT DIGEST    renders label-storage.yaml for the image with this digest
#     deploy/release.sh krew OUT [PLATFORM]... renders the manifest for krew from the archives in OUT, and validates it
#     deploy/release.sh sums OUT               writes SHA256SUMS
#     deploy/release.sh rehearse [OUT]         all of it, twice, from two copies of the last commit; fails if a byte differs
#
# GITHUB_REPOSITORY is the repository on GitHub, as OWNER/REPOSITORY. Files in the source have these two words as a placeholder, and so has
# a rehearsal without the variable. IMAGE is the image's name without a tag: by default that of the repository in GitHub's registry.
# Takes helm as render.sh does. `plugin` runs on macOS, too, with the bash that is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

platforms=(linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64)
repository=${GITHUB_REPOSITORY:-OWNER/REPOSITORY}
url=https://github.com/$repository
image=${IMAGE:-ghcr.io/$(tr '[:upper:]' '[:lower:]' <<<"$repository")}

# The version's one home.
version=$(awk -F'"' '/^\[/ { section = $0 } section == "[workspace.package]" && /^version *=/ { print $2; exit }' Cargo.toml)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
    fail "Cargo.toml: [workspace.package] has the version \"$version\": it has to be one such as 1.2.3 or 1.2.3-rc.1"
tag=v$version

find_helm() {
    [[ -n ${HELM-} ]] || HELM=$(cargo run --quiet --locked --package sandbox --bin sandbox -- tool helm)
    export HELM
}

# The time of the last commit, for all files in all archives.
set_time() {
    [[ -n ${SOURCE_DATE_EPOCH-} ]] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH
}

folder() { mkdir -p "$1" && (cd "$1" && pwd); }

digest() { [[ $1 =~ ^sha256:[0-9a-f]{64}$ ]] || fail "the digest $1: it has to be sha256: and 64 hexadecimal digits"; }

check() {
    local wrong=0 found line rust
    differs() { printf 'error: %s has %s, Cargo.toml has %s: %s\n' "$1" "${2:-no version}" "$version" "$3" >&2 && wrong=1; }

    [[ $# == 0 || $1 == "$tag" ]] || differs "the tag" "$1" "tag a commit whose Cargo.toml has that version"
    for key in version appVersion; do
        found=$(sed -n "s/^$key: *\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" deploy/chart/Chart.yaml)
        [[ $found == "$version" ]] || differs "deploy/chart/Chart.yaml: $key" "$found" "change $key"
    done
    found=$(sed -n 's/^## \([^ ,]*\).*/\1/p' CHANGELOG.md | head -1)
    [[ $found == "$version" ]] || differs "CHANGELOG.md: the first section" "$found" "begin a section \"## $version\""
    [[ $found != "$version" || -n $(section) ]] || { echo "error: CHANGELOG.md: the section $version is empty: it becomes the release notes" >&2 && wrong=1; }
    for key in app.kubernetes.io/version helm.sh/chart; do
        found=$(sed -n "s|^ *$key: *\"\{0,1\}\(label-storage-\)\{0,1\}\([^\"]*\)\"\{0,1\}$|\2|p" deploy/label-storage.yaml | sort -u)
        [[ $found == "$version" ]] || differs "deploy/label-storage.yaml: $key" "$(tr '\n' ' ' <<<"$found")" "run deploy/render.sh"
    done
    while IFS= read -r line; do
        found=${line##*label-storage:}
        [[ $found == "$version" ]] || differs "${line%:label-storage:*}" "$found" "change the image's tag"
    done < <(grep -rnoE 'label-storage:[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?' --exclude-dir=target \
        Dockerfile README.md .github deploy docs tests/e2e.sh)

    # Programs that are not built in the Dockerfile take the same compiler.
    rust=$(sed -n 's/^ARG RUST_IMAGE=rust:\([0-9.]*\).*/\1/p' Dockerfile)
    while IFS= read -r line; do
        found=${line##*RUST: }
        [[ $found == "$rust" ]] || { printf 'error: %s has Rust %s, the Dockerfile has %s: change one of them\n' "${line%%:*}" "$found" "$rust" >&2 && wrong=1; }
    done < <(grep -rnE '^ *RUST: ' .github/workflows)
    return $wrong
}

section() { awk -v version="$version" '/^## / { inside = index($2 ",", version ",") == 1; next } inside' CHANGELOG.md | sed -e '/./,$!d'; }

# Links of the source mean nothing elsewhere.
notes() {
    section | sed -E "s#\]\(((docs|deploy|crates|tests)/|[A-Z]+\.md)#](https://github.com/$repository/blob/$tag/\1#g"
    printf '\nHow to install and how to verify the signatures: [docs/releasing.md](%s/blob/%s/docs/releasing.md).\n' "$url" "$tag"
}

archive_name() {
    local suffix=.tar.gz
    [[ $1 != windows-* ]] || suffix=.zip
    printf 'kubectl-label_storage-%s-%s%s' "$tag" "$1" "$suffix"
}

# Zig as a compiler and linker for Windows. It is installed once, and kept for the next time.
zig_tools() {
    local tools=${XDG_CACHE_HOME:-$HOME/.cache}/label-storage/tools/zig-1
    if [[ ! -x $tools/bin/cargo-zigbuild ]]; then
        python3 -m venv "$tools"
        "$tools/bin/pip" install --quiet cargo-zigbuild==0.24.0 ziglang==0.17.0
    fi
    export PATH=$tools/bin:$PATH
}

# Rust's name of a platform.
target() {
    case $1 in
        linux-amd64) echo x86_64-unknown-linux-musl ;;
        linux-arm64) echo aarch64-unknown-linux-musl ;;
        darwin-amd64) echo x86_64-apple-darwin ;;
        darwin-arm64) echo aarch64-apple-darwin ;;
        windows-amd64) echo x86_64-pc-windows-gnu ;;
        windows-arm64) echo aarch64-pc-windows-gnullvm ;;
        *) fail "the platform $1: one of ${platforms[*]}" ;;
    esac
}

plugin() {
    local platform=$1 out work target program=kubectl-label_storage
    target=$(target "$platform")
    [[ $platform != windows-* ]] || program=$program.exe
    out=$(folder "$2")
    set_time
    work=$(mktemp -d)
    if [[ $platform == linux-* ]]; then
        deploy/image/build.sh "${platform#*-}" "$work" kubectl-plugin "$program"
    else
        # Where it was built is told by no file name in it.
        local build=(cargo auditable build) target_dir=${CARGO_TARGET_DIR:-$PWD/target} prefix flags=()
        for prefix in "$PWD=/src" "$target_dir=/target" "${CARGO_HOME:-$HOME/.cargo}=/cargo"; do
            flags+=("--remap-path-prefix=$prefix")
        done
        case $platform in
            darwin-*) [[ $(uname) == Darwin ]] || fail "$platform can't be built here: it links Apple's frameworks Security and CoreFoundation, which come with macOS alone" ;;
            windows-*)
                zig_tools
                build=(cargo auditable zigbuild)
                ;;
        esac
        rustup target add "$target"
        RUSTFLAGS=${flags[*]} CARGO_INCREMENTAL=0 "${build[@]}" --release --locked --target "$target" --package kubectl-plugin --bin kubectl-label_storage
        cp "$target_dir/$target/release/$program" "$work"
        for prefix in "$PWD" "$target_dir" "$HOME"; do
            ! grep -qaF "$prefix/" "$work/$program" || fail "$program names $prefix, a folder of this machine"
        done
    fi
    deploy/pack.py archive "$out/$(archive_name "$platform")" "$work/$program" LICENSE
    rm -r "$work"
}

build_image() {
    local out work architecture
    out=$(folder "$1")
    set_time
    work=$(mktemp -d)
    for architecture in amd64 arm64; do
        deploy/image/build.sh "$architecture" "$work/$architecture" >&2
    done
    deploy/pack.py oci "$out/label-storage-$version-image.tar" "$image:$version" "${CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}" \
        "amd64=$work/amd64" "arm64=$work/arm64"
    rm -r "$work"
}

# Puts the repository, the tag and the image into the chart's own files: nobody who installs the package has to set them.
chart() {
    local out work
    digest "$2"
    out=$(folder "$1")
    find_helm
    set_time
    work=$(mktemp -d)
    cp -R deploy/chart "$work/label-storage"
    (
        cd "$work/label-storage"
        replace() {
            sed -E "$2" "$1" >"$1.new"
            ! cmp -s "$1" "$1.new" || fail "deploy/chart/$1 has nothing that $2 replaces"
            mv "$1.new" "$1"
        }
        replace values.yaml "s#^  repository: label-storage\$#  repository: $image#"
        replace values.yaml "s#^  digest: \"\"\$#  digest: $2#"
        replace Chart.yaml "s#label-storage:$version#$image:$version@$2#"
        replace README.md "s#\]\(\.\./\.\./#](OWNER/REPOSITORY/blob/main/#g; s#\]\(\.\./#](OWNER/REPOSITORY/blob/main/deploy/#g; s#\]\(OWNER#](https://github.com/OWNER#g"
        find . -type f | while IFS= read -r file; do
            sed -E "s#OWNER/REPOSITORY/(blob/|raw/)?main/#OWNER/REPOSITORY/\1$tag/#g; s#OWNER/REPOSITORY#$repository#g" "$file" >"$file.new"
            mv "$file.new" "$file"
        done
    )
    { printf '  artifacthub.io/changes: |\n' && section | deploy/pack.py changes; } >>"$work/label-storage/Chart.yaml"
    "$HELM" lint --strict --quiet "$work/label-storage" >&2
    "$HELM" package "$work/label-storage" --version "$version" --app-version "$version" --destination "$out" >&2
    rm -r "$work"
    deploy/pack.py repack "$out/label-storage-$version.tgz"
}

manifest() {
    local out
    digest "$2"
    out=$(folder "$1")
    find_helm
    deploy/render.sh --print --set "image.repository=$image,image.digest=$2" >"$out/label-storage.yaml"
}

krew() {
    local out=$1 work platform name sum program
    shift
    [[ $# -gt 0 ]] || set -- "${platforms[@]}"
    find_helm
    {
        cat <<MANIFEST
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: label-storage
spec:
  version: $tag
  homepage: $url
  shortDescription: Display, explain and repair stored labels of Nodes
  description: |
    Label Storage keeps the labels of Nodes, and restores them when a Node is deleted and re-created.
    This plugin shows what is stored and what is pending, explains why, and repairs it.
    The cluster needs the two daemons of Label Storage.
  platforms:
MANIFEST
        for platform in "$@"; do
            name=$(archive_name "$platform")
            [[ -f $out/$name ]] || fail "$out/$name is missing: deploy/release.sh plugin $platform $out makes it"
            sum=$(sha256sum "$out/$name")
            program=kubectl-label_storage
            [[ $platform != windows-* ]] || program=$program.exe
            cat <<MANIFEST
    - selector:
        matchLabels: {os: ${platform%-*}, arch: ${platform#*-}}
      uri: $url/releases/download/$tag/$name
      sha256: ${sum%% *}
      bin: $program
MANIFEST
        done
    } >"$out/label-storage.krew.yaml"
    validate_krew "$out/label-storage.krew.yaml"
}

# Helm checks values against a schema: here the values are the manifest.
validate_krew() {
    local work
    find_helm
    work=$(mktemp -d)
    printf 'apiVersion: v2\nname: krew\nversion: 0.0.0\n' >"$work/Chart.yaml"
    cp deploy/krew.schema.json "$work/values.schema.json"
    "$HELM" template krew "$work" --values "$1" >/dev/null || fail "$1 is no manifest that krew accepts"
    rm -r "$work"
}

sums() {
    local sums
    sums=$(cd "$1" && rm -f SHA256SUMS && LC_ALL=C sha256sum -- *)
    printf '%s\n' "$sums" >"$1/SHA256SUMS"
}

# The platforms that are built on Linux.
here=(windows-amd64 windows-arm64 linux-amd64 linux-arm64)

build_all() {
    local out=$1 digest platform
    check "$tag"
    for platform in "${here[@]}"; do
        plugin "$platform" "$out"
    done
    digest=$(build_image "$out")
    chart "$out" "$digest"
    manifest "$out" "$digest"
    krew "$out" "${here[@]}"
    notes >"$out/notes.md"
    sums "$out"
    printf 'the image: %s@%s\n' "$image" "$digest"
}

rehearse() {
    local out copy
    builds=()
    out=$(folder "${1:-target/rehearsal}")
    find_helm
    zig_tools
    set_time
    # Before the builds: rustup can't do two things at a time.
    for copy in "${here[@]}"; do
        rustup target add "$(target "$copy")"
    done
    [[ -z $(git status --porcelain) ]] || echo "warning: the rehearsal builds the last commit, without the changes since" >&2
    # At the same time: the last step of each build uses one core. If one fails, the other ends, too.
    trap 'kill "${builds[@]}" 2>/dev/null || true' EXIT
    for copy in first second-time-elsewhere; do
        rm -rf "${out:?}/$copy"
        mkdir -p "$out/$copy/source"
        git archive HEAD | tar -x -C "$out/$copy/source"
        printf '==> building in %s: see log there\n' "$out/$copy"
        (cd "$out/$copy/source" && exec env --unset=CARGO_TARGET_DIR deploy/release.sh build-all "$out/$copy/files") >"$out/$copy/log" 2>&1 &
        builds+=($!)
    done
    for copy in "${builds[@]}"; do
        wait "$copy" || fail "a build failed: $(tail -n 5 "$out"/*/log)"
    done
    for copy in first second-time-elsewhere; do
        rm -rf "${out:?}/$copy/source"
        printf '==> %s: %s\n' "$out/$copy/files" "$(tail -n 1 "$out/$copy/log")"
        (cd "$out/$copy/files" && stat --format='%10s bytes  %n' -- * && cat SHA256SUMS)
    done
    diff --recursive --brief "$out/first/files" "$out/second-time-elsewhere/files" || fail "the two builds differ"
    echo "==> both builds are the same to the byte"
}

case ${1-} in
check | notes | rehearse) "$@" ;;
version) printf '%s\n' "$version" ;;
image) [[ $# == 2 ]] || fail "usage: $0 image OUT" && build_image "$2" ;;
plugin | chart | manifest) [[ $# == 3 ]] || fail "usage: see the head of $0" && "$@" ;;
krew | sums | validate-krew | build-all) [[ $# -ge 2 ]] || fail "usage: see the head of $0" && "${1//-/_}" "${@:2}" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
