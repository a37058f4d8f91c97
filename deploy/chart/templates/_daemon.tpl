{{/* The StatefulSet of one daemon: the same for both but for its name and its values. */}}
{{- define "label-storage.daemon" -}}
{{- $root := .root }}
{{- $values := index .root.Values .daemon }}
{{- $name := include "label-storage.daemon-name" . }}
{{- $selector := include "label-storage.daemon-selector" . -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  namespace: {{ include "label-storage.namespace" $root }}
  {{- include "label-storage.metadata" . | nindent 2 }}
spec:
  # Also the number of shards: the pods read it here, and follow it.
  replicas: {{ int $values.replicas }}
  serviceName: {{ $name }}
  # The replicas don't wait for each other: each looks after nodes of its own.
  podManagementPolicy: Parallel
  # Time for a new replica to take its shards before the next old one ends.
  minReadySeconds: 10
  revisionHistoryLimit: {{ int $root.Values.revisionHistoryLimit }}
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- $selector | nindent 8 }}
        app.kubernetes.io/part-of: label-storage
        {{- with merge (dict) $root.Values.podLabels $root.Values.commonLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        # The daemons read their rules at start: a change rolls the pods.
        checksum/rules: {{ toYaml $root.Values.rules | sha256sum }}
        {{- with merge (dict) $root.Values.podAnnotations $root.Values.commonAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "label-storage.pod" . | nindent 6 }}
      {{- with include "label-storage.priority-class" $root }}
      priorityClassName: {{ . }}
      {{- end }}
      # The daemon ends within 10 s of SIGTERM, after another replica has taken over.
      terminationGracePeriodSeconds: 20
      # The end of one machine, or of one zone, should not take every replica along. Only where possible: a cluster of one node is
      # served too. Not by topologySpreadConstraints: the scheduler leaves out of those every node that lacks one of their labels, so that
      # in a cluster without zones the nodes would not count either.
      {{- $terms := list }}
      {{- range $key, $weight := dict "kubernetes.io/hostname" 100 "topology.kubernetes.io/zone" 50 }}
      {{- $term := dict "topologyKey" $key "labelSelector" (dict "matchLabels" (fromYaml $selector)) }}
      {{- $terms = append $terms (dict "weight" $weight "podAffinityTerm" $term) }}
      {{- end }}
      {{- $apart := dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" $terms) }}
      affinity:
        {{- toYaml (merge (deepCopy $values.affinity) (deepCopy $root.Values.affinity) $apart) | nindent 8 }}
      {{- with concat $root.Values.topologySpreadConstraints $values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- range . }}
        - {{- toYaml (hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" (dict "matchLabels" (fromYaml $selector)))) | nindent 10 }}
        {{- end }}
      {{- end }}
      containers:
        - name: {{ .daemon }}
          {{- include "label-storage.container" . | nindent 10 }}
          args:
            {{- include "label-storage.args" $root | nindent 12 }}
            {{- if $root.Values.dryRun }}
            - --dry-run
            {{- end }}
            {{- with $values.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            # The ordinal at its end is the replica's index, the rest is the name of the StatefulSet.
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            {{- include "label-storage.env" $root | nindent 12 }}
          ports:
            - name: admin
              containerPort: 8080
              protocol: TCP
            # For the kubelet alone: the NetworkPolicy opens the port to nobody else, so that no pod can hold up the probes.
            - name: probes
              containerPort: 8081
              protocol: TCP
          # Two minutes to get going, on a machine that has just started.
          startupProbe:
            httpGet:
              path: /livez
              port: probes
            {{- toYaml $root.Values.startupProbe | nindent 12 }}
          # It says that a loop stands still after a minute, whatever the API server does: half a minute of that, and it is started again.
          livenessProbe:
            httpGet:
              path: /livez
              port: probes
            {{- toYaml $root.Values.livenessProbe | nindent 12 }}
          # All has been listed, and the lease is renewed: a rollout goes on to the next replica.
          readinessProbe:
            httpGet:
              path: /readyz
              port: probes
            {{- toYaml $root.Values.readinessProbe | nindent 12 }}
{{- end -}}

{{/* The fields that a daemon's pods and the pod of `helm test` have in common: account, security, placement and volumes. */}}
{{- define "label-storage.pod" -}}
{{- $root := .root }}
{{- $values := index .root.Values .daemon -}}
serviceAccountName: {{ include "label-storage.account" . }}
automountServiceAccountToken: true
# A Service called label-storage would otherwise put variables named LABEL_STORAGE_… into the environment.
enableServiceLinks: false
{{- with $root.Values.dnsPolicy }}
# By default as on the node: where the API server's address is a name, it does not depend on the cluster's own DNS.
dnsPolicy: {{ . }}
{{- end }}
{{- with $root.Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge (dict) $values.nodeSelector $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $tolerations := concat $root.Values.tolerations $values.tolerations }}
{{- if dig "startupTaint" "enabled" false $root.Values.rules }}
{{- $tolerations = append $tolerations (dict "key" "label-storage/restoring" "operator" "Exists") }}
{{- end }}
{{- with $tolerations }}
# By default: control plane nodes, which often stay while all others are being replaced; and nodes in trouble are left
# after half a minute, not after the five that are Kubernetes' own default.
{{- if dig "startupTaint" "enabled" false $root.Values.rules }}
# And the start-up taint: where every node has it, who takes it off could run nowhere.
{{- end }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: rules
    configMap:
      name: {{ include "label-storage.rules" $root }}
  {{- with $root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The fields that a daemon's container and that of `helm test` have in common. */}}
{{- define "label-storage.container" -}}
{{- $root := .root -}}
# The image is not published anywhere: build it, and give it the name under which your nodes can pull it.
image: {{ include "label-storage.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
{{- with $root.Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: rules
    mountPath: /etc/label-storage
    readOnly: true
  {{- with $root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with (index $root.Values .daemon).resources }}
# Measured: 43 MB at 100,000 nodes (docs/benchmarks.md). No limit on the CPU: throttling would make labels late
# just when many nodes come or go.
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
command: [/{{ .daemon }}]
{{- end -}}

{{- define "label-storage.args" -}}
- --admin-address=0.0.0.0:8080
- --probe-address=0.0.0.0:8081
- --log-format={{ .Values.log.format }}
- --log-level={{ .Values.log.level }}
- --events={{ .Values.events }}
- --config=/etc/label-storage/rules.yaml
{{- end -}}

{{- define "label-storage.env" -}}
- name: LABEL_STORAGE_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
