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
  {{- with $values.replicas }}
  # Also the number of shards: the pods read it here, and follow changes.
  replicas: {{ int . }}
  {{- end }}
  serviceName: {{ $name }}
  # The replicas do not wait for each other: each handles its own nodes.
  podManagementPolicy: Parallel
  # Gives a new replica time to take its shards before the next old one stops.
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
        # The daemons read their rules at start, so a change of the rules restarts the pods.
        checksum/rules: {{ toYaml $root.Values.rules | sha256sum }}
        {{- with merge (dict) $root.Values.podAnnotations $root.Values.commonAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "label-storage.pod" . | nindent 6 }}
      {{- with include "label-storage.priority-class" $root }}
      priorityClassName: {{ . }}
      {{- end }}
      # The daemon stops within 10 s of SIGTERM, after another replica has taken over.
      terminationGracePeriodSeconds: 20
      # The failure of one machine or zone should not stop every replica. This is only preferred, so that a cluster of one node works, too.
      # topologySpreadConstraints would not do: they ignore nodes that lack one of their labels, so without zones the nodes would not count
      # either.
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
            # The ordinal at the end is the index of the replica; the rest is the name of the StatefulSet.
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            {{- include "label-storage.env" $root | nindent 12 }}
          ports:
            - name: admin
              containerPort: 8080
              protocol: TCP
            # For the kubelet only: the NetworkPolicy does not open this port to pods, so no pod can block the probes.
            - name: probes
              containerPort: 8081
              protocol: TCP
          # Two minutes to start, on a machine that has just booted.
          startupProbe:
            httpGet:
              path: /livez
              port: probes
            {{- toYaml $root.Values.startupProbe | nindent 12 }}
          # /livez fails a minute after a loop got stuck, but not because the API server fails. Half a minute later the container is restarted.
          livenessProbe:
            httpGet:
              path: /livez
              port: probes
            {{- toYaml $root.Values.livenessProbe | nindent 12 }}
          # Ready means: everything was listed, and the lease is renewed. Then a rollout continues with the next replica.
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
# By default that of the node: if the address of the API server is a name, the daemon does not depend on the cluster's own DNS.
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
# By default the daemons may run on control plane nodes, which often stay while all others are replaced. They leave unhealthy nodes
# after half a minute, where Kubernetes' default is five minutes.
{{- if dig "startupTaint" "enabled" false $root.Values.rules }}
# They tolerate the start-up taint: if every node had it, the restorer could not run and remove it.
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
# Enough for 100,000 nodes (docs/benchmarks.md). There is no CPU limit: throttling would delay labels
# just when many nodes are deleted or re-created.
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
command: [/{{ .daemon }}]
{{- end -}}

{{- define "label-storage.args" -}}
- --admin-address=[::]:8080
- --probe-address=[::]:8081
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
