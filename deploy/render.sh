#!/usr/bin/env bash
# Renders the chart to deploy/label-storage.yaml, for those who install with `kubectl apply` alone.
#
#     deploy/render.sh           writes the file
#     deploy/render.sh --check   fails if the file is not what the chart renders to
#     deploy/render.sh --print --set image.repository=registry.example.com/label-storage
#                                prints it for these values
#
# Takes helm from HELM, or from where `sandbox tool helm` finds it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

helm=${HELM:-$(cargo run --quiet --locked --package sandbox --bin sandbox -- tool helm)}
file=deploy/label-storage.yaml

render() {
    cat <<'HEADER'
# Rendered from deploy/chart by deploy/render.sh: change the chart, not this file.
# Contains the namespace label-storage, the accounts, the two daemons, and the policies that limit their permissions.
#
# Needs Kubernetes 1.30 or newer, because of the admission policies. On an older cluster kubectl applies nothing, and prints
#   unknown field "recursiveReadOnly" in io.k8s.api.core.v1.VolumeMount
# That field is as new as the policies, and has its default value here. kubectl validates a List as a whole before it applies any part.
# If the objects were separate, it would apply all but the policies.
apiVersion: v1
kind: List
items:
HEADER
    # The output does not depend on the version of Kubernetes, from the oldest supported one on.
    # Versions of helm differ in the empty lines between documents.
    "$helm" template label-storage deploy/chart --namespace label-storage --set namespace.create=true --kube-version 1.30.0 --skip-tests "$@" |
        sed -e '/^$/d' -e 's/^\( *\)readOnly: true$/&\n\1recursiveReadOnly: Disabled/' |
        awk '/^---$/ { begins = 1; next } /^#/ { print "  " $0; next } { print (begins ? "  - " : "    ") $0; begins = 0 }'
}

case ${1-} in
--check)
    rendered=$(render)
    if ! diff --unified "$file" - <<<"$rendered"; then
        echo "$file is not what the chart renders to: run deploy/render.sh" >&2
        exit 1
    fi
    ;;
'') render >"$file.new" && mv "$file.new" "$file" ;;
--print) render "${@:2}" ;;
*) echo "usage: deploy/render.sh [--check | --print FLAG...]" >&2 && exit 2 ;;
esac
