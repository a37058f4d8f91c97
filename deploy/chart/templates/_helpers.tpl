{{/*
The name of what is cluster-wide, or its beginning: label-storage in the namespace label-storage, and another in another
namespace, so that two installations don't take each other's objects.
*/}}
{{- define "label-storage.name" -}}
{{- if contains "label-storage" .Release.Namespace -}}
{{ .Release.Namespace }}
{{- else -}}
label-storage-{{ .Release.Namespace }}
{{- end -}}
{{- end -}}

{{/* What one daemon's pods are selected by; for ever, since a StatefulSet's selector can't be changed. */}}
{{- define "label-storage.selector" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: label-storage
{{- end -}}

{{/* Labels of what belongs to one daemon. */}}
{{- define "label-storage.daemon-labels" -}}
{{ include "label-storage.selector" .daemon }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end -}}

{{/* Labels of what belongs to both. */}}
{{- define "label-storage.labels" -}}
app.kubernetes.io/part-of: label-storage
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
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

{{/* The name of a daemon's account, as the API server knows its user. */}}
{{- define "label-storage.user" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:{{ .daemon }}
{{- end -}}

{{- define "label-storage.priority-class" -}}
{{ .Values.priorityClass.name | default (include "label-storage.name" .) }}
{{- end -}}

{{- /* The rules' ConfigMap. It is no record, and must not have the name of one. */ -}}
{{- define "label-storage.rules" -}}
label-storage-rules
{{- end -}}

{{/*
CEL: true if a string matches one of these patterns, which are keys with * for any characters.
No character of a key but the dot means anything in a regular expression.
*/}}
{{- define "label-storage.matches" -}}
{{- $all := list -}}
{{- range .patterns -}}
{{- $all = append $all (. | replace "." "[.]" | replace "*" ".*") -}}
{{- end -}}
{{- if $all -}}
{{ .of }}.matches('^({{ join "|" $all }})$')
{{- else -}}
false
{{- end -}}
{{- end -}}
