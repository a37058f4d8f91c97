{{/* The StatefulSet of one daemon: the same for both but for its name and its values. */}}
{{- define "label-storage.daemon" -}}
{{- $root := .root }}
{{- $values := index .root.Values .daemon }}
{{- $selector := include "label-storage.selector" .daemon -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .daemon }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "label-storage.daemon-labels" . | nindent 4 }}
spec:
  # Also the number of shards: the pods read it here, and follow it.
  replicas: {{ int $values.replicas }}
  serviceName: {{ .daemon }}
  # The replicas don't wait for each other: each looks after nodes of its own.
  podManagementPolicy: Parallel
  # Time for a new replica to take its shards before the next old one ends.
  minReadySeconds: 10
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- $selector | nindent 8 }}
        {{- with $root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        # The daemons read their rules at start: a change rolls the pods.
        checksum/rules: {{ toYaml $root.Values.rules | sha256sum }}
        {{- with $root.Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ .daemon }}
      automountServiceAccountToken: true
      priorityClassName: {{ include "label-storage.priority-class" $root }}
      # The daemon ends within 10 s of SIGTERM, after another replica has taken over.
      terminationGracePeriodSeconds: 20
      # A Service called label-storage would otherwise put variables named LABEL_STORAGE_… into the environment.
      enableServiceLinks: false
      # They look up no names: the API server's address is in the environment. So they don't need the cluster's DNS to be there.
      dnsPolicy: Default
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      {{- with merge (dict) $values.nodeSelector $root.Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
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
        {{- toYaml (merge (deepCopy $root.Values.affinity) $apart) | nindent 8 }}
      {{- $tolerations := $root.Values.tolerations }}
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
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .daemon }}
          # The image is not published anywhere: build it, and give it the name under which your nodes can pull it.
          image: {{ include "label-storage.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [/{{ .daemon }}]
          args:
            - --admin-address=0.0.0.0:8080
            - --probe-address=0.0.0.0:8081
            - --log-format={{ $root.Values.log.format }}
            - --log-level={{ $root.Values.log.level }}
            - --events={{ $root.Values.events }}
            - --config=/etc/label-storage/rules.yaml
            {{- with $values.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            # The ordinal at its end is the replica's index, the rest is the name of the StatefulSet.
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: LABEL_STORAGE_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
          ports:
            - name: admin
              containerPort: 8080
              protocol: TCP
            # For the kubelet alone: the NetworkPolicy opens the port to nobody else, so that no pod can hold up the probes.
            - name: probes
              containerPort: 8081
              protocol: TCP
          volumeMounts:
            - name: rules
              mountPath: /etc/label-storage
              readOnly: true
          # Two minutes to get going, on a machine that has just started.
          startupProbe:
            httpGet:
              path: /livez
              port: probes
            periodSeconds: 2
            timeoutSeconds: 2
            failureThreshold: 60
          # It says that a loop stands still after a minute, whatever the API server does: half a minute of that, and it is started again.
          livenessProbe:
            httpGet:
              path: /livez
              port: probes
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          # All has been listed, and the lease is renewed: a rollout goes on to the next replica.
          readinessProbe:
            httpGet:
              path: /readyz
              port: probes
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 2
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          {{- with $values.resources }}
          # Measured: 43 MB at 100,000 nodes (docs/benchmarks.md). No limit on the CPU: throttling would make labels late
          # just when many nodes come or go.
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
      volumes:
        # The kubelet brings it up to date within about a minute. Not by subPath, which it would not.
        - name: rules
          configMap:
            name: {{ include "label-storage.rules" $root }}
{{- end -}}
