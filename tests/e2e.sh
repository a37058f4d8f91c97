#!/usr/bin/env bash
# Tests the shipped manifests on a real cluster: the one that KUBECONFIG points to. kind, minikube and shared clusters will do.
#
#     tests/e2e.sh                                     # kind, minikube: builds the image and loads it
#     IMAGE=registry.example/label-storage:0.1.0 tests/e2e.sh
#
# It installs deploy/label-storage.yaml and waits for the rollout. Then it creates, labels, deletes and re-creates Nodes, kills
# a pod of each daemon meanwhile, and checks that the labels come back. It takes about two minutes. At the end it removes
# everything that it has created, also after a failure or Ctrl-C.
#
# It is safe on a shared cluster. It changes only Nodes that it has created itself. They have a random name (label-storage-e2e-...),
# no machine, and a taint that keeps pods away. The daemons that it installs handle only Nodes of that name. If any part of Label
# Storage is installed already, it refuses to run. Its account must be allowed to create Nodes and cluster roles. Some clouds remove Nodes
# that have no machine, but not within the minute that these Nodes live.
#
#     IMAGE            the image, by a name that the cluster's nodes have or can pull [default: built here, and loaded]
#     USE_INSTALLED=1  tests the Label Storage that is installed: installs nothing, and removes only its own Nodes and their records.
#                      It kills the first pod of each daemon, which Kubernetes starts again
#     KEEP=1           removes nothing at the end
#     TIMEOUT          the longest time to wait for each condition, in seconds [default: 120]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

namespace="label-storage"
timeout=${TIMEOUT:-120}
run=label-storage-e2e-$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
installed='' # set if this run has installed something, which it removes at the end

step() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# ---- Nodes, records and Events

