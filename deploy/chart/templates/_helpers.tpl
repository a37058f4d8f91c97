{{- define "label-storage.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* The beginning of every object's name. Short: the name of a StatefulSet, with its suffix and a hash, is a label of its pods. */}}
{{- define "label-storage.fullname" -}}
{{- $name := include "label-storage.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 43 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 43 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 43 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "label-storage.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end -}}

{{/* The beginning of cluster-wide names. The namespace is part of it: two installations with one release name have different objects. */}}
{{- define "label-storage.cluster-name" -}}
{{- $name := include "label-storage.fullname" . -}}
{{- $namespace := include "label-storage.namespace" . -}}
{{ eq $name $namespace | ternary $name (printf "%s-%s" $name $namespace) }}
{{- end -}}

{{/* The next helpers take (dict "root" $ "daemon" "storer"), or "restorer". */}}

{{- define "label-storage.daemon-name" -}}
{{ include "label-storage.fullname" .root }}-{{ .daemon }}
{{- end -}}

{{- define "label-storage.account" -}}
{{ (index .root.Values .daemon).serviceAccount.name | default (include "label-storage.daemon-name" .) }}
{{- end -}}

{{/* The account as a user of the API server. */}}
{{- define "label-storage.user" -}}
system:serviceaccount:{{ include "label-storage.namespace" .root }}:{{ include "label-storage.account" . }}
{{- end -}}

{{/* Selects the pods of one daemon. It never changes: a StatefulSet's selector can't be changed. */}}
{{- define "label-storage.daemon-selector" -}}
{{ include "label-storage.selector" .root }}
app.kubernetes.io/component: {{ .daemon }}
{{- end -}}

{{/* Selects all pods of this installation. */}}
{{- define "label-storage.selector" -}}
app.kubernetes.io/name: {{ include "label-storage.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "label-storage.labels" -}}
{{ include "label-storage.selector" . }}
app.kubernetes.io/part-of: label-storage
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels and annotations of an object: (dict "root" $), with "daemon" if it belongs to one, and "labels" and "annotations" of its own. */}}
{{- define "label-storage.metadata" -}}
labels:
  {{- include "label-storage.labels" .root | nindent 2 }}
  {{- with .daemon }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "label-storage.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "label-storage.priority-class" -}}
{{- if .Values.priorityClass.create -}}
{{ .Values.priorityClassName | default (include "label-storage.cluster-name" .) }}
{{- else -}}
{{ .Values.priorityClassName }}
{{- end -}}
{{- end -}}

{{- /* The rules' ConfigMap. It is no record, and must not have the name of one. Its name is fixed: a namespace has one installation. */ -}}
{{- define "label-storage.rules" -}}
label-storage-rules
{{- end -}}

{{/*
A pattern, which is a key with * for any characters, as a regular expression. No character of a key but the dot means anything in one.
*/}}
{{- define "label-storage.regex" -}}
{{ . | replace "." "[.]" | replace "*" ".*" }}
{{- end -}}

{{/* CEL: true if a string matches one of these patterns. */}}
{{- define "label-storage.matches" -}}
{{- $all := list -}}
{{- range .patterns -}}
{{- $all = append $all (include "label-storage.regex" .) -}}
{{- end -}}
{{- if $all -}}
{{ .of }}.matches('^({{ join "|" $all }})$')
{{- else -}}
false
{{- end -}}
{{- end -}}
