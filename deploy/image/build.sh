#!/usr/bin/env bash
# Builds the two programs of the image: build.sh amd64|arm64 OUT. The Dockerfile runs this. It also works on any Linux with
# rustup, clang and cargo-auditable. The result is the same to the byte, wherever it is built.
# build.sh amd64|arm64 OUT PACKAGE PROGRAM builds another program in the same way.
#
#   static       musl, with the C runtime and the linker that come with Rust: the image has no dynamic loader
#   cross        no code of the target is run, so each architecture can build the other without emulation
#   repeatable   no path, time or name of this machine is included; the lock file names all dependencies
#   auditable    cargo-auditable puts the list of all crates into each program, where image scanners find it
#
# CLANG names another clang than `clang`.
set -euo pipefail

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

[[ $# == 2 || $# == 4 ]] || fail "usage: $0 amd64|arm64 OUT [PACKAGE PROGRAM]"
case $1 in
    amd64) target=x86_64-unknown-linux-musl machine='Advanced Micro Devices X86-64' ;;
    arm64) target=aarch64-unknown-linux-musl machine=AArch64 ;;
    *) fail "architecture $1: amd64 or arm64, as Docker names them" ;;
esac
mkdir -p "$2"
out=$(cd "$2" && pwd)
programs=(storer restorer)
packages=("${programs[@]}")
[[ $# == 2 ]] || { packages=("$3") && programs=("$4"); }
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

clang=${CLANG:-clang}
for tool in cargo rustc cargo-auditable "$clang" readelf; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
done
sysroot=$(rustc --print sysroot)
host=$(rustc --print host-tuple)
[[ -d $sysroot/lib/rustlib/$target ]] || rustup target add "$target"
lld=$sysroot/lib/rustlib/$host/bin/rust-lld
[[ -x $lld ]] || fail "$lld is missing: this Rust comes without its linker"

# Removes the paths of this machine from panic messages, and from generated code.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
target_dir=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
prefixes=("$PWD=/src" "$target_dir=/target" "$cargo_home=/cargo")

# ring has a little C and assembly. Its own headers are enough for arm64; for amd64 it takes those of the machine for memcpy
# and the like, and links nothing of theirs.
export "CC_${target//-/_}=$clang"
cflags=--target=${target/-unknown/}
rustflags=(-Clinker="$lld" -Clinker-flavor=ld.lld -Clink-self-contained=yes -Ctarget-feature=+crt-static)
for prefix in "${prefixes[@]}"; do
    cflags+=" -ffile-prefix-map=$prefix"
    rustflags+=("--remap-path-prefix=$prefix")
done
export "CFLAGS_${target//-/_}=$cflags"
# Separated by a byte that no path has. For the target alone: build scripts and macros are of the host.
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' "${rustflags[@]}")
export CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS%$'\x1f'}
# Both would change the result if they were set in the environment.
unset RUSTFLAGS CARGO_BUILD_RUSTFLAGS
export CARGO_INCREMENTAL=0

cargo auditable build --release --locked --target "$target" "${packages[@]/#/--package=}" "${programs[@]/#/--bin=}"

for program in "${programs[@]}"; do
    file=$out/$program
    cp "$target_dir/$target/release/$program" "$file"
    # Otherwise the build time would make each image differ.
    touch --date="@${SOURCE_DATE_EPOCH:-0}" "$file"
    header=$(readelf --file-header --program-headers --dynamic --wide "$file")
    grep -q "Machine: .*$machine" <<<"$header" || fail "$program is not for $1"
    # A program that asks for a loader or a library must fail here, not in the cluster.
    ! grep -qE 'INTERP|\(NEEDED\)' <<<"$header" || fail "$program is not static"
    readelf --sections --wide "$file" | grep -qF .dep-v0 || fail "$program does not list its crates"
    for prefix in "${prefixes[@]}" "$HOME="; do
        ! grep -qaF "${prefix%%=*}/" "$file" || fail "$program names ${prefix%%=*}, a folder of this machine"
    done
done
printf 'built with %s, %s\n' "$(rustc --version)" "$("$clang" --version | head -1)"
(cd "$out" && sha256sum "${programs[@]}" && stat --format='%s bytes  %n' "${programs[@]}")
