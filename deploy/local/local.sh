#!/usr/bin/env bash
# Runs Label Storage on a kind cluster, with Prometheus and Grafana. Needs docker, kind and kubectl.
#
#     deploy/local/local.sh up               builds the image, creates a cluster with two workers, and installs everything
#     deploy/local/local.sh restart-worker   labels a worker's Node, deletes it, and shows its labels when it is back
#                                            (WORKER=... chooses the worker)
#     deploy/local/local.sh grafana          serves the dashboard on http://localhost:3000 (PORT=... chooses the port)
#     deploy/local/local.sh down             deletes the cluster
#
# It uses only its own cluster, kind-label-storage, and does not change the current context.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cluster="label-storage"
image="label-storage:0.1.0" # as the manifests name it

step() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
on_cluster() { kubectl --context "kind-$cluster" "$@"; }

need() {
    local tool
    for tool in "$@"; do
        case $tool in
            docker) command -v docker >/dev/null || fail "docker is not installed: https://docs.docker.com/engine/install" ;;
            kind) command -v kind >/dev/null || fail "kind is not installed: https://kind.sigs.k8s.io/docs/user/quick-start" ;;
            kubectl) command -v kubectl >/dev/null || fail "kubectl is not installed: https://kubernetes.io/docs/tasks/tools" ;;
        esac
    done
    docker info >/dev/null 2>&1 || fail "docker is installed, but its engine does not answer: check that it is running, and that you may use it"
}

exists() { kind get clusters 2>/dev/null | grep -qx "$cluster"; }

# config_map NAMESPACE NAME FILE: creates or updates a ConfigMap from a file.
config_map() {
    on_cluster create configmap "$2" --namespace "$1" --from-file "$3" --dry-run=client --output yaml |
        on_cluster apply --server-side --filename -
}

up() {
    need docker kind kubectl
    step "building the image"
    docker build --tag "$image" .
    local existed=''
    if exists; then
        existed=1
        step "cluster $cluster exists already"
    else
        step "creating cluster $cluster"
        # kind makes its context the current one. This restores the one before.
        local before
        before=$(kubectl config current-context 2>/dev/null || true)
        kind create cluster --config deploy/local/kind.yaml --wait 2m
        [[ ! $before ]] || kubectl config use-context "$before" >/dev/null
    fi
    step "loading the image onto its nodes"
    kind load docker-image --name "$cluster" "$image"

    step "installing Label Storage"
    on_cluster apply --server-side --filename deploy/label-storage.yaml
    # The tag is the same, so only a restart makes the pods use the new image.
    [[ ! $existed ]] || on_cluster rollout restart statefulset --namespace label-storage
    step "installing Prometheus and Grafana"
    on_cluster apply --server-side --filename deploy/local/monitoring.yaml
    config_map monitoring prometheus-rules deploy/chart/files/alerts.yaml
    config_map monitoring grafana-dashboards deploy/chart/files/dashboard.json

    step "waiting until everything is ready"
    on_cluster rollout status statefulset/label-storage-storer --namespace label-storage --timeout 3m
    on_cluster rollout status statefulset/label-storage-restorer --namespace label-storage --timeout 3m
    on_cluster rollout status deployment/prometheus --namespace monitoring --timeout 5m
    on_cluster rollout status deployment/grafana --namespace monitoring --timeout 5m
    step "ready: next, $0 restart-worker; and $0 grafana in another terminal"
}

restart_worker() {
    need docker kind kubectl
    exists || fail "there is no cluster $cluster: run $0 up"
    local worker=${WORKER:-$cluster-worker} value
    value="gold-$(date +%s)"

    step "labelling $worker: example.com/pool=$value"
    on_cluster label node "$worker" "example.com/pool=$value" --overwrite
    step "waiting until that is stored"
    on_cluster wait configmap "label-storage.$worker" --namespace label-storage --timeout 1m \
        --for "jsonpath={.data.example\.com-SLASH-pool}=$value"

    # A kubelet registers its Node only when it starts.
    step "deleting the Node, and restarting the kubelet"
    on_cluster delete node "$worker"
    docker exec "$worker" systemctl restart kubelet
    step "waiting for the Node and its label"
    # `kubectl wait` fails at once if the object does not exist, except with --for=create.
    on_cluster wait node "$worker" --for create --timeout 2m
    on_cluster wait node "$worker" --for "jsonpath={.metadata.labels.example\.com/pool}=$value" --timeout 2m
    on_cluster wait node "$worker" --for condition=Ready --timeout 2m
    on_cluster get node "$worker" --label-columns example.com/pool
    on_cluster events --namespace default --for "node/$worker" | tail -8
}

grafana() {
    need docker kind kubectl
    exists || fail "there is no cluster $cluster: run $0 up"
    local port=${PORT:-3000}
    step "the dashboard is at http://localhost:$port until Ctrl-C"
    on_cluster port-forward --namespace monitoring service/grafana "$port:3000"
}

down() {
    need docker kind
    kind delete cluster --name "$cluster"
}

case ${1-} in
    up) up ;;
    restart-worker) restart_worker ;;
    grafana) grafana ;;
    down) down ;;
    *)
        sed -n '2,/^set /{/^#/{s/^# \{0,1\}//;p}}' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
esac