# create NODE [KEY=VALUE]: creates a Ready Node as a kubelet does: with its own labels, and without those of people.
create() {
    local label=${2:-}
    kubectl create --filename=- <<YAML
apiVersion: v1
kind: Node
metadata:
  name: $1
  labels:
    label-storage-e2e: $run
    ${label:+${label%%=*}: ${label#*=}}
spec:
  unschedulable: true
  taints: [{key: label-storage-e2e, value: $run, effect: NoExecute}]
YAML
    kubectl patch node "$1" --subresource=status --type=merge --patch \
        '{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "EndToEndTest", "message": "has no machine"}]}}'
}

# label NODE KEY: prints the value of a label, or nothing.
label() { kubectl get node "$1" --ignore-not-found --output="go-template={{with .metadata.labels}}{{with index . \"$2\"}}{{.}}{{end}}{{end}}"; }

# stored NODE KEY: prints the value in the record of the Node, or nothing.
stored() { kubectl get configmap "label-storage.$1" --namespace="$namespace" --ignore-not-found --output="go-template={{with .data}}{{with index . \"$2\"}}{{.}}{{end}}{{end}}"; }

# marker NODE: prints the annotation that the restorer sets.
marker() { kubectl get node "$1" --ignore-not-found --output='go-template={{with .metadata.annotations}}{{with index . "label-storage/restored"}}{{.}}{{end}}{{end}}'; }

# events NODE REASON: counts the Events about the Node.
events() { kubectl get events --namespace=default --field-selector="involvedObject.kind=Node,involvedObject.name=$1,reason=$2" --output=name | wc -l; }

uid() { kubectl get node "$1" --output='jsonpath={.metadata.uid}'; }

# eventually WHAT EXPECTED COMMAND...: waits until the command prints the expected text.
eventually() {
    local what=$1 expected=$2 found='' end=$((SECONDS + timeout))
    shift 2
    until found=$("$@") && [[ $found == "$expected" ]]; do
        ((SECONDS < end)) || fail "$what: it is '$found' after $timeout s, not '$expected'"
        sleep 0.5
    done
    printf '    %s: %s\n' "$what" "${expected:-none}"
}

# ---- the daemons

# Their names depend on the release's name, their labels do not.
daemons="app.kubernetes.io/part-of=label-storage,app.kubernetes.io/component in (storer,restorer)"

find_stateful_sets() {
    mapfile -t stateful_sets < <(kubectl get statefulsets --namespace="$namespace" --selector="$daemons" --output=name)
    ((${#stateful_sets[@]} == 2)) || fail "namespace $namespace has ${#stateful_sets[@]} StatefulSets of Label Storage, not 2"
}

rolled_out() {
    local set
    for set in "${stateful_sets[@]}"; do
        kubectl rollout status "$set" --namespace="$namespace" --timeout="${timeout}s"
    done
}

# ---- clean-up

explain() {
    step "the state of the cluster at the failure"
    kubectl get nodes --selector="label-storage-e2e=$run" --show-labels || true
    kubectl get all,leases,configmaps --namespace="$namespace" --output=wide || true
    kubectl get events --namespace="$namespace" --sort-by=.lastTimestamp | tail -20 || true
    local pod
    for pod in $(kubectl get pods --namespace="$namespace" --output=name); do
        printf -- '--- %s\n' "$pod"
        kubectl logs --namespace="$namespace" --tail=20 "$pod" || true
    done
}

clean_up() {
    local status=$?
    trap - EXIT
    set +e
    ((status == 0)) || explain >&2
    if [[ ${KEEP:-} == 1 ]]; then
        step "kept: nodes $run-*, namespace $namespace, manifests in $work"
        exit "$status"
    fi
    step "cleaning up"
    # The daemons go first: they would create records of Nodes that are being deleted.
    if [[ $installed ]]; then
        kubectl delete --kustomize="$work" --ignore-not-found --wait --timeout="${timeout}s" >/dev/null || status=1
    fi
    kubectl delete nodes --selector="label-storage-e2e=$run" --ignore-not-found || status=1
    if [[ ! $installed && ${USE_INSTALLED:-} == 1 ]]; then
        # The daemons still run. A record that is deleted before the storer has noticed the deletion of its Node would be created again.
        for node in "${nodes[@]}"; do
            kubectl wait configmap "label-storage.$node" --namespace="$namespace" --timeout=30s \
                --for='jsonpath={.metadata.annotations.label-storage/departed-at}' >/dev/null 2>&1
            kubectl delete configmap "label-storage.$node" --namespace="$namespace" --ignore-not-found || status=1
        done
    fi
    for node in "${nodes[@]}"; do
        kubectl delete events --namespace=default --field-selector="involvedObject.kind=Node,involvedObject.name=$node" >/dev/null || status=1
    done
    rm -rf "$work"
    exit "$status"
}

# ---- requirements

command -v kubectl >/dev/null || fail "kubectl is not installed"
context=$(kubectl config current-context) || fail "no current context: set KUBECONFIG"
kubectl get --raw=/readyz >/dev/null || fail "the API server of context $context does not answer"
for what in nodes clusterroles.rbac.authorization.k8s.io; do
    [[ $(kubectl auth can-i create "$what" 2>/dev/null) == yes ]] || fail "context $context may not create $what"
done
step "context $context, nodes $run-*"

# manifests IMAGE: writes the shipped file, changed in two places: the image, and the Nodes that the daemons handle.
manifests() {
    cp deploy/label-storage.yaml "$work/"
    cat > "$work/kustomization.yaml" <<YAML
resources: [label-storage.yaml]
patches:
  - target: {kind: StatefulSet}
    patch: |
      - {op: replace, path: /spec/template/spec/containers/0/image, value: "$1"}
      - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: LABEL_STORAGE_NODES, value: "$run-*"}}
YAML
}

# build: builds the image, loads it onto the cluster's nodes, and prints its name.
build() {
    local image=label-storage:$run
    command -v docker >/dev/null || fail "docker is not installed: give an IMAGE that the cluster can pull"
    case $context in
        kind-*) load=(kind load docker-image --name "${context#kind-}" "$image") ;;
        minikube*) load=(minikube --profile "$context" image load "$image") ;;
        *) fail "context $context is neither kind nor minikube: push the image, and give its name as IMAGE" ;;
    esac
    docker build --tag "$image" . >&2
    "${load[@]}" >&2
    echo "$image"
}

