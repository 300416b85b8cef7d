{{- /*
SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors

SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* The extension library expects the webhook's Service by this name. */ -}}
{{- define "name" -}}
gardener-extension-machine-preservation
{{- end -}}

{{- /* Names of cluster-scoped objects. */ -}}
{{- define "globalName" -}}
extensions.gardener.cloud:extension-machine-preservation:controller
{{- end -}}

{{- define "labels" -}}
app.kubernetes.io/name: {{ include "name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* A release packages the chart with its own version, and would leave an appVersion as it was. */ -}}
{{- define "image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" (trimPrefix "v" .Chart.Version)) }}
{{- end -}}

{{- define "config" -}}
apiVersion: config.machine-preservation.extensions.gardener.cloud/v1alpha1
kind: ControllerConfiguration
{{- with .Values.config }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "port.webhook" }}10250{{ end -}}
{{- define "port.metrics" }}8080{{ end -}}
{{- define "port.health" }}8081{{ end -}}
