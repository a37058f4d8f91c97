#!/usr/bin/env bash
# The shipped manifests on a real cluster, whichever KUBECONFIG points to: kind, minikube, or one that others use too.
#
#     tests/e2e.sh                                     # kind, minikube: builds the image and loads it
#     IMAGE=registry.example/label-storage:0.1.0 tests/e2e.sh
#
# Installs deploy/label-storage.yaml, waits for the rollout, and has Nodes stored, deleted and restored while pods are killed.
# Takes about two minutes. At the end all is as it was, also after a failure or Ctrl-C.
#
# Safe on a shared cluster: it touches only Nodes that it has created itself. They have no machine behind them, bear a name
# that nobody else has (label-storage-e2e-...), and are tainted, so that no pods go there. The daemons that it installs look after
# Nodes of that name alone. Where anything of Label Storage is installed already, it refuses. What it needs is an
# account that may create Nodes and cluster roles. Clouds that remove Nodes without a machine may take away its Nodes, too,
# but not within the minute that they live.
#
#     IMAGE            the image, by a name that the cluster's nodes have or can pull [default: built here, and loaded]
#     USE_INSTALLED=1  test the Label Storage that is there: install nothing, remove nothing but the test's own Nodes and records.
#                      Its pods storer-0 and restorer-0 are killed, and started again by Kubernetes
#     KEEP=1           leave everything behind, to look at
#     TIMEOUT          seconds to wait for each thing [default: 120]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

namespace="label-storage"
timeout=${TIMEOUT:-120}
run=label-storage-e2e-$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
installed='' # whether this run has installed something that it must remove

step() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# ---- what is done to Nodes, and what is seen of them

# create NODE [KEY=VALUE]: as a kubelet registers, with the labels that it knows and no others. Ready, as a fresh one is.
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

# label NODE KEY: its value, or nothing.
label() { kubectl get node "$1" --ignore-not-found --output="go-template={{with .metadata.labels}}{{with index . \"$2\"}}{{.}}{{end}}{{end}}"; }

# stored NODE KEY: what its record has.
stored() { kubectl get configmap "label-storage.$1" --namespace="$namespace" --ignore-not-found --output="go-template={{with .data}}{{with index . \"$2\"}}{{.}}{{end}}{{end}}"; }

# marker NODE: how the restorer has marked it.
marker() { kubectl get node "$1" --ignore-not-found --output='go-template={{with .metadata.annotations}}{{with index . "label-storage/restored"}}{{.}}{{end}}{{end}}'; }

# events NODE REASON: how many Events of that reason there are about it.
events() { kubectl get events --namespace=default --field-selector="involvedObject.kind=Node,involvedObject.name=$1,reason=$2" --output=name | wc -l; }

uid() { kubectl get node "$1" --output='jsonpath={.metadata.uid}'; }

# eventually WHAT EXPECTED COMMAND...: until the command prints what is expected.
eventually() {
    local what=$1 expected=$2 found='' end=$((SECONDS + timeout))
    shift 2
    until found=$("$@") && [[ $found == "$expected" ]]; do
        ((SECONDS < end)) || fail "$what: it is '$found' after $timeout s, not '$expected'"
        sleep 0.5
    done
    printf '    %s: %s\n' "$what" "${expected:-none}"
}

# ---- as it was before

explain() {
    step "what there is, since it failed"
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
    # Daemons first: they would make records of Nodes that are being deleted.
    if [[ $installed ]]; then
        kubectl delete --kustomize="$work" --ignore-not-found --wait --timeout="${timeout}s" >/dev/null || status=1
    fi
    kubectl delete nodes --selector="label-storage-e2e=$run" --ignore-not-found || status=1
    if [[ ! $installed && ${USE_INSTALLED:-} == 1 ]]; then
        # These are the daemons of others, and they still look: the records stay until those have seen the Nodes go.
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

# ---- what is needed

command -v kubectl >/dev/null || fail "kubectl is not installed"
context=$(kubectl config current-context) || fail "no current context: set KUBECONFIG"
kubectl get --raw=/readyz >/dev/null || fail "the API server of context $context does not answer"
for what in nodes clusterroles.rbac.authorization.k8s.io; do
    [[ $(kubectl auth can-i create "$what" 2>/dev/null) == yes ]] || fail "context $context may not create $what"
done
step "context $context, nodes $run-*"

# The shipped file, with two things changed: the image's name, and which Nodes the daemons look after.
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

# The image, built here and brought to where the cluster's nodes find it.
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
    kubectl get statefulset storer restorer --namespace="$namespace" >/dev/null || fail "USE_INSTALLED=1, but nothing is installed in $namespace"
else
    manifests placeholder
    there=$(kubectl get --kustomize="$work" --ignore-not-found --output=name) || fail "this cluster can't be looked at"
    [[ ! $there ]] || fail "Label Storage is here already, or $(wc -l <<<"$there") parts of it, such as ${there%%$'\n'*}. USE_INSTALLED=1 tests that one"
    image=${IMAGE:-$(build)}
    manifests "$image"
    step "installing deploy/label-storage.yaml with image $image"
    installed=1
    trap clean_up EXIT
    kubectl apply --kustomize="$work"
fi

trap clean_up EXIT
step "waiting for the rollout"
for daemon in storer restorer; do
    kubectl rollout status "statefulset/$daemon" --namespace="$namespace" --timeout="${timeout}s"
done

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

step "nodes are deleted; meanwhile one pod of each daemon is killed"
before=$(uid "${nodes[0]}")
kubectl delete node "${nodes[@]}"
for daemon in storer restorer; do
    kubectl delete pod "$daemon-0" --namespace="$namespace" --grace-period=0 --force 2>/dev/null
done

step "nodes are back, without their labels"
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

step "what was removed or set anew stays so"
[[ ! $(label "${nodes[2]}" team) ]] || fail "${nodes[2]}: a label that was removed is back"
[[ $(label "${nodes[3]}" example.com/pool) == default ]] || fail "${nodes[3]}: a label that it came with was overwritten"
eventually "${nodes[3]}, pool in its record" default stored "${nodes[3]}" example.com-SLASH-pool

# Somebody else's installation may have Events switched off.
if [[ ${USE_INSTALLED:-} != 1 ]]; then
    step "kubectl describe node tells of it"
    eventually "${nodes[0]}, Events LabelsRestored" 1 events "${nodes[0]}" LabelsRestored
    eventually "${nodes[3]}, Events RestoreConflict" 1 events "${nodes[3]}" RestoreConflict
fi

step "all pods are ready again, and none has failed"
for daemon in storer restorer; do
    kubectl rollout status "statefulset/$daemon" --namespace="$namespace" --timeout="${timeout}s"
done
restarts=$(kubectl get pods --namespace="$namespace" --selector=app.kubernetes.io/part-of=label-storage \
    --output='jsonpath={range .items[*]}{.metadata.name}={.status.containerStatuses[0].restartCount} {end}')
printf '    restarts: %s\n' "$restarts"
[[ ${USE_INSTALLED:-} == 1 || ! $restarts =~ =[1-9] ]] || fail "a daemon has ended by itself"

step "all passed"