nodes=("$run-1" "$run-2" "$run-3" "$run-4")

if [[ ${USE_INSTALLED:-} == 1 ]]; then
    find_stateful_sets
else
    manifests placeholder
    there=$(kubectl get --kustomize="$work" --ignore-not-found --output=name) || fail "can't find out if Label Storage is installed"
    [[ ! $there ]] || fail "Label Storage is installed already: $(wc -l <<<"$there") objects exist, such as ${there%%$'\n'*}. USE_INSTALLED=1 tests that installation"
    image=${IMAGE:-$(build)}
    manifests "$image"
    step "installing deploy/label-storage.yaml with image $image"
    installed=1
    trap clean_up EXIT
    kubectl apply --kustomize="$work"
    find_stateful_sets
fi

trap clean_up EXIT
step "waiting for the rollout"
rolled_out

# ---- the test

step "labels are stored"
for node in "${nodes[@]}"; do
    create "$node" >/dev/null
    kubectl label node "$node" example.com/pool=gold team=blue
done
for node in "${nodes[@]}"; do
    eventually "$node, pool in its record" gold stored "$node" example.com-SLASH-pool
done
kubectl label node "${nodes[2]}" team-
eventually "${nodes[2]}, team in its record" '' stored "${nodes[2]}" team

step "nodes are deleted, and one pod of each daemon is killed"
before=$(uid "${nodes[0]}")
kubectl delete node "${nodes[@]}"
for set in "${stateful_sets[@]}"; do
    kubectl delete pod "${set##*/}-0" --namespace="$namespace" --grace-period=0 --force 2>/dev/null
done

step "nodes are re-created without their labels"
for node in "${nodes[@]:0:3}"; do
    create "$node" >/dev/null
done
create "${nodes[3]}" example.com/pool=default >/dev/null
[[ $(uid "${nodes[0]}") != "$before" ]] || fail "${nodes[0]} was not re-created"

step "labels are restored"
for node in "${nodes[@]:0:3}"; do
    eventually "$node, pool" gold label "$node" example.com/pool
done
eventually "${nodes[0]}, team" blue label "${nodes[0]}" team
eventually "${nodes[3]}, team" blue label "${nodes[3]}" team
for node in "${nodes[@]}"; do
    found=$(marker "$node")
    [[ ${found%%/*} == "$(uid "$node")" ]] || fail "$node is marked '$found', not as itself"
done

step "a removed label stays removed, and the value of a re-created node is kept"
eventually "${nodes[2]}, team" '' label "${nodes[2]}" team
eventually "${nodes[3]}, pool" default label "${nodes[3]}" example.com/pool
eventually "${nodes[3]}, pool in its record" default stored "${nodes[3]}" example.com-SLASH-pool

step "all pods are ready again, and none has failed"
rolled_out
restarts=$(kubectl get pods --namespace="$namespace" --selector="$daemons" \
    --output='jsonpath={range .items[*]}{.metadata.name}={.status.containerStatuses[0].restartCount} {end}')
printf '    restarts: %s\n' "$restarts"
[[ $restarts ]] || fail "no pods have the labels of the daemons"
[[ ${USE_INSTALLED:-} == 1 || ! $restarts =~ =[1-9] ]] || fail "a daemon has ended by itself"

# Another installation may have Events switched off, or other rules.
if [[ ${USE_INSTALLED:-} != 1 ]]; then
    step "Events report what was restored"
    for node in "${nodes[@]}"; do
        eventually "$node, Events LabelsRestored" 1 events "$node" LabelsRestored
    done
    # By the shipped rules a re-created Node keeps its own values, and the difference is not reported. An Event about it would follow
    # at once after the others.
    eventually "${nodes[3]}, Events RestoreConflict" 0 events "${nodes[3]}" RestoreConflict
fi

step "all passed"
