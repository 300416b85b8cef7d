{{- /*
SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors

SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- define "name" -}}
gardener-extension-machine-preservation-admission
{{- end -}}

{{- define "labels" -}}
app.kubernetes.io/name: {{ include "name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "port.webhook" }}10250{{ end -}}
{{- define "port.health" }}8081{{ end -}}
